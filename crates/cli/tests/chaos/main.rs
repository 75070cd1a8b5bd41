//! Chaos test on real sockets. Eight members, each a process in its own network namespace, are
//! killed, stopped, partitioned, cut off in one direction, unplugged, and made to lose datagrams
//! while they publish. Each host loses 1 % throughout. Then the faults are healed, and the records
//! of the members are checked: every message is delivered once or reported lost at every live
//! member, and ordered groups agree on one order. In a bulk group, one member publishes at a time;
//! when it is killed or leaves, another one takes over.
//!
//! `cargo test` performs a short run of each kind of group: 20 s of faults, of which the first is a
//! kill. A long one: `cargo test -p carom-cli --test chaos -- run --seconds 600 --seed 7 --kind
//! ordered`.

#![cfg_attr(not(target_os = "linux"), no_main)]
#![cfg(target_os = "linux")]
#![expect(clippy::print_stderr, reason = "no harness reports for this test")]

mod checks;
mod faults;
mod kind;
#[path = "../lab/mod.rs"]
#[expect(dead_code, unused_imports, reason = "other tests use the rest of the lab")]
mod lab;
mod member;
mod payload;
mod record;
mod run;
mod site;

use std::env;
use std::process::ExitCode;

use clap::Parser as _;
use member::Member;
use run::Run;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some(member) = Member::parse(&args) {
        member.run();
        return ExitCode::SUCCESS;
    }
    // `cargo test` passes the same arguments to the tests of all crates.
    let is_asked = args.first().is_some_and(|word| word == "run");
    let run = Run::parse_from(if is_asked { args } else { vec!["run".to_owned()] });
    // All kinds run, so that one report shows all failures.
    let held = run.kinds.iter().filter(|kind| !run.play(**kind)).count() == 0;
    ExitCode::from(u8::from(!held))
}
