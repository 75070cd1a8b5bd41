use std::collections::VecDeque;

/// The copies of the latest multicast datagrams, and of the latest datagrams to unknown nodes and
/// addresses. An attacker sees all of them.
#[derive(Debug, Default)]
pub struct Eavesdropper {
    memory: usize,
    multicasts: VecDeque<Vec<u8>>,
    strays: VecDeque<Vec<u8>>,
}

impl Eavesdropper {
    /// Sets the maximum number of datagrams of each kind to keep. Default: 0.
    pub fn set_memory(&mut self, count: usize) {
        self.memory = count;
    }

    /// Returns the latest multicast datagrams, oldest first.
    pub fn multicasts(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.multicasts.iter()
    }

    /// Removes and returns the latest datagrams to unknown nodes and addresses, oldest first.
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
