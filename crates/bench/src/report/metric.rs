use crate::account::Account;

/// A measured value of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    LatencyP50,
    LatencyP90,
    LatencyP99,
    LatencyP999,
    LatencyMax,
    KeptP50,
    KeptP99,
    RecoveredP50,
    RecoveredP99,
    RecoveredP999,
    SpreadP50,
    SpreadP99,
    Silence,
    Cpu,
    CpuSender,
    CpuReceivers,
    Packets,
    GoodputSlowest,
    GoodputMean,
    Background,
}

impl Metric {
    pub(super) const ALL: [Self; 20] = [
        Self::LatencyP50,
        Self::LatencyP90,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::LatencyMax,
        Self::KeptP50,
        Self::KeptP99,
        Self::RecoveredP50,
        Self::RecoveredP99,
        Self::RecoveredP999,
        Self::SpreadP50,
        Self::SpreadP99,
        Self::Silence,
        Self::Cpu,
        Self::CpuSender,
        Self::CpuReceivers,
        Self::Packets,
        Self::GoodputSlowest,
        Self::GoodputMean,
        Self::Background,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LatencyP50 => "latency p50",
            Self::LatencyP90 => "latency p90",
            Self::LatencyP99 => "latency p99",
            Self::LatencyP999 => "latency p99.9",
            Self::LatencyMax => "latency max",
            Self::KeptP50 => "not lost p50",
            Self::KeptP99 => "not lost p99",
            Self::RecoveredP50 => "recovered p50",
            Self::RecoveredP99 => "recovered p99",
            Self::RecoveredP999 => "recovered p99.9",
            Self::SpreadP50 => "spread p50",
            Self::SpreadP99 => "spread p99",
            Self::Silence => "longest silence",
            Self::Cpu => "CPU per copy",
            Self::CpuSender => "CPU of the sender",
            Self::CpuReceivers => "CPU of a receiver",
            Self::Packets => "packets per copy",
            Self::GoodputSlowest => "goodput, slowest",
            Self::GoodputMean => "goodput, mean",
            Self::Background => "background transfer",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Packets => "",
            Self::CpuSender | Self::CpuReceivers => "%",
            Self::GoodputSlowest | Self::GoodputMean | Self::Background => "MB/s",
            _ => "µs",
        }
    }

    pub(super) fn is_better_if_higher(self) -> bool {
        matches!(self, Self::GoodputSlowest | Self::GoodputMean | Self::Background)
    }

    /// Returns the value in its unit, or `None` if the run has none.
    pub(super) fn value(self, account: &Account) -> Option<f64> {
        let quantile = |count: u64, ns: u64| (count > 0).then_some(ns as f64 / 1e3);
        let (all, recovered) = (&account.latency, &account.latency_recovered);
        let (kept, spread) = (&account.latency_kept, &account.spread);
        match self {
            Self::LatencyP50 => quantile(all.count, all.p50),
            Self::LatencyP90 => quantile(all.count, all.p90),
            Self::LatencyP99 => quantile(all.count, all.p99),
            Self::LatencyP999 => quantile(all.count, all.p999),
            Self::LatencyMax => quantile(all.count, all.max),
            Self::KeptP50 => quantile(kept.count, kept.p50),
            Self::KeptP99 => quantile(kept.count, kept.p99),
            Self::RecoveredP50 => quantile(recovered.count, recovered.p50),
            Self::RecoveredP99 => quantile(recovered.count, recovered.p99),
            Self::RecoveredP999 => quantile(recovered.count, recovered.p999),
            Self::SpreadP50 => quantile(spread.count, spread.p50),
            Self::SpreadP99 => quantile(spread.count, spread.p99),
            Self::Silence => account.silence.map(|ns| ns as f64 / 1e3),
            Self::Cpu => account.cpu_us_per_copy,
            Self::CpuSender => account.cpu_percent_sender,
            Self::CpuReceivers => account.cpu_percent_receivers,
            Self::Packets => account.packets_per_copy,
            Self::GoodputSlowest => account.goodput_slowest.map(|rate| rate / 1e6),
            Self::GoodputMean => account.goodput_mean.map(|rate| rate / 1e6),
            Self::Background => account.background_slowest.map(|rate| rate / 1e6),
        }
    }
}
