//! Gossip that an attacker forges about a node that it has heard. It is encoded byte by byte,
//! because the membership's encoders are not public.

use carom_proto::wire::{self, Header, Protocol};
use carom_proto::{GroupId, GroupSettings, NodeId, Profile, RateOfFire, Rng};

/// Forges a claim for the node `to` about the sender of `heard`, or about nodes that do not exist:
/// that it is dead, alive elsewhere, gone, has left the group, or has deviating settings.
pub(super) fn forged(rng: &mut Rng, heard: &[u8], to: NodeId) -> Option<Vec<u8>> {
    let (header, _) = Header::decode(heard).ok()?;
    let about = header.sender;
    let from = [NodeId(rng.next_u64()), about][rng.below(2)];
    let bump = [0, 1, u32::MAX][rng.below(3)];
    let (kind, body) = match rng.below(6) {
        0 => (SWIM, gossip(from, to, &[(identity(about, bump), DEAD)])),
        1 => (SWIM, gossip(from, to, &[(identity(about, bump), ALIVE)])),
        2 => (GOODBYE, about.0.to_be_bytes().to_vec()),
        3 => (CHANGES, changes(rng, about, header.group, None)),
        4 => {
            let rate = RateOfFire::new(9, 1 + rng.below(8) as u8);
            let other = GroupSettings::new("another", Profile::TimeCritical(rate));
            (CHANGES, changes(rng, about, header.group, Some(other)))
        }
        _ => {
            let joiners: Vec<_> =
                (0..30).map(|_| (identity(NodeId(rng.next_u64()), 0), ALIVE)).collect();
            (SWIM, gossip(from, to, &joiners))
        }
    };
    let mut datagram = Vec::new();
    let (protocol, group) = (Protocol::Membership, GroupId::NONE);
    Header { protocol, kind, flags: 0, group, sender: from, view: 0, ..header }
        .begin(&mut datagram);
    datagram.extend(body);
    wire::seal(&mut datagram, 0);
    Some(datagram)
}

/// Returns the response to `sent` in the name of the sender of `forged`, if `sent` challenges the
/// address that it was sent to.
pub(super) fn path_response(forged: &[u8], sent: &[u8]) -> Option<Vec<u8>> {
    let (name, _) = Header::decode(forged).ok()?;
    let (header, body) = Header::decode(sent).ok()?;
    let cookie = body.get(..8).filter(|cookie| **cookie != [0; 8])?;
    if header.protocol != Protocol::Membership || ![HELLO, PATH_CHALLENGE].contains(&header.kind) {
        return None;
    }
    let Header { sender, incarnation, .. } = name;
    let mut datagram = Vec::new();
    Header { kind: PATH_RESPONSE, flags: 0, sender, incarnation, ..header }.begin(&mut datagram);
    datagram.extend([cookie, &[0; 8], &identity(sender, 0)].concat());
    wire::seal(&mut datagram, 0);
    Some(datagram)
}

/// Encodes a node under one of its identities, at the address that the datagram comes from.
fn identity(node: NodeId, bump: u32) -> Vec<u8> {
    let (family, unspecified) = (4, [0; 4]);
    let [high, low] = PORT.to_be_bytes();
    [&node.0.to_be_bytes()[..], &bump.to_be_bytes(), &[high, low, family], &unspecified].concat()
}

/// Encodes a SWIM message with these updates of identity and state.
fn gossip(from: NodeId, to: NodeId, updates: &[(Vec<u8>, u8)]) -> Vec<u8> {
    let mut body = [&identity(from, 0)[..], &[0, 0], &identity(to, 0), &[BROADCAST]].concat();
    body.extend((updates.len() as u16).to_be_bytes());
    for (id, state) in updates {
        body.extend([&id[..], &[0, 0, *state]].concat());
    }
    body
}

/// Encodes one row of the subscriptions of `owner`: the group with these settings, or its end.
fn changes(rng: &mut Rng, owner: NodeId, group: GroupId, row: Option<GroupSettings>) -> Vec<u8> {
    let version: u32 = [2, 3, 1000][rng.below(3)];
    let mut body = [&owner.0.to_be_bytes()[..], &(version - 1).to_be_bytes()].concat();
    body.extend([version.to_be_bytes(), [0; 4], version.to_be_bytes()].concat());
    body.extend(group.0.to_be_bytes());
    body.push(u8::from(row.is_some()));
    if let Some(settings) = row {
        settings.encode(&mut body);
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
const ALIVE: u8 = 0;
const DEAD: u8 = 2;
/// A port on which no node listens.
const PORT: u16 = 9;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use carom_proto::Incarnation;

    #[test]
    fn forged_gossip_is_whole_and_of_all_kinds() {
        let (protocol, group, sender) = (Protocol::Lateral, GroupId(1), NodeId(2));
        let incarnation = Incarnation(3);
        let header = Header { protocol, kind: 1, flags: 0, group, sender, incarnation, view: 0 };
        let mut heard = Vec::new();
        header.begin(&mut heard);
        wire::seal(&mut heard, 0);
        let mut rng = Rng::new(1);
        let mut kinds = BTreeSet::new();
        for _ in 0..100 {
            let forged = forged(&mut rng, &heard, NodeId(5)).expect("it was heard");
            let (header, _) = Header::decode(&forged).expect("it is whole");
            assert_eq!((header.protocol, header.group), (Protocol::Membership, GroupId::NONE));
            kinds.insert(header.kind);
        }
        assert_eq!(kinds, BTreeSet::from([SWIM, CHANGES, GOODBYE]));
        assert_eq!(forged(&mut rng, b"short", NodeId(5)), None);
    }
}
