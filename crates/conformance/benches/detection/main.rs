//! Detection times of crashes, and false detections. Gossip runs among 32 nodes, for ten minutes
//! with each loss rate, with and without stalls, and with and without its extensions beyond SWIM.
//! Prints a table.
//!
//! `cargo bench -p carom-conformance --bench detection [-- MINUTES]`

#![allow(clippy::print_stdout, reason = "a benchmark prints what it measures")]

mod field;

use core::time::Duration;

use carom_proto::membership::gossip::Config;
use field::{Outcome, Setting, Stalls, play};

const MECHANISMS: [(&str, bool, u32); 4] =
    [("neither", false, 0), ("heartbeats", true, 0), ("local health", false, 3), ("both", true, 3)];

const STALLS: Stalls = Stalls {
    share: 0.15,
    shortest: Duration::from_millis(200),
    longest: Duration::from_millis(1200),
};

fn main() {
    let minutes = std::env::args().find_map(|argument| argument.parse().ok()).unwrap_or(10);
    println!(
        "| loss | messages/s | stalls | beyond SWIM | crashes | p50 / p99 / max, s | unseen | \
         false failures / node-hour | suspicions / node-hour |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    for messages_per_second in [0, 10] {
        for stalls in [None, Some(STALLS)] {
            for loss in [0.01, 0.05, 0.2] {
                for (name, heartbeats, local_health) in MECHANISMS {
                    let setting = Setting {
                        nodes: 32,
                        loss,
                        stalls,
                        messages_per_second,
                        gossip: Config { heartbeats, local_health, ..Config::default() },
                        span: Duration::from_secs(60 * minutes),
                        crash_every: Duration::from_secs(10),
                        seed: 1,
                    };
                    report(name, &setting, &play(&setting));
                }
            }
        }
    }
}

fn report(name: &str, setting: &Setting, outcome: &Outcome) {
    let [p50, p99, max] = [0.5, 0.99, 1.0].map(|share| outcome.quantile(share).as_secs_f64());
    println!(
        "| {} % | {} | {} | {name} | {} | {p50:.2} / {p99:.2} / {max:.2} | {} | {:.1} | {:.0} |",
        setting.loss * 100.0,
        setting.messages_per_second,
        if setting.stalls.is_some() { "yes" } else { "no" },
        outcome.detections.len(),
        outcome.unseen,
        f64::from(outcome.false_failures) / outcome.node_hours,
        outcome.suspicions as f64 / outcome.node_hours,
    );
}
