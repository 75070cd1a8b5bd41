use crate::account::Account;
use crate::latencies::Quantiles;

/// A measured value of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    SendDelayP99,
    LatencyP50,
    LatencyP90,
    LatencyP99,
    LatencyP999,
    LatencyMax,
    KeptP50,
    KeptP99,
    Recovered,
    RecoveredP50,
    RecoveredP99,
    RecoveredP999,
    FromKernelP50,
    FromKernelP99,
    SpreadP50,
    SpreadP99,
    SpreadLeftOut,
    Silence,
    Cpu,
    CpuSender,
    CpuReceivers,
    Packets,
    GoodputSlowest,
    GoodputMean,
    Background,
    IdleCpu,
    IdlePackets,
}

impl Metric {
    pub(super) const ALL: [Self; 27] = [
        Self::SendDelayP99,
        Self::LatencyP50,
        Self::LatencyP90,
        Self::LatencyP99,
        Self::LatencyP999,
        Self::LatencyMax,
        Self::KeptP50,
        Self::KeptP99,
        Self::Recovered,
        Self::RecoveredP50,
        Self::RecoveredP99,
        Self::RecoveredP999,
        Self::FromKernelP50,
        Self::FromKernelP99,
        Self::SpreadP50,
        Self::SpreadP99,
        Self::SpreadLeftOut,
        Self::Silence,
        Self::Cpu,
        Self::CpuSender,
        Self::CpuReceivers,
        Self::Packets,
        Self::GoodputSlowest,
        Self::GoodputMean,
        Self::Background,
        Self::IdleCpu,
        Self::IdlePackets,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SendDelayP99 => "send delay p99",
            Self::LatencyP50 => "latency p50",
            Self::LatencyP90 => "latency p90",
            Self::LatencyP99 => "latency p99",
            Self::LatencyP999 => "latency p99.9",
            Self::LatencyMax => "latency max",
            Self::KeptP50 => "not lost p50",
            Self::KeptP99 => "not lost p99",
            Self::Recovered => "recovered copies",
            Self::RecoveredP50 => "recovered p50",
            Self::RecoveredP99 => "recovered p99",
            Self::RecoveredP999 => "recovered p99.9",
            Self::FromKernelP50 => "kernel to delivery p50",
            Self::FromKernelP99 => "kernel to delivery p99",
            Self::SpreadP50 => "spread p50",
            Self::SpreadP99 => "spread p99",
            Self::SpreadLeftOut => "left out of spread",
            Self::Silence => "longest silence",
            Self::Cpu => "CPU per copy",
            Self::CpuSender => "CPU of the sender",
            Self::CpuReceivers => "CPU of a receiver",
            Self::Packets => "packets per copy",
            Self::GoodputSlowest => "goodput, slowest",
            Self::GoodputMean => "goodput, mean",
            Self::Background => "background transfer",
            Self::IdleCpu => "idle CPU of a node",
            Self::IdlePackets => "idle packets per second",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Packets | Self::Recovered | Self::IdlePackets => "",
            Self::SpreadLeftOut | Self::CpuSender | Self::CpuReceivers | Self::IdleCpu => "%",
            Self::GoodputSlowest | Self::GoodputMean | Self::Background => "MB/s",
            _ => "µs",
        }
    }

    pub(super) fn is_latency(self) -> bool {
        matches!(
            self,
            Self::LatencyP50
                | Self::LatencyP90
                | Self::LatencyP99
                | Self::LatencyP999
                | Self::LatencyMax
                | Self::KeptP50
                | Self::KeptP99
                | Self::RecoveredP50
                | Self::RecoveredP99
                | Self::RecoveredP999
        )
    }

    pub(super) fn is_better_if_higher(self) -> bool {
        matches!(self, Self::GoodputSlowest | Self::GoodputMean | Self::Background)
    }

    /// Returns the number of recorded times if there are some, but fewer than the quantile needs to
    /// have one beyond it.
    pub(super) fn too_few(self, account: &Account) -> Option<u64> {
        let least = match self {
            Self::LatencyP90 => 10,
            Self::SendDelayP99
            | Self::LatencyP99
            | Self::KeptP99
            | Self::RecoveredP99
            | Self::FromKernelP99
            | Self::SpreadP99 => 100,
            Self::LatencyP999 | Self::RecoveredP999 => 1000,
            _ => return None,
        };
        let part = match self {
            Self::SendDelayP99 => &account.send_delay,
            Self::KeptP99 => &account.latency_kept,
            Self::RecoveredP99 | Self::RecoveredP999 => &account.latency_recovered,
            Self::FromKernelP99 => &account.latency_from_kernel,
            Self::SpreadP99 => &account.spread,
            _ => &account.latency,
        };
        (1..least).contains(&part.count).then_some(part.count)
    }

    /// Returns the value in its unit, or `None` if the run has none. A quantile has none if fewer
    /// times were recorded than it needs to have one beyond it.
    pub(super) fn value(self, account: &Account) -> Option<f64> {
        if self.too_few(account).is_some() {
            return None;
        }
        let quantile = |part: &Quantiles, value: fn(&Quantiles) -> u64| {
            (part.count > 0).then(|| value(part) as f64 / 1e3)
        };
        let p50 = |part| quantile(part, |it| it.p50);
        let p99 = |part| quantile(part, |it| it.p99);
        let p999 = |part| quantile(part, |it| it.p999);
        let (all, recovered) = (&account.latency, &account.latency_recovered);
        let (kept, spread) = (&account.latency_kept, &account.spread);
        // At a set rate, a system that stalls and then catches up would have the highest one.
        let goodput = |rate: Option<f64>| rate.filter(|_| !account.is_paced).map(|it| it / 1e6);
        match self {
            Self::SendDelayP99 => p99(&account.send_delay),
            Self::LatencyP50 => p50(all),
            Self::LatencyP90 => quantile(all, |it| it.p90),
            Self::LatencyP99 => p99(all),
            Self::LatencyP999 => p999(all),
            Self::LatencyMax => quantile(all, |it| it.max),
            Self::KeptP50 => p50(kept),
            Self::KeptP99 => p99(kept),
            Self::Recovered => (account.datagrams_dropped > 0).then_some(recovered.count as f64),
            Self::RecoveredP50 => p50(recovered),
            Self::RecoveredP99 => p99(recovered),
            Self::RecoveredP999 => p999(recovered),
            Self::FromKernelP50 => p50(&account.latency_from_kernel),
            Self::FromKernelP99 => p99(&account.latency_from_kernel),
            Self::SpreadP50 => p50(spread),
            Self::SpreadP99 => p99(spread),
            Self::SpreadLeftOut => account.spread_left_out.map(|share| share * 100.0),
            Self::Silence => {
                account.silence.filter(|_| account.killed > 0).map(|ns| ns as f64 / 1e3)
            }
            Self::Cpu => account.cpu_us_per_copy,
            Self::CpuSender => account.cpu_percent_sender,
            Self::CpuReceivers => account.cpu_percent_receivers,
            Self::Packets => account.packets_per_copy,
            Self::GoodputSlowest => goodput(account.goodput_slowest),
            Self::GoodputMean => goodput(account.goodput_mean),
            Self::Background => account.background_slowest.map(|rate| rate / 1e6),
            Self::IdleCpu => account.idle_cpu_percent,
            Self::IdlePackets => account.idle_packets_per_second,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantile_needs_a_time_beyond_it() {
        let value = |metric: Metric, count: u64| {
            let latency_recovered = Quantiles { count, ..Quantiles::default() };
            metric.value(&Account { latency_recovered, ..Account::default() })
        };
        assert_eq!(value(Metric::RecoveredP50, 0), None);
        assert_eq!(value(Metric::RecoveredP50, 1), Some(0.0));
        assert_eq!(value(Metric::RecoveredP99, 99), None);
        assert_eq!(value(Metric::RecoveredP99, 100), Some(0.0));
        assert_eq!(value(Metric::RecoveredP999, 999), None);
        assert_eq!(value(Metric::RecoveredP999, 1000), Some(0.0));
    }

    #[test]
    fn delay_of_send_calls_needs_a_time_beyond_its_quantile() {
        let value = |count: u64| {
            let send_delay = Quantiles { count, p99: 3_000, ..Quantiles::default() };
            Metric::SendDelayP99.value(&Account { send_delay, ..Account::default() })
        };
        assert_eq!((value(0), value(99), value(100)), (None, None, Some(3.0)));
    }

    #[test]
    fn recovered_copies_are_counted_where_datagrams_were_dropped() {
        let lossless = Account::default();
        assert_eq!(Metric::Recovered.value(&lossless), None);
        let lossy = Account { datagrams_dropped: 1, ..Account::default() };
        assert_eq!(Metric::Recovered.value(&lossy), Some(0.0));
    }
}
