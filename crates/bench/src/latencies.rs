use std::fmt;

use hdrhistogram::Histogram;

/// A histogram of times, from 1 ns to 1 h with three significant digits. Longer times count as 1 h.
#[derive(Clone)]
pub struct Latencies(Histogram<u64>);

/// The quantiles of a [`Latencies`], in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[cfg_attr(feature = "lab", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "lab", serde(deny_unknown_fields))]
pub struct Quantiles {
    /// Number of times.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are valid"))
    }
}

impl Latencies {
    /// Adds a time in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.record_many(ns, 1);
    }

    /// Adds a time in nanoseconds that occurred `count` times, such as a bucket of another
    /// histogram.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        self.0.saturating_record_n(ns, count);
    }

    /// Adds all times of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    /// Returns the number of times.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantiles. All are 0 if there are no times.
    pub fn quantiles(&self) -> Quantiles {
        if self.0.is_empty() {
            return Quantiles::default();
        }
        let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|q| self.0.value_at_quantile(q));
        let (count, mean, max) = (self.0.len(), self.0.mean(), self.0.max());
        Quantiles { count, mean, p50, p90, p99, p999, max }
    }

    /// Returns the buckets that are not empty: a time in nanoseconds, and the number of times.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0
            .iter_recorded()
            .map(|value| (value.value_iterated_to(), value.count_since_last_iteration()))
    }
}

impl fmt::Debug for Latencies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.quantiles().fmt(f)
    }
}

const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_times() {
        let mut latencies = Latencies::default();
        assert_eq!(latencies.quantiles(), Quantiles::default());
        (1..=1_000).for_each(|ms| latencies.record(ms * 1_000_000));
        let quantiles = latencies.quantiles();
        let is_near = |ns: u64, ms: u64| ns.abs_diff(ms * 1_000_000) <= ms * 1_000;
        assert!(is_near(quantiles.p50, 500) && is_near(quantiles.p90, 900), "{quantiles:?}");
        assert!(is_near(quantiles.p99, 990) && is_near(quantiles.p999, 999), "{quantiles:?}");
        assert!(is_near(quantiles.max, 1_000) && quantiles.count == 1_000, "{quantiles:?}");
    }

    #[test]
    fn buckets_give_the_same_histogram_again() {
        let mut latencies = Latencies::default();
        [0, 1, 77, 1_000_000, u64::MAX].iter().for_each(|ns| latencies.record(*ns));
        let mut copy = Latencies::default();
        latencies.buckets().for_each(|(ns, count)| copy.record_many(ns, count));
        assert_eq!(copy.quantiles(), latencies.quantiles());
        copy.merge(&latencies);
        assert_eq!(copy.count(), 10);
    }
}
