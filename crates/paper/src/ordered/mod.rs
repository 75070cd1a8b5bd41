//! Throughput and latency of token rings on a shared Ethernet.

mod ping_pong;
mod ring;
mod transfer;

pub(crate) use self::ping_pong::{LEAST_BYTES, PingPongOutcome, PingPongRun};
pub(crate) use self::ring::{Counts, Setting};
pub(crate) use self::transfer::{TransferOutcome, TransferRun};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carom_proto::loss::Loss;
    use carom_proto::rmp::Config;
    use carom_sim::Ethernet;

    use super::*;
    use crate::suite::{Options, Suite};
    use crate::work::Run;

    fn setting(members: u32) -> Setting {
        Setting {
            ethernet: Ethernet::default(),
            loss: Loss::None,
            cpu_per_datagram: Duration::ZERO,
            config: Config::default(),
            members,
            seed: 5,
        }
    }

    #[test]
    fn every_destination_gets_the_files_in_a_time_set_by_the_seed() {
        let run = TransferRun {
            setting: setting(3),
            sources: 2,
            apart: false,
            file_bytes: 300_000,
            message_bytes: 8192,
            repeats: 2,
        };
        let outcome = run.run(&|| false).expect("the run is not ended early");
        assert_eq!((outcome.destinations, outcome.rates.len()), (3, 2));
        assert!((800e3..1250e3).contains(&outcome.rate()), "{outcome:?}");
        assert!(outcome.counts.data >= 4 * 300_000 / 1420 && outcome.counts.reformations == 0);
        assert_eq!(run.run(&|| false), Some(outcome));
        assert_eq!(run.run(&|| true), None, "the run checks whether to end early");
    }

    #[test]
    fn relations_of_token_rings_hold_in_the_short_runs() {
        let suite = Suite::named(&["rmp-5.1", "rmp-5.2", "rmp-5.3", "rmp-loss"])
            .expect("known experiments");
        let options = Options { quick: true, ..Options::default() };
        let reports = suite.run(&options, &());
        assert_eq!(reports.len(), 4);
        for report in reports {
            assert!(report.holds(), "{}: {:#?}\n{}", report.name(), report.relations, report.csv());
        }
    }
}
