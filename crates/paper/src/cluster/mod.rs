//! Bulk delivery in a simulated data center, with RDCM and the protocols of its paper's comparison.

mod bulk;
mod plane;
mod protocol;
mod rider;
mod scene;
mod stream;
mod tally;

pub(crate) use self::bulk::{BulkOutcome, BulkRun};
#[cfg(test)]
pub(crate) use self::bulk::{Counts, Footprint};
pub(crate) use self::plane::{Group, Setting};
pub(crate) use self::protocol::Protocol;
pub(crate) use self::stream::{Bin, Happens, StreamOutcome, StreamRun};

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carom_proto::loss::Loss;

    use super::*;
    use crate::work::Run;

    fn setting(rate: f64) -> Setting {
        Setting {
            ports: 4,
            k: 1,
            group: Group::Random(9),
            bits_per_second: 1_000_000_000,
            link_delay: Duration::from_micros(1),
            queue_bytes: 1 << 20,
            sender_queue_bytes: 1 << 20,
            loss: if rate > 0.0 { Loss::Uniform(rate) } else { Loss::None },
            payload_bytes: 1024,
            detect_after: Duration::ZERO,
            gone_after: None,
            controls_congestion: false,
            seed: 7,
        }
    }

    const ALL: [Protocol; 5] =
        [Protocol::Srm, Protocol::Lbrm, Protocol::Tmtp, Protocol::Rmtp, Protocol::Rdcm];

    #[test]
    fn lossless_runs_fill_the_link_and_repair_nothing() {
        for protocol in ALL {
            let run = BulkRun { setting: setting(0.0), protocol, packets: 300, changes: 0 };
            let outcome = run.run(&|| false).expect("the run is not ended early");
            assert_eq!(outcome.incomplete, 0, "{protocol:?}");
            assert!(outcome.mean_share > 0.95, "{protocol:?}: {outcome:?}");
            assert_eq!((outcome.counts.lost, outcome.counts.repairs), (0, 0), "{protocol:?}");
            let copies = 300 * u64::from(outcome.tree_links);
            let each = protocol.datagram_bytes(1024) as u64 + 66;
            assert_eq!(outcome.footprint.data, copies * each, "{protocol:?}");
        }
    }

    #[test]
    fn losses_are_repaired_and_equal_seeds_have_equal_counts() {
        for protocol in ALL {
            let run = BulkRun { setting: setting(0.02), protocol, packets: 100, changes: 0 };
            let outcome = run.run(&|| false).expect("the run is not ended early");
            let counts = outcome.counts;
            assert_eq!(outcome.incomplete, 0, "{protocol:?}");
            assert_eq!(outcome.delays.len() as u64, counts.lost, "{protocol:?}");
            assert_eq!(
                counts.repairs,
                counts.lost + counts.repairs_again + counts.repairs_astray,
                "{protocol:?}"
            );
            assert!(counts.lost > 0 && counts.most_copies > 0, "{protocol:?}: {counts:?}");
            assert_eq!(run.run(&|| false), Some(outcome), "{protocol:?}");
            assert_eq!(run.run(&|| true), None, "the run checks whether to end early");
        }
    }

    #[test]
    fn receivers_that_stay_are_served_while_others_change() {
        let base =
            BulkRun { setting: setting(0.01), protocol: Protocol::Rdcm, packets: 1000, changes: 0 };
        let run = BulkRun { changes: 3, ..base.clone() };
        let outcome = run.run(&|| false).expect("the run is not ended early");
        assert_eq!((outcome.receivers, outcome.incomplete), (6, 0));
        let still = base.run(&|| false).expect("the run is not ended early");
        assert!(outcome.mean_share > 0.5 * still.mean_share, "{outcome:?}");
        assert_ne!(outcome.tree_links, 0);
        assert_eq!(run.run(&|| false), Some(outcome));
    }

    #[test]
    fn stream_continues_beside_a_flow_and_below_a_dead_link() {
        let ms = Duration::from_millis;
        let flow = Happens::Flow { to: 0, bits_per_second: 100_000_000, lasts: ms(5) };
        let run = StreamRun {
            setting: setting(0.0),
            protocol: Protocol::Rmtp,
            bits_per_second: Some(80_000_000),
            length: ms(40),
            bin: ms(10),
            happens: vec![(ms(5), flow), (ms(15), Happens::Cut { to: 8 })],
            watched: 8,
        };
        let outcome = run.run(&|| false).expect("the run is not ended early");
        assert_eq!((outcome.bins.len(), outcome.lost), (4, 0));
        assert!(outcome.uses_dead_link && outcome.rebuilt_at.is_empty(), "the tree is not rebuilt");
        for bin in &outcome.bins[..2] {
            assert!((76e6..84e6).contains(&bin.sent), "{bin:?}");
        }
        assert!(outcome.bins[0].received > 70e6, "{outcome:?}");
        assert_eq!(run.run(&|| false), Some(outcome));
    }
}
