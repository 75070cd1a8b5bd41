use alloc::collections::{BTreeMap, VecDeque};

use super::protocol::frame::Frame;
use crate::Endpoint;
use crate::membership::link::{LinkCommand, LinkId};

#[derive(Debug, Default)]
pub(super) struct Outbox {
    opens: VecDeque<(LinkId, Endpoint)>,
    waiting: BTreeMap<LinkId, Vec<u8>>,
    closes: VecDeque<LinkId>,
    pub(super) frames_sent: u64,
    pub(super) bytes_sent: u64,
}

impl Outbox {
    pub(super) fn open(&mut self, link: LinkId, to: Endpoint) {
        self.opens.push_back((link, to));
    }

    pub(super) fn send(&mut self, link: LinkId, frame: &Frame) {
        let bytes = self.waiting.entry(link).or_default();
        let before = bytes.len();
        frame.encode(bytes);
        self.frames_sent += 1;
        self.bytes_sent += (bytes.len() - before) as u64;
    }

    pub(super) fn close(&mut self, link: LinkId) {
        self.closes.push_back(link);
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        self.waiting.remove(&link);
        self.closes.retain(|closing| *closing != link);
    }

    pub(super) fn poll(&mut self) -> Option<LinkCommand> {
        if let Some((link, to)) = self.opens.pop_front() {
            return Some(LinkCommand::Open { link, to });
        }
        if let Some((link, bytes)) = self.waiting.pop_first() {
            return Some(LinkCommand::Send { link, bytes });
        }
        self.closes.pop_front().map(|link| LinkCommand::Close { link })
    }
}
