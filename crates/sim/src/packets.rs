//! Datagrams in flight, each stored once for all its receivers.

use std::sync::Arc;

use carom_proto::Class;

use crate::ids::{HostIx, PacketIx};
use crate::tree::{Goal, Tree};

/// The slots for datagrams. A slot and its memory are reused after its last holder has released it.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    slots: Vec<Packet>,
    free: Vec<PacketIx>,
}

#[derive(Debug)]
pub(crate) struct Packet {
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: HostIx,
    pub(crate) class: Class,
    pub(crate) goal: Goal,
    pub(crate) tree: Arc<Tree>,
    holders: u32,
}

impl Packets {
    pub(crate) fn add(
        &mut self,
        bytes: &[u8],
        source: HostIx,
        class: Class,
        goal: Goal,
        tree: Arc<Tree>,
    ) -> PacketIx {
        if let Some(number) = self.free.pop() {
            let slot = &mut self.slots[number as usize];
            slot.bytes.clear();
            slot.bytes.extend_from_slice(bytes);
            (slot.source, slot.class, slot.goal) = (source, class, goal);
            (slot.tree, slot.holders) = (tree, 1);
            return number;
        }
        self.slots.push(Packet { bytes: bytes.to_vec(), source, class, goal, tree, holders: 1 });
        (self.slots.len() - 1) as PacketIx
    }

    pub(crate) fn copy(&mut self, number: PacketIx, change: impl FnOnce(&mut Vec<u8>)) -> PacketIx {
        let Packet { bytes, source, class, goal, tree, .. } = self.get(number);
        let (mut bytes, tree) = (bytes.clone(), Arc::clone(tree));
        change(&mut bytes);
        let (source, class, goal) = (*source, *class, *goal);
        self.add(&bytes, source, class, goal, tree)
    }

    pub(crate) fn get(&self, number: PacketIx) -> &Packet {
        &self.slots[number as usize]
    }

    pub(crate) fn hold(&mut self, number: PacketIx) {
        self.slots[number as usize].holders += 1;
    }

    pub(crate) fn release(&mut self, number: PacketIx) {
        let slot = &mut self.slots[number as usize];
        assert!(slot.holders > 0, "a datagram is released more often than it is held");
        slot.holders -= 1;
        if slot.holders == 0 {
            self.free.push(number);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
