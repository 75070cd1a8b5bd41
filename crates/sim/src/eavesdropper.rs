//! The datagrams that an eavesdropper on the network has heard last.

use std::collections::VecDeque;

/// The last datagrams that were multicast, and those sent to addresses of no host. An attacker sees
/// all of them.
#[derive(Debug, Default)]
pub struct Eavesdropper {
    memory: usize,
    multicasts: VecDeque<Vec<u8>>,
    strays: VecDeque<Vec<u8>>,
}

impl Eavesdropper {
    /// Keeps copies of the last `count` datagrams of each kind from now on. Default: 0.
    pub fn set_memory(&mut self, count: usize) {
        self.memory = count;
    }

    /// Returns the last datagrams that were multicast, oldest first.
    pub fn multicasts(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.multicasts.iter()
    }

    /// Takes the datagrams to addresses of no host since the last call, oldest first.
    pub fn take_strays(&mut self) -> Vec<Vec<u8>> {
        self.strays.drain(..).collect()
    }

    pub(crate) fn add_multicast(&mut self, datagram: &[u8]) {
        keep_last(&mut self.multicasts, self.memory, datagram);
    }

    pub(crate) fn add_stray(&mut self, datagram: &[u8]) {
        keep_last(&mut self.strays, self.memory, datagram);
    }
}

fn keep_last(kept: &mut VecDeque<Vec<u8>>, count: usize, datagram: &[u8]) {
    if count > 0 {
        kept.push_back(datagram.to_vec());
    }
    if kept.len() > count {
        kept.pop_front();
    }
}
