//! Packets that an attacker forges from overheard packets of a ring. They make claims in the names
//! of members and of strangers.

use std::collections::BTreeSet;

use carom_proto::ring::{Epoch, ListChange, ListChangeKind, Process, Timestamp};
use carom_proto::rmp::packet::{DataPacket, Nack, NewList, Packet, Position};
use carom_proto::rmp::{Round, What};
use carom_proto::wire::{Header, Protocol};
use carom_proto::{Incarnation, NodeId, Origin, Rng};

/// Forges a packet that would change the ring, or cause answers, if it were accepted.
///
/// Join requests of strangers and an operator's command to continue without a quorum are not
/// forged, because without keys they cannot be distinguished from genuine ones. Only packets of the
/// nodes in `known` are used.
pub(super) fn forged(rng: &mut Rng, known: &BTreeSet<NodeId>, datagram: &[u8]) -> Option<Vec<u8>> {
    let (header, body) = Header::decode(datagram).ok()?;
    if header.protocol != Protocol::Ordered || !known.contains(&header.sender) {
        return None;
    }
    let packet = match Packet::decode(&header, body).ok()? {
        Packet::Ack { epoch, round } | Packet::NewList(NewList::Change { epoch, round }) => {
            of_round(rng, epoch, &round)
        }
        Packet::Data(data) => {
            let seqno = data.seqno.plus([1, 2, 300, 1 << 20, 1 << 31][rng.below(5)]);
            Packet::Data(DataPacket { seqno, ..data })
        }
        _ => return None,
    };
    let stranger = Origin { node: NodeId(rng.next_u64()), incarnation: Incarnation(7) };
    let origin = if rng.chance(0.25) { stranger } else { header.origin() };
    let mut datagram = Vec::new();
    packet.encode(&mut datagram, header.group, origin, header.view);
    Some(datagram)
}

fn of_round(rng: &mut Rng, epoch: Epoch, round: &Round) -> Packet {
    let Round { at, site, next, .. } = *round;
    let ballot = Epoch { version: [epoch.version + 1, u32::MAX][rng.below(2)], creator: site };
    match rng.below(8) {
        // An order other than that of the next token site, or an order far ahead.
        0 => {
            let at = at.plus([0, 1, 2, 1000, 1 << 40][rng.below(5)]);
            let other = [site, next][rng.below(2)];
            let round = Round { at, site: other, next: site, what: What::Order(Vec::new()) };
            Packet::Ack { epoch, round }
        }
        1 => leaves(epoch, site),
        2 => Packet::Confirm { epoch, at: at.plus(rng.below(3) as u64) },
        3 => {
            let (position, refuted, released) = (far(at), Vec::new(), Vec::new());
            Packet::RecoveryStart { epoch, ballot, position, refuted, released }
        }
        4 => Packet::RecoveryAbort { ballot: epoch, seen: ballot },
        5 => {
            let accepted = Vec::new();
            Packet::RecoveryVote { epoch, ballot, position: far(at), accepted }
        }
        6 => Packet::RecoveryAckNewList { ballot },
        _ => {
            let (from, to) = (Timestamp(0), at.plus(1 << 40));
            Packet::Nack(Nack { epoch, asked: None, from, to, runs: Vec::new() })
        }
    }
}

fn leaves(epoch: Epoch, process: Process) -> Packet {
    let change = ListChange { process, request: u32::MAX / 2, kind: ListChangeKind::Leave };
    Packet::ListChangeRequest { epoch: Some(epoch), change }
}

fn far(at: Timestamp) -> Position {
    Position { next: at.plus(1 << 40), is_whole: true, received: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::GroupId;

    #[test]
    fn rounds_and_data_that_were_heard_are_forged() {
        let site = Process { node: NodeId(2), life: 1 };
        let (epoch, what) = (Epoch::created_by(site), What::Order(Vec::new()));
        let round = Round { at: Timestamp(9), site, next: site, what };
        let mut heard = Vec::new();
        Packet::Ack { epoch, round }.encode(&mut heard, GroupId(1), NodeId(2), 1);
        let mut rng = Rng::new(1);
        let (mut strangers, mut kinds) = (0, BTreeSet::new());
        let known = BTreeSet::from([NodeId(2)]);
        for _ in 0..200 {
            let forged = forged(&mut rng, &known, &heard).expect("it is a round");
            let (header, body) = Header::decode(&forged).expect("the header is whole");
            assert!(Packet::decode(&header, body).is_ok(), "kind {}", header.kind);
            strangers += u32::from(header.sender != NodeId(2));
            kinds.insert(header.kind);
        }
        assert!((20..90).contains(&strangers), "{strangers}");
        assert_eq!(kinds.len(), 8, "{kinds:?}");
        assert_eq!(forged(&mut rng, &known, &heard[..20]), None);
        assert_eq!(forged(&mut rng, &BTreeSet::new(), &heard), None, "it is not known");
    }
}
