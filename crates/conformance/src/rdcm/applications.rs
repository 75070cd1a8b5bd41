//! The applications of a scenario, which publish as fast as their engines accept messages.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use carom_proto::rdcm::{Config, Rdcm};
use carom_proto::{GroupId, SendError, SendOptions};
use carom_sim::{HostIx, Member};

use super::history::History;
use crate::harness::Harness;

#[derive(Debug)]
pub(super) struct Applications {
    group: GroupId,
    message_bytes: usize,
    packet_bytes: usize,
    waiting: BTreeMap<HostIx, VecDeque<(u64, Bytes)>>,
}

impl Applications {
    pub(super) fn new(group: GroupId, config: &Config) -> Self {
        let (message_bytes, packet_bytes) = (config.message_bytes, config.fragment_bytes());
        Self { group, message_bytes, packet_bytes, waiting: BTreeMap::new() }
    }

    pub(super) fn start(&mut self, host: HostIx) {
        self.waiting.insert(host, VecDeque::new());
    }

    pub(super) fn end(&mut self, host: HostIx) {
        self.waiting.remove(&host);
    }

    pub(super) fn publish(
        &mut self,
        harness: &mut Harness<Rdcm, History>,
        host: HostIx,
        bytes: usize,
    ) {
        let message = harness.record.message(bytes.min(self.message_bytes));
        if let Some(waiting) = self.waiting.get_mut(&host) {
            waiting.push_back(message);
        }
        self.feed(harness, host);
        harness.take_events();
    }

    pub(super) fn feed_all(&mut self, harness: &mut Harness<Rdcm, History>) {
        let busy = self.waiting.iter().filter(|(_, waiting)| !waiting.is_empty());
        let busy: Vec<HostIx> = busy.map(|(host, _)| *host).collect();
        busy.into_iter().for_each(|host| self.feed(harness, host));
    }

    fn feed(&mut self, harness: &mut Harness<Rdcm, History>, host: HostIx) {
        let group = self.group;
        if !harness.can_use(host, group) {
            return;
        }
        let node = harness.id(host);
        let Some(waiting) = self.waiting.get_mut(&host) else { return };
        while let Some((number, payload)) = waiting.front().cloned() {
            let bytes = payload.clone();
            let options = SendOptions::default();
            let send = |member: &mut Member<Rdcm>, now| member.send(now, group, bytes, options);
            match harness.with(host, send).expect("it is alive") {
                Ok(seqno) => {
                    let packets = payload.len().div_ceil(self.packet_bytes).max(1) as u64;
                    let now = harness.world.now();
                    if harness.record.sent(now, node, number, seqno, packets, payload) {
                        let member = harness.member(host).expect("it is alive");
                        let receivers = member.engine().receivers(group);
                        let receivers = receivers.into_iter().map(|it| it.0).collect();
                        harness.record.begun(node, receivers);
                    }
                }
                Err(SendError::QueueFull { .. } | SendError::HeldBack { .. }) => return,
                // Another member is the sender, so the application discards its messages.
                Err(SendError::HasSender { .. }) => return waiting.clear(),
                Err(error) => {
                    harness.record.refused(node, &error);
                    return waiting.clear();
                }
            }
            waiting.pop_front();
        }
    }

    pub(super) fn are_done(&self) -> bool {
        self.waiting.values().all(VecDeque::is_empty)
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting.values().flatten().map(|(_, payload)| payload.len()).sum()
    }
}
