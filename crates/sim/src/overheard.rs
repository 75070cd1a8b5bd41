//! The datagrams that an eavesdropper on the network has heard last.

use std::collections::VecDeque;

/// The last datagrams that were multicast, and those sent to addresses of no host. An attacker sees
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Overheard {
    pub(crate) count: usize,
    pub(crate) datagrams: VecDeque<Vec<u8>>,
    pub(crate) elsewhere: VecDeque<Vec<u8>>,
}

impl Overheard {
    pub(crate) fn note(&mut self, datagram: &[u8]) {
        keep_last(&mut self.datagrams, self.count, datagram);
    }

    pub(crate) fn note_elsewhere(&mut self, datagram: &[u8]) {
        keep_last(&mut self.elsewhere, self.count, datagram);
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
