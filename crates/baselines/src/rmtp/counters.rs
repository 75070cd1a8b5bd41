//! The engine's counters, in addition to those of every head of a domain.

/// Counters of an RMTP engine since it was created. The unit is packets unless the name says
/// otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages of this node that were multicast.
    pub data_sent: u64,
    /// Acknowledgments sent.
    pub acks_sent: u64,
    /// Acknowledgments received.
    pub acks_received: u64,
    /// Acknowledgments that were due while no parent was in the view.
    pub nobody_to_ask: u64,
    /// Beacons sent.
    pub beacons_sent: u64,
    /// Members that this node stopped waiting for.
    pub slow: u64,
    /// Messages of this node that were refused because the window was full.
    pub held_back: u64,
    /// Datagrams of groups that this node has not joined, or with this node's own id.
    pub foreign: u64,
    /// Datagrams that could not be decoded, or that acknowledge what this node never sent.
    pub malformed: u64,
}

impl Counters {
    /// Returns all counters by name.
    pub fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("data_sent", self.data_sent),
            ("acks_sent", self.acks_sent),
            ("acks_received", self.acks_received),
            ("nobody_to_ask", self.nobody_to_ask),
            ("beacons_sent", self.beacons_sent),
            ("slow", self.slow),
            ("held_back", self.held_back),
            ("foreign", self.foreign),
            ("malformed", self.malformed),
        ]
    }
}
