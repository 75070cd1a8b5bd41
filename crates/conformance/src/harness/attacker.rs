//! An attacker on the network that is not a member. It receives multicast, and sends datagrams with
//! valid checksums from its own address.
//!
//! Its datagrams must not stop a node or fill its memory. Recognized forgeries have no effect.

use carom_proto::wire::{self, HEADER_BYTES, Header};
use carom_proto::{Endpoint, NodeId, Rng};
use carom_sim::{HostIx, Machine, World};

use super::gossip_forgery;
use crate::step::Forgery;

/// A function that crafts a datagram from an overheard one, or returns `None` if it cannot.
pub(crate) type Craft<'a> = dyn Fn(&mut Rng, &[u8]) -> Option<Vec<u8>> + 'a;

#[derive(Debug)]
pub(crate) struct Attacker {
    rng: Rng,
}

impl Attacker {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed ^ 0xa77a_c4e2) }
    }

    /// Returns the attacker's address, which belongs to no host of any scenario.
    pub(crate) fn endpoint() -> Endpoint {
        HostIx(0xff_0000).endpoint()
    }

    pub(crate) fn strike<M: Machine>(
        &mut self,
        world: &mut World<M>,
        host: HostIx,
        (count, forgery): (u32, Forgery),
        craft: &Craft<'_>,
    ) {
        let overheard: Vec<Vec<u8>> = world.eavesdropper().multicasts().cloned().collect();
        if overheard.is_empty() || world.is_paused(host) {
            return;
        }
        let Some(to) = world.node_id(host) else { return };
        for _ in 0..count {
            let heard = &overheard[self.rng.below(overheard.len())];
            let Some(datagram) = self.make(forgery, heard, to, craft) else { continue };
            let source = Self::endpoint();
            world.with(host, |machine, now| machine.handle_datagram(now, source, &datagram));
            // The attacker's address is genuine, so it can answer challenges that are sent there.
            for sent in world.eavesdropper().take_strays() {
                let Some(answer) = path_response(&datagram, &sent) else { continue };
                world.with(host, |machine, now| {
                    machine.handle_datagram(now, source, &answer);
                    machine.handle_datagram(now, source, &datagram);
                });
            }
        }
    }

    fn make(
        &mut self,
        forgery: Forgery,
        heard: &[u8],
        to: NodeId,
        craft: &Craft<'_>,
    ) -> Option<Vec<u8>> {
        match forgery {
            Forgery::Replay => Some(heard.to_vec()),
            Forgery::Mutation => Some(self.mutated(heard.to_vec())),
            Forgery::Garbage => {
                let mut datagram = heard.to_vec();
                datagram.truncate(HEADER_BYTES);
                let length = self.rng.below(300);
                datagram.extend((0..length).map(|_| self.rng.next_u64() as u8));
                datagram[KIND_OFFSET] = self.rng.below(20) as u8;
                Some(sealed(datagram))
            }
            Forgery::Crafted => craft(&mut self.rng, heard),
            Forgery::Gossip => gossip_forgery::forged(&mut self.rng, heard, to),
        }
    }

    fn mutated(&mut self, mut datagram: Vec<u8>) -> Vec<u8> {
        let rng = &mut self.rng;
        for _ in 0..1 + rng.below(3) {
            let at = BEHIND_CHECKSUM + rng.below(datagram.len() - BEHIND_CHECKSUM);
            match rng.below(5) {
                0 => datagram[at] ^= 1 << rng.below(8),
                1 => datagram[at] = rng.next_u64() as u8,
                2 => datagram[at] = [0, 0xff][rng.below(2)],
                3 => datagram[KIND_OFFSET] = rng.below(20) as u8,
                _ => datagram.truncate(at.max(HEADER_BYTES)),
            }
        }
        sealed(datagram)
    }
}

fn path_response(forged: &[u8], sent: &[u8]) -> Option<Vec<u8>> {
    let (name, _) = Header::decode(forged).ok()?;
    gossip_forgery::path_response(&name, gossip_forgery::NOWHERE, sent)
}

fn sealed(mut datagram: Vec<u8>) -> Vec<u8> {
    wire::seal(&mut datagram, 0);
    datagram
}

const KIND_OFFSET: usize = 4;
const BEHIND_CHECKSUM: usize = 12;
/// Number of the most recent datagrams of each kind that the attacker remembers.
pub(crate) const MEMORY: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::wire::Protocol;
    use carom_proto::{GroupId, Incarnation, Origin};

    #[test]
    fn forged_datagrams_are_whole_and_mutations_differ() {
        let mut attacker = Attacker::new(1);
        let origin = Origin { node: NodeId(2), incarnation: Incarnation(3) };
        let heard = Header::new(Protocol::Lateral, 1, GroupId(1), origin).datagram(&[7; 60]);
        let mut make = |forgery| {
            let craft = |_: &mut Rng, heard: &[u8]| Some(heard[1..].to_vec());
            let made = attacker.make(forgery, &heard, NodeId(4), &craft);
            made.expect("a forged datagram")
        };
        assert_eq!(make(Forgery::Replay), heard);
        assert_eq!(make(Forgery::Crafted), heard[1..]);
        for _ in 0..200 {
            assert!(Header::decode(&make(Forgery::Garbage)).is_ok());
        }
        let differ = (0..200).filter(|_| make(Forgery::Mutation) != heard).count();
        assert!(differ > 190, "{differ}");
    }
}
