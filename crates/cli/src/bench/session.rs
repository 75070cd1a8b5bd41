use std::collections::HashSet;

use carom_bench::{Header, Latencies};

use super::control::{Begin, Report};

/// The deliveries of one run at a receiver.
pub(super) struct Session {
    begin: Begin,
    has_clock: bool,
    seen: HashSet<u32>,
    duplicates: u64,
    corrupted: u64,
    latencies: Latencies,
    /// Times of the first and the last delivery.
    span: Option<(u64, u64)>,
}

impl Session {
    pub(super) fn new(begin: Begin, clock: &str) -> Self {
        let has_clock = !clock.is_empty() && begin.clock == clock;
        let (seen, latencies) = (HashSet::new(), Latencies::default());
        Self { begin, has_clock, seen, duplicates: 0, corrupted: 0, latencies, span: None }
    }

    pub(super) fn magic(&self) -> &str {
        &self.begin.magic
    }

    pub(super) fn delivered(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Counts a message. Returns `true` if it must be echoed.
    pub(super) fn add(&mut self, header: &Header, message: &[u8], at_ns: u64) -> bool {
        if header.magic.to_string() != self.begin.magic {
            return false;
        }
        self.corrupted += u64::from(!header.is_intact(message));
        if !self.seen.insert(header.number) {
            self.duplicates += 1;
            return false;
        }
        let (first, _) = *self.span.get_or_insert((at_ns, at_ns));
        self.span = Some((first, at_ns));
        if self.has_clock {
            self.latencies.record(at_ns.saturating_sub(header.sent_ns));
        }
        !self.has_clock && header.number.is_multiple_of(self.begin.echo_every.max(1))
    }

    pub(super) fn report(&self) -> Report {
        Report {
            magic: self.begin.magic.clone(),
            delivered: self.delivered(),
            duplicates: self.duplicates,
            corrupted: self.corrupted,
            span_ns: self.span.map_or(0, |(first, last)| last - first),
            has_clock: self.has_clock,
            latency: self.latencies.buckets().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use carom_bench::{HEADER_BYTES, Magic};

    use super::*;

    fn session(clock: &str) -> (Session, [u8; HEADER_BYTES], Header) {
        let magic = Magic([1; 8]);
        let (text, own) = (magic.to_string(), "a".to_owned());
        let session = Session::new(Begin { magic: text, clock: own, echo_every: 2 }, clock);
        let header = Header { magic, sender: 0, number: 4, sent_ns: 1_000 };
        let mut message = [0; HEADER_BYTES];
        header.write(&mut message);
        (session, message, header)
    }

    #[test]
    fn latency_needs_the_clock_of_the_sender() {
        let (mut same, message, header) = session("a");
        assert!(!same.add(&header, &message, 3_000), "no echo is needed");
        assert_eq!(same.report().latency.len(), 1);
        let (mut other, message, header) = session("b");
        assert!(other.add(&header, &message, 3_000));
        assert!(!other.add(&Header { number: 5, ..header }, &message, 3_500));
        let report = other.report();
        assert_eq!((report.delivered, report.span_ns, report.latency.len()), (2, 500, 0));
    }

    #[test]
    fn duplicates_and_messages_of_other_runs_are_not_delivered() {
        let (mut session, message, header) = session("b");
        assert!(session.add(&header, &message, 1));
        assert!(!session.add(&header, &message, 2));
        assert!(!session.add(&Header { magic: Magic([2; 8]), ..header }, &message, 3));
        let report = session.report();
        assert_eq!((report.delivered, report.duplicates, report.span_ns), (1, 1, 0));
    }
}
