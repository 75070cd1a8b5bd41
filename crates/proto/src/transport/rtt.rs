use core::time::Duration;

/// Smoothed round-trip time and its mean deviation, as in TCP (RFC 6298).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RttEstimator {
    smoothed: Option<Duration>,
    deviation: Duration,
}

/// Inverse weight of a sample in the smoothed round-trip time.
const SAMPLE_PART: u32 = 8;
/// Inverse weight of a sample in the mean deviation.
const DEVIATION_PART: u32 = 4;

impl RttEstimator {
    pub(crate) fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    pub(crate) fn deviation(&self) -> Duration {
        self.deviation
    }

    pub(crate) fn on_sample(&mut self, sample: Duration) {
        let Some(smoothed) = self.smoothed else {
            (self.smoothed, self.deviation) = (Some(sample), sample / 2);
            return;
        };
        let deviation = sample.abs_diff(smoothed);
        self.deviation = (self.deviation * (DEVIATION_PART - 1) + deviation) / DEVIATION_PART;
        self.smoothed = Some((smoothed * (SAMPLE_PART - 1) + sample) / SAMPLE_PART);
    }
}
