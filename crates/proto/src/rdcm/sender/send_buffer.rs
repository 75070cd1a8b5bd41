use alloc::collections::VecDeque;
use core::ops::Range;

use bytes::Bytes;

use super::super::config::Config;
use super::super::packet::Fragment;
use crate::GroupId;

#[derive(Debug)]
pub(super) struct SendBuffer {
    kept: VecDeque<Fragment>,
    pub(super) base: u64,
    pub(super) bytes: usize,
    pub(super) next: u64,
}

impl SendBuffer {
    pub(super) fn new(first: u64) -> Self {
        Self { kept: VecDeque::new(), base: first, bytes: 0, next: first }
    }

    pub(super) fn push(&mut self, config: &Config, payload: &Bytes) -> Option<u64> {
        let count = config.packets_of(payload.len());
        let bytes = payload.len() + count * size_of::<Fragment>();
        if self.bytes + bytes > config.send_bytes {
            return None;
        }
        let (first, size) = (self.end(), config.fragment_bytes());
        for place in 0..count {
            let bytes = payload.slice(place * size..payload.len().min((place + 1) * size));
            let (is_first, is_last) = (place == 0, place + 1 == count);
            self.kept.push_back(Fragment { is_first, is_last, bytes });
        }
        self.bytes += bytes;
        Some(first)
    }

    pub(super) fn end(&self) -> u64 {
        self.base + self.kept.len() as u64
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.next < self.end()
    }

    pub(super) fn next_message(&self) -> u64 {
        let unsent = (self.next - self.base) as usize;
        let begins = self.kept.iter().skip(unsent).position(|fragment| fragment.is_first);
        begins.map_or(self.end(), |place| self.next + place as u64)
    }

    pub(super) fn get(&self, number: u64) -> &Fragment {
        &self.kept[(number - self.base) as usize]
    }

    pub(super) fn sent_in(&self, ranges: &[Range<u64>]) -> impl Iterator<Item = (u64, Fragment)> {
        let sent = move |range: &Range<u64>| range.start.max(self.base)..range.end.min(self.next);
        let numbers = ranges.iter().flat_map(sent).take(MAX_REQUESTED);
        numbers.map(move |number| (number, self.get(number).clone()))
    }

    pub(super) fn take_next(&mut self) -> Option<Fragment> {
        let fragment = self.kept.get((self.next - self.base) as usize)?.clone();
        self.next += 1;
        Some(fragment)
    }

    pub(super) fn release(&mut self, edge: u64) {
        let edge = edge.min(self.next);
        while self.base < edge
            && let Some(fragment) = self.kept.pop_front()
        {
            self.bytes -= fragment.buffered_bytes();
            self.base += 1;
        }
    }

    pub(super) fn check(&self, config: &Config, group: GroupId) {
        let bytes: usize = self.kept.iter().map(Fragment::buffered_bytes).sum();
        assert_eq!(bytes, self.bytes, "{group}: the buffered bytes were miscounted");
        assert!(bytes <= config.send_bytes, "{group}: the send buffer exceeds its limit");
        assert!((self.base..=self.end()).contains(&self.next), "{group}: beyond its end");
    }
}

const MAX_REQUESTED: usize = 256;
