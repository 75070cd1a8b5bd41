//! Forged gossip. It is encoded byte by byte, because the membership's encoders are not public.

use carom_proto::codec::Field as _;
use carom_proto::wire::{Header, Protocol};
use carom_proto::{Endpoint, GroupId, GroupSettings, NodeId, Origin, Profile, RateOfFire, Rng};

/// Forges a claim to the node `to`: that the sender of `heard` is dead, has moved, has stopped, has
/// left the group or has other settings, or that nodes that do not exist are alive.
pub(super) fn forged(rng: &mut Rng, heard: &[u8], to: NodeId) -> Option<Vec<u8>> {
    let (Header { group, sender: about, incarnation, .. }, _) = Header::decode(heard).ok()?;
    let from = [NodeId(rng.next_u64()), about][rng.below(2)];
    let bump = [0, 1, u32::MAX][rng.below(3)];
    let nowhere = |node, bump| identity(node, bump, NOWHERE);
    let gossip = |updates: &[_]| swim(&nowhere(from, 0), &nowhere(to, 0), BROADCAST, updates);
    let version = |rng: &mut Rng| [2, 3, 1000][rng.below(3)];
    let (kind, body) = match rng.below(6) {
        0 => (SWIM, gossip(&[(nowhere(about, bump), DEAD)])),
        1 => (SWIM, gossip(&[(nowhere(about, bump), ALIVE)])),
        2 => (GOODBYE, about.0.to_be_bytes().to_vec()),
        3 => (CHANGES, changes(about, version(rng), group, None)),
        4 => {
            let rate = RateOfFire::new(9, 1 + rng.below(8) as u8);
            let other = GroupSettings::new("another", Profile::TimeCritical(rate));
            (CHANGES, changes(about, version(rng), group, Some(other)))
        }
        _ => {
            let joiner = |_| (nowhere(NodeId(rng.next_u64()), 0), ALIVE);
            let joiners: Vec<_> = (0..30).map(joiner).collect();
            (SWIM, gossip(&joiners))
        }
    };
    Some(packet(kind, 0, Origin { node: from, incarnation }, &body))
}

/// Returns the response to `sent` in the name of the sender of the header `name`, if `sent`
/// challenges the address `at`.
pub fn path_response(name: &Header, at: Endpoint, sent: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = Header::decode(sent).ok()?;
    let cookie = body.get(..8).filter(|cookie| **cookie != [0; 8])?;
    if header.protocol != Protocol::Membership || ![HELLO, PATH_CHALLENGE].contains(&header.kind) {
        return None;
    }
    let body = [cookie, &[0; 8], &identity(name.sender, 0, at)].concat();
    Some(packet(PATH_RESPONSE, 0, name.origin(), &body))
}

/// Encodes a membership packet.
pub fn packet(kind: u8, flags: u8, origin: Origin, body: &[u8]) -> Vec<u8> {
    let header = Header::new(Protocol::Membership, kind, GroupId::NONE, origin);
    Header { flags, ..header }.datagram(body)
}

/// Encodes a node under one of its identities.
pub fn identity(node: NodeId, bump: u32, at: Endpoint) -> Vec<u8> {
    let std::net::IpAddr::V4(ip) = at.0.ip() else { panic!("{at:?} is not an IPv4 address") };
    let (node, bump, port) = (node.0.to_be_bytes(), bump.to_be_bytes(), at.0.port().to_be_bytes());
    [&node[..], &bump, &port, &[4], &ip.octets()].concat()
}

/// Encodes a SWIM message of this kind between two identities, with updates of identity and state.
pub fn swim(from: &[u8], to: &[u8], kind: u8, updates: &[(Vec<u8>, u8)]) -> Vec<u8> {
    let mut body = [from, &[0, 0], to, &[kind]].concat();
    if kind != TURN_UNDEAD {
        body.extend((updates.len() as u16).to_be_bytes());
    }
    for (id, state) in updates {
        body.extend([&id[..], &[0, 0, *state]].concat());
    }
    body
}

/// Encodes one row of the subscriptions of `owner`. Without settings, the subscription ends.
pub fn changes(owner: NodeId, version: u32, group: GroupId, row: Option<GroupSettings>) -> Vec<u8> {
    let mut body = [&owner.0.to_be_bytes()[..], &(version - 1).to_be_bytes()].concat();
    body.extend([version.to_be_bytes(), [0; 4], version.to_be_bytes()].concat());
    body.extend(group.0.to_be_bytes());
    body.push(u8::from(row.is_some()));
    if let Some(settings) = row {
        settings.put(&mut body);
        body.extend(1_u64.to_be_bytes());
    }
    body
}

// Kinds of membership packets, the kind of the SWIM message, and the states of a node in it.
const SWIM: u8 = 1;
const HELLO: u8 = 2;
const CHANGES: u8 = 4;
const GOODBYE: u8 = 6;
const PATH_CHALLENGE: u8 = 8;
const PATH_RESPONSE: u8 = 9;
const BROADCAST: u8 = 9;
/// Notifies a node that it was declared dead. It has no updates.
const TURN_UNDEAD: u8 = 11;
const ALIVE: u8 = 0;
const DEAD: u8 = 2;
/// An address at which no node listens: the datagram's source address with another port.
pub(super) const NOWHERE: Endpoint =
    Endpoint(std::net::SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 9));

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use carom_proto::Incarnation;

    #[test]
    fn forged_gossip_is_whole_and_of_all_kinds() {
        let origin = Origin { node: NodeId(2), incarnation: Incarnation(3) };
        let heard = Header::new(Protocol::Lateral, 1, GroupId(1), origin).datagram(&[]);
        let mut rng = Rng::new(1);
        let mut kinds = BTreeSet::new();
        for _ in 0..100 {
            let forged = forged(&mut rng, &heard, NodeId(5)).expect("a forged datagram");
            let (header, _) = Header::decode(&forged).expect("a valid header");
            assert_eq!((header.protocol, header.group), (Protocol::Membership, GroupId::NONE));
            kinds.insert(header.kind);
        }
        assert_eq!(kinds, BTreeSet::from([SWIM, CHANGES, GOODBYE]));
        assert_eq!(forged(&mut rng, b"short", NodeId(5)), None);
    }
}
