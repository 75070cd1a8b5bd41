//! Wire format of the messages of `foca`: the body of a [`super::packet::Packet::Swim`].

use bytes::{Buf, BufMut};
use foca::{Header, Member, Message, State};

use super::identity::Identity;
use crate::codec::Field;
use crate::wire::DecodeError;

/// Codec of SWIM messages.
///
/// | bytes | field | meaning |
/// |---|---|---|
/// | 19 or 31 | from | identity of the sender |
/// | 2 | incarnation | incarnation of the sender, increased when it refutes a suspicion |
/// | 19 or 31 | to | identity of the addressee |
/// | 1 | message | see below |
/// | 1 | probe | number of the probe; messages 1 to 6 |
/// | 19 or 31 | third | identity of the third node concerned; messages 3 to 6 |
/// | 2 | count | number of updates; absent in messages 7 and 11 |
/// | count times | update | identity, 2 bytes incarnation, 1 byte state |
///
/// Messages: 1 ping, 2 ack, 3 ping request, 4 indirect ping, 5 indirect ack, 6 forwarded ack,
/// 7 announce, 8 feed, 9 gossip, 10 broadcast, 11 "you are dead". States: 0 alive, 1 suspected,
/// 2 dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct SwimCodec;

crate::fields! {
    Header<Identity> { src, src_incarnation, dst, message };
}

crate::variants! {
    Message<Identity> {
        1 => Ping(probe_number),
        2 => Ack(probe_number),
        3 => PingReq { probe_number, target },
        4 => IndirectPing { probe_number, origin },
        5 => IndirectAck { probe_number, target },
        6 => ForwardedAck { probe_number, origin },
        7 => Announce,
        8 => Feed,
        9 => Gossip,
        10 => Broadcast,
        11 => TurnUndead,
    } if |message| match message {
        // A third node without an address could not be contacted.
        Message::PingReq { target, .. } | Message::IndirectAck { target, .. } => {
            target.is_reachable()
        }
        _ => true,
    };

    State {
        0 => Alive,
        1 => Suspect,
        2 => Down,
    };
}

impl<'a> Field<'a> for Member<Identity> {
    fn put(&self, out: &mut Vec<u8>) {
        (*self.id(), self.incarnation(), self.state()).put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (id, incarnation, state) = <(Identity, _, _)>::take(bytes)?;
        // A node that replaces its old identity may not know its own address.
        if !id.is_reachable() && state != State::Down {
            return Err(DecodeError::Value);
        }
        Ok(Self::new(id, incarnation, state))
    }
}

impl foca::Codec<Identity> for SwimCodec {
    type Error = DecodeError;

    fn encode_header(
        &mut self,
        header: &Header<Identity>,
        out: impl BufMut,
    ) -> Result<(), DecodeError> {
        encode(header, out)
    }

    fn decode_header(&mut self, bytes: impl Buf) -> Result<Header<Identity>, DecodeError> {
        decode(bytes)
    }

    fn encode_member(
        &mut self,
        member: &Member<Identity>,
        out: impl BufMut,
    ) -> Result<(), DecodeError> {
        encode(member, out)
    }

    fn decode_member(&mut self, bytes: impl Buf) -> Result<Member<Identity>, DecodeError> {
        decode(bytes)
    }
}

fn encode<'a>(value: &impl Field<'a>, mut out: impl BufMut) -> Result<(), DecodeError> {
    let bytes = value.to_bytes();
    if out.remaining_mut() < bytes.len() {
        return Err(DecodeError::Length);
    }
    out.put_slice(&bytes);
    Ok(())
}

fn decode<T: for<'a> Field<'a>>(mut bytes: impl Buf) -> Result<T, DecodeError> {
    let mut rest = bytes.chunk();
    let value = T::take(&mut rest)?;
    let taken = bytes.remaining() - rest.len();
    bytes.advance(taken);
    Ok(value)
}

/// Decodes the updates after a header, or returns `None` at the end of the message.
pub(super) fn updates(rest: &mut &[u8]) -> Result<Option<Vec<Member<Identity>>>, DecodeError> {
    if rest.is_empty() {
        return Ok(None);
    }
    Vec::take(rest).map(Some)
}

pub(super) fn suspected(payload: &[u8]) -> Vec<(Identity, u16)> {
    let mut rest = payload;
    let Ok((_, count)) = <(Header<Identity>, u16)>::take(&mut rest) else { return Vec::new() };
    let members = (0..count).map_while(|_| Member::take(&mut rest).ok());
    let suspects = members.filter(|member| member.state() == State::Suspect);
    suspects.map(|member| (*member.id(), member.incarnation())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::identity::IDENTITY_BYTES;
    use super::*;
    use foca::Codec as _;
    use proptest::prelude::*;

    const HEADER_MAX_BYTES: usize = 3 * IDENTITY_BYTES + 4;

    fn any_message() -> impl Strategy<Value = Message<Identity>> {
        let third = any::<Identity>().prop_filter("has an address", Identity::is_reachable);
        (1..=11_u8, any::<u8>(), third).prop_map(|(kind, probe_number, third)| match kind {
            1 => Message::Ping(probe_number),
            2 => Message::Ack(probe_number),
            3 => Message::PingReq { target: third, probe_number },
            4 => Message::IndirectPing { origin: third, probe_number },
            5 => Message::IndirectAck { target: third, probe_number },
            6 => Message::ForwardedAck { origin: third, probe_number },
            7 => Message::Announce,
            8 => Message::Feed,
            9 => Message::Gossip,
            10 => Message::Broadcast,
            _ => Message::TurnUndead,
        })
    }

    fn identity(node: u64) -> Identity {
        let endpoint = crate::Endpoint(core::net::SocketAddr::from(([10, 0, 0, 7], 7400)));
        Identity { node: crate::NodeId(node), bump: 0, endpoint }
    }

    fn encoded(header: &Header<Identity>) -> Vec<u8> {
        let mut bytes = Vec::new();
        SwimCodec.encode_header(header, &mut bytes).expect("a vector has room");
        bytes
    }

    #[test]
    fn a_ping_request_and_an_update_on_the_wire_are_this() {
        let message = Message::PingReq { target: identity(3), probe_number: 9 };
        let (src, dst) = (identity(1), identity(2));
        let header = Header { src, src_incarnation: 4, dst, message };
        let mut bytes = encoded(&header);
        let on_the_wire = |node| [0, 0, 0, 0, 0, 0, 0, node, 0, 0, 0, 0, 28, 232, 4, 10, 0, 0, 7];
        let golden = [
            &on_the_wire(1)[..],
            &[0, 4], // incarnation
            &on_the_wire(2),
            &[3, 9], // ping request, probe number
            &on_the_wire(3),
        ];
        assert_eq!(bytes, golden.concat());
        bytes.clear();
        let suspected = Member::new(identity(5), 6, State::Suspect);
        SwimCodec.encode_member(&suspected, &mut bytes).expect("a vector has room");
        assert_eq!(bytes, [&on_the_wire(5)[..], &[0, 6, 1]].concat());
    }

    #[test]
    fn updates_are_read_one_by_one() {
        let (src, dst) = (identity(1), identity(2));
        let header = Header { src, src_incarnation: 4, dst, message: Message::Gossip };
        let payload = |nodes: &[u64]| {
            let mut bytes = encoded(&header);
            bytes.put_u16(nodes.len() as u16);
            for node in nodes {
                let member = Member::down(identity(*node));
                SwimCodec.encode_member(&member, &mut bytes).expect("a vector has room");
            }
            bytes
        };
        let read = |payload: &[u8]| {
            let mut rest = payload;
            SwimCodec.decode_header(&mut rest)?;
            updates(&mut rest)
        };
        let dead = |node| Member::down(identity(node));
        assert_eq!(read(&payload(&[3, 4])), Ok(Some(vec![dead(3), dead(4)])));
        assert_eq!(suspected(&payload(&[3, 4])), [], "they are dead");
        let mut more = payload(&[3, 4]);
        let suspect = Member::new(identity(5), 6, State::Suspect);
        SwimCodec.encode_member(&suspect, &mut more).expect("a vector has room");
        let count_at = payload(&[]).len() - 2;
        more[count_at + 1] = 4;
        assert_eq!(suspected(&more), [(identity(5), 6)], "though a fourth one is missing");
        let cut = &payload(&[3])[..60];
        assert_eq!(read(cut), Err(DecodeError::Length));
    }

    proptest! {
        #[test]
        fn decoding_a_header_is_the_inverse_of_encoding(
            src in any::<Identity>(), src_incarnation: u16, dst in any::<Identity>(),
            message in any_message(),
        ) {
            let header = Header { src, src_incarnation, dst, message };
            let bytes = encoded(&header);
            prop_assert!(bytes.len() <= HEADER_MAX_BYTES);
            prop_assert_eq!(SwimCodec.decode_header(&bytes[..]), Ok(header));
        }

        #[test]
        fn decoding_an_update_is_the_inverse_of_encoding(
            id in any::<Identity>().prop_filter("has an address", Identity::is_reachable),
            incarnation: u16, state in 0..3_usize,
        ) {
            let state = [State::Alive, State::Suspect, State::Down][state];
            let member = Member::new(id, incarnation, state);
            let mut bytes = Vec::new();
            SwimCodec.encode_member(&member, &mut bytes).expect("a vector has room");
            prop_assert_eq!(SwimCodec.decode_member(&bytes[..]), Ok(member));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = SwimCodec.decode_header(&bytes[..]);
            let _ = SwimCodec.decode_member(&bytes[..]);
        }
    }
}
