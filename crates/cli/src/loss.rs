use carom::Loss;
use carom_terminal::units;

#[derive(Clone, Debug, clap::Args)]
pub(crate) struct LossArgs {
    /// Drop this share of datagrams on receipt, for testing
    #[arg(long, value_name = "SHARE", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = units::share)]
    loss: f64,
    /// Drop in bursts of N datagrams
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    burst: Option<u32>,
}

impl LossArgs {
    pub(crate) fn model(&self) -> Loss {
        injected(self.loss, self.burst)
    }
}

pub(crate) fn injected(rate: f64, burst: Option<u32>) -> Loss {
    match burst {
        _ if rate == 0.0 => Loss::None,
        None => Loss::Uniform(rate),
        Some(length) => Loss::Burst { rate, length },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_uniform_unless_a_burst_is_asked_for() {
        assert_eq!(injected(0.0, Some(20)), Loss::None);
        assert_eq!(injected(0.05, None), Loss::Uniform(0.05));
        assert_eq!(injected(0.05, Some(20)), Loss::Burst { rate: 0.05, length: 20 });
    }
}
