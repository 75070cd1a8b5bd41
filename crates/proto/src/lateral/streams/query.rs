use core::time::Duration;

use super::receive_window::ReceiveWindow;
use crate::SeqNo;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Query {
    /// Random number that the answer repeats.
    pub(crate) nonce: u64,
    /// End of the stream when the query began. The answer refutes claims up to this end that go
    /// beyond the answer.
    end: SeqNo,
    /// Number after the last packet that has arrived since the query, if any.
    pub(super) came_to: Option<SeqNo>,
    pub(super) is_second: bool,
    /// Number before which everything was settled when the query was first sent. If the answer is a
    /// lower number, numbers that were never sent have been settled.
    pub(super) settled: SeqNo,
}

/// Time from the first open to the second. The interval doubles four times.
const OPEN_INTERVAL: Duration = Duration::from_millis(10);
pub(super) const MAX_OPENS: u8 = 20;

pub(super) fn time_to_answer(opens: u8) -> Duration {
    OPEN_INTERVAL * (1 << opens.min(4))
}

impl Query {
    pub(super) fn new(nonce: u64, window: &ReceiveWindow) -> Self {
        let (end, settled) = (window.end(), window.settled_to());
        Self { nonce, end, came_to: None, is_second: false, settled }
    }

    pub(crate) fn is_refuted_by(&self, known: SeqNo) -> bool {
        self.end.is_beyond(known)
    }

    pub(crate) fn was_settled_beyond(&self, next: SeqNo) -> bool {
        self.settled.is_beyond(next)
    }

    /// Counts packets that have arrived since the query as sent.
    pub(crate) fn sent_to(&self, sent: SeqNo, known: SeqNo) -> SeqNo {
        match self.came_to {
            Some(to) if !self.was_settled_beyond(known) => to.later(sent),
            _ => sent,
        }
    }

    pub(super) fn record_arrival(&mut self, seqno: SeqNo) {
        let next = seqno.next();
        self.came_to = Some(self.came_to.map_or(next, |to| to.later(next)));
    }
}
