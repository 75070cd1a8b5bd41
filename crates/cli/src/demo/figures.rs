use std::time::Duration;

use carom::{How, Message};
use hdrhistogram::Histogram;

#[derive(Default)]
pub(crate) struct Figures {
    /// Expected deliveries: each message counts once for each member that should receive it.
    pub(crate) expected: u64,
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
    /// Delivered messages whose content no node has sent.
    pub(crate) corrupted: u64,
    pub(crate) reported_lost: u64,
    /// Messages recovered by a repair, including those whose own packets arrived later.
    pub(crate) fec: u64,
    pub(crate) nak: u64,
    /// Age at delivery of recovered and retransmitted messages.
    pub(crate) recovery: Delays,
    pub(crate) delivery: Delays,
}

impl Figures {
    pub(crate) fn deliver(&mut self, message: &Message) {
        self.delivered += 1;
        match message.how {
            How::Direct => {}
            How::Recovered(_) => self.fec += 1,
            How::Retransmitted(_) => self.nak += 1,
        }
        if let Some(age) = message.age {
            self.delivery.record(age);
            if message.how != How::Direct {
                self.recovery.record(age);
            }
        }
    }

    pub(crate) fn outstanding(&self) -> u64 {
        self.expected.saturating_sub(self.delivered + self.reported_lost)
    }
}

pub(crate) struct Delays(Histogram<u64>);

impl Default for Delays {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, MOST_NANOS, DIGITS);
        Self(histogram.expect("the bounds are valid constants"))
    }
}

impl Delays {
    /// Adds a delay. Delays above one hour count as one hour.
    pub(crate) fn record(&mut self, delay: Duration) {
        let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        self.0.saturating_record(nanos.max(1));
    }

    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        millis(self.0.value_at_quantile(quantile))
    }

    pub(crate) fn max_ms(&self) -> f64 {
        millis(self.0.max())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.reset();
    }
}

fn millis(nanos: u64) -> f64 {
    (nanos as f64 / 1e3).round() / 1e3
}

const MOST_NANOS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use carom::{Bytes, GroupId, NodeId, SeqNo};

    fn message(how: How, age_ms: u64) -> Message {
        Message {
            group: GroupId(1),
            sender: NodeId(1),
            seqno: SeqNo(1),
            payload: Bytes::new(),
            how,
            age: Some(Duration::from_millis(age_ms)),
            missing_for: Duration::ZERO,
            place: None,
        }
    }

    #[test]
    fn recovery_is_the_age_of_what_did_not_come_directly() {
        let mut figures = Figures { expected: 5, ..Figures::default() };
        for age in [1, 1] {
            figures.deliver(&message(How::Direct, age));
        }
        figures.deliver(&message(How::Recovered(NodeId(2)), 10));
        figures.deliver(&message(How::Retransmitted(NodeId(2)), 50));
        assert_eq!((figures.delivered, figures.fec, figures.nak), (4, 1, 1));
        assert_eq!(figures.outstanding(), 1);
        assert!((figures.recovery.quantile_ms(0.5) - 10.0).abs() < 0.1);
        assert!((figures.recovery.max_ms() - 50.0).abs() < 0.1);
        assert!((figures.delivery.quantile_ms(0.5) - 1.0).abs() < 0.01);
    }

    #[test]
    fn no_delays_have_quantiles_of_zero() {
        let delays = Delays::default();
        assert!(delays.is_empty());
        assert_eq!((delays.quantile_ms(0.99), delays.max_ms()), (0.0, 0.0));
    }
}
