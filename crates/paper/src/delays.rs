use std::time::Duration;

/// The delays, in nanoseconds, in ascending order.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Delays(Vec<u64>);

impl Delays {
    pub(crate) fn new(delays: impl Iterator<Item = Duration>) -> Self {
        let mut nanos: Vec<u64> = delays.map(|delay| delay.as_nanos() as u64).collect();
        nanos.sort_unstable();
        Self(nanos)
    }

    /// Returns the delays of both.
    pub(crate) fn with(&self, others: &Self) -> Self {
        let mut nanos: Vec<u64> = self.0.iter().chain(&others.0).copied().collect();
        nanos.sort_unstable();
        Self(nanos)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the mean in milliseconds, or NaN if there are no delays.
    pub(crate) fn mean_ms(&self) -> f64 {
        self.0.iter().map(|nanos| *nanos as f64).sum::<f64>() / self.0.len() as f64 / 1e6
    }

    pub(crate) fn quantile_ms(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let place = ((self.0.len() as f64 * share).ceil() as usize).saturating_sub(1).min(last);
        self.0.get(place).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
    }

    /// Returns a histogram: starts of bars in milliseconds, and shares of `total` in percent.
    pub(crate) fn bars(&self, bar_ms: f64, total: u64) -> impl Iterator<Item = (f64, f64)> {
        let bars = (self.quantile_ms(1.0) / bar_ms).ceil().max(0.0) as usize;
        (0..bars).map(move |bar| {
            let (from, to) = (bar as f64 * bar_ms, (bar + 1) as f64 * bar_ms);
            let count = self.up_to_ms(to) - self.up_to_ms(from);
            (from, 100.0 * count as f64 / total as f64)
        })
    }

    pub(crate) fn up_to_ms(&self, ms: f64) -> usize {
        self.0.partition_point(|nanos| *nanos as f64 <= ms * 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_delays_that_were_measured() {
        let delays = Delays::new([4, 1, 3, 2].into_iter().map(Duration::from_millis));
        assert!((delays.mean_ms() - 2.5).abs() < 1e-9);
        assert_eq!(
            [0.0, 0.25, 0.5, 0.99, 1.0].map(|share| delays.quantile_ms(share)),
            [1.0, 1.0, 2.0, 4.0, 4.0]
        );
        assert_eq!([0.5, 1.0, 3.9, 9.0].map(|ms| delays.up_to_ms(ms)), [0, 1, 3, 4]);
        assert!(
            Delays::default().mean_ms().is_nan() && Delays::default().quantile_ms(0.5).is_nan()
        );
    }
}
