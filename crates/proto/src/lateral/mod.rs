//! Lateral error correction (stand-in while the real engine is written).
#![allow(missing_docs, unused)]
use crate::*;
use bytes::Bytes;
#[derive(Clone, Debug, Default)]
pub struct Config {}
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    pub data_sent: u64,
    pub data_received: u64,
    pub repairs_sent: u64,
    pub packets_binned: u64,
    pub xors: u64,
    pub recovered: u64,
    pub retransmitted: u64,
    pub duplicates: u64,
    pub lost: u64,
}
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
