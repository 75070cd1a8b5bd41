//! Lateral error correction (stand-in while the real engine is written).
#![allow(missing_docs, unused)]
pub mod block; pub mod packet; mod config; mod counters; mod regions; mod bins; mod groups;
pub use config::*; pub use counters::Counters;
use crate::*;
use bytes::Bytes;
pub struct Lateral {}
impl Lateral {
    pub fn new(_: NodeId, _: Config, _: u64) -> Self {
        Self {}
    }
    pub fn payload_limit(&self, _: Profile) -> usize {
        1200
    }
    pub fn counters(&self) -> Counters {
        Counters::default()
    }
}
impl Engine for Lateral {
    fn join(&mut self, now: Time, group: GroupId, s: GroupSettings) -> Result<(), JoinError> {
        Ok(())
    }
    fn leave(&mut self, now: Time, group: GroupId) {}
    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        o: SendOptions,
    ) -> Result<SeqNo, SendError> {
        Ok(SeqNo(1))
    }
    fn confirm(&mut self, now: Time, group: GroupId) {}
    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) {}
    fn handle_view(&mut self, now: Time, change: &ViewChange) {}
    fn handle_timeout(&mut self, now: Time) {}
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }
    fn poll_event(&mut self) -> Option<Event> {
        None
    }
    fn poll_timeout(&self) -> Option<Wakeup> {
        None
    }
    fn stats(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    fn check(&self) {}
}
