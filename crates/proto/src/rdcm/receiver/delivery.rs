use core::time::Duration;

use super::super::context::{Context, seqno};
use super::super::limits::MAX_MESSAGE_BYTES;
use super::reassembly::{Reassembly, Whole};
use super::repair_window::RepairWindow;
use crate::{Event, How, LossCause, Message, NodeId};

#[derive(Debug)]
pub(super) struct Delivery {
    sender: NodeId,
    pub(super) reassembly: Reassembly,
    /// First packet after a gap. The packets from this one up to the next message are lost.
    resumed_at: Option<u64>,
    pub(super) is_held: bool,
}

impl Delivery {
    pub(super) fn new(sender: NodeId) -> Self {
        Self { sender, reassembly: Reassembly::default(), resumed_at: None, is_held: false }
    }

    pub(super) fn resume(&mut self, first: u64) {
        self.reassembly = Reassembly::default();
        self.resumed_at = Some(first);
    }

    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, window: &mut RepairWindow) {
        while !self.is_held
            && let number = window.taken_to
            && let Some(packet) = window.take()
        {
            if packet.fragment.is_first
                && let Some(from) = self.resumed_at.take()
            {
                cx.lose(self.sender, from, number, LossCause::TooFarBehind);
            }
            if let Some(whole) = self.reassembly.push(number, packet, MAX_MESSAGE_BYTES) {
                self.hand_out(cx, whole);
            }
        }
    }

    fn hand_out(&self, cx: &mut Context<'_>, whole: Whole) {
        let Whole { first, payload, repaired_by } = whole;
        cx.counters.delivered += 1;
        cx.counters.bytes_delivered += payload.len() as u64;
        cx.events.push_back(Event::Message(Message {
            group: cx.group,
            sender: self.sender,
            seqno: seqno(first),
            payload,
            how: repaired_by.map_or(How::Direct, How::Retransmitted),
            age: None,
            missing_for: Duration::ZERO,
            place: None,
        }));
    }

    pub(super) fn undelivered(&self, window: &RepairWindow) -> u64 {
        self.reassembly.begun_at().or(self.resumed_at).unwrap_or(window.taken_to)
    }
}
