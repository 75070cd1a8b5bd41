//! What an eavesdropper on the network has heard last.

use std::collections::VecDeque;

/// The last datagrams that were multicast, for whoever listens to all of them.
#[derive(Debug, Default)]
pub(crate) struct Overheard {
    pub(crate) count: usize,
    pub(crate) datagrams: VecDeque<Vec<u8>>,
}

impl Overheard {
    pub(crate) fn note(&mut self, datagram: &[u8]) {
        self.datagrams.push_back(datagram.to_vec());
        while self.datagrams.len() > self.count {
            self.datagrams.pop_front();
        }
    }
}
