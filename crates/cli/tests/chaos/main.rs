//! Chaos test on real sockets. Eight members, each a process in its own network namespace, are
//! killed, stopped, partitioned, cut off in one direction, unplugged, and made to lose datagrams
//! while they publish. Then all faults are healed, and the records of the members are checked:
//! every message is delivered once or reported lost at every live member, and ordered groups agree
//! on one order. In a bulk group, one member publishes at a time; when it is killed or leaves,
//! another one takes over.
//!
//! `cargo test` performs a short run of each kind of group. A long one: `cargo test -p carom-cli
//! --test chaos -- run --seconds 600 --seed 7 --kind ordered`.

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

use faults::Fault;
use kind::Kind;
use member::Member;
use run::Run;

fn main() -> ExitCode {
    let args: Vec<String> = env::args().skip(1).collect();
    if let Some(member) = Member::parse(&args) {
        member.run();
        return ExitCode::SUCCESS;
    }
    let (run, kinds) = match args.split_first() {
        Some((word, options)) if word == "run" => match parse(options) {
            Ok(parsed) => parsed,
            Err(error) => {
                eprintln!("error: {error}\n{USAGE}");
                return ExitCode::from(2);
            }
        },
        // `cargo test` passes on the arguments for the tests of all crates.
        _ => (Run::default(), Kind::ALL.to_vec()),
    };
    // All kinds run, so that one report shows all failures.
    let held = kinds.into_iter().filter(|kind| !run.play(*kind)).count() == 0;
    ExitCode::from(u8::from(!held))
}

fn parse(options: &[String]) -> Result<(Run, Vec<Kind>), String> {
    let mut run = Run::default();
    let mut kinds = Kind::ALL.to_vec();
    for pair in options.chunks(2) {
        let [name, value] = pair else { return Err(format!("{} needs a value", pair[0])) };
        let number = || value.parse::<u64>().map_err(|_| format!("{name}: not a number: {value}"));
        match name.as_str() {
            "--seconds" => run.seconds = number()?,
            "--seed" => run.seed = number()?,
            "--rate" => run.rate = number()?.clamp(1, 1_000) as u32,
            "--kind" => {
                let kind = Kind::parse(value).ok_or_else(|| format!("unknown kind '{value}'"))?;
                kinds = vec![kind];
            }
            "--faults" => {
                let faults = value.split(',').map(|name| {
                    Fault::parse(name).ok_or_else(|| format!("unknown fault '{name}'"))
                });
                run.faults = Some(faults.collect::<Result<_, _>>()?);
            }
            "--records" => run.records = Some(value.into()),
            _ => return Err(format!("unknown option '{name}'")),
        }
    }
    Ok((run, kinds))
}

const USAGE: &str = "usage: run [--seconds N] [--seed N] [--rate MESSAGES_PER_SECOND]
       [--kind lateral|ordered|bulk] [--records FOLDER]
       [--faults kill,stop,partition,one-way,unplug,if-down,loss,bursts,leave]";
