//! The throughput of a file transfer to many receivers: `carom send` to eight receivers in network
//! namespaces, with the sender's link limited to 500 Mbit/s by `tbf`, compared with as many TCP
//! streams of the same bytes over the same link in the same run.
//!
//! Run `cargo bench -p carom-cli --bench files` as root. Only the ratios matter. `-- --help` lists
//! the settings.
//!
//! The rate of a receiver is that of the bytes of the file, from the start of the stream until the
//! sender learns that the receiver has verified the file and given it its final name. The TCP
//! streams are read and discarded, neither verified nor written.

#![cfg_attr(not(target_os = "linux"), no_main)]
#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "a benchmark prints its result")]

mod tcp;
mod transfer;

#[allow(dead_code, unused_imports, reason = "a benchmark uses a part of the lab")]
#[path = "../../tests/lab/mod.rs"]
mod lab;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use comfy_table::Table;
use lab::{Lab, build_lab};

use self::transfer::{Disturbance, Outcome, Stragglers, Transfer};

#[derive(Clone, Debug, Parser)]
struct Args {
    /// Size of the file in MiB
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Number of receivers
    #[arg(long, default_value_t = 8)]
    receivers: usize,
    /// Rate of the sender's link in Mbit/s; 0 means no limit
    #[arg(long, default_value_t = 500)]
    link: u32,
    /// Directory for the files, with room for one copy per receiver and one more
    #[arg(long, default_value = "/dev/shm")]
    dir: PathBuf,
    /// Part of the file that each TCP stream carries, in MiB
    #[arg(long)]
    tcp_mib: Option<u64>,
    /// Number of repetitions of a transfer; each repetition reports receivers that fell behind
    #[arg(long, default_value_t = 1)]
    runs: usize,
    /// Share of datagrams that each receiver loses in repeated transfers
    #[arg(long, default_value_t = 0.0)]
    loss: f64,
    /// Measure only these: clean, lossy, relayed, chain, disturbed, slow, tcp
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "clean,lossy,relayed,chain,disturbed,slow,tcp"
    )]
    only: Vec<String>,
    /// Passed by cargo
    #[arg(long, hide = true)]
    bench: bool,
    /// Only try out the binary
    #[arg(long, hide = true)]
    test: bool,
}

fn main() -> ExitCode {
    // The same program is the TCP sender and each TCP receiver, in their namespaces.
    if let Some(role) = tcp::Role::of_this_process() {
        return role.play();
    }
    let mut args = Args::parse();
    if args.test {
        (args.mib, args.receivers) = (8, 4);
    }
    let Some(lab) = build_lab(args.receivers + 1, 1500) else { return ExitCode::SUCCESS };
    if args.link > 0 {
        hold(&lab, args.link);
    }
    let dir = tempfile::TempDir::new_in(&args.dir).expect("a directory for the files");
    let file = dir.path().join("file");
    fs::write(&file, transfer::noise(args.mib << 20)).expect("room for the file");
    println!(
        "{} MiB to {} receivers, sender's link {} Mbit/s",
        args.mib, args.receivers, args.link
    );
    let (copies, disturbance) = (None, None);
    let clean =
        Transfer { lab: &lab, dir: dir.path(), file: &file, loss: 0.0, copies, disturbance };
    if args.runs > 1 {
        let repeated = Transfer { loss: args.loss, ..clean };
        tell_runs((0..args.runs).map(|_| repeated.run()));
        return ExitCode::SUCCESS;
    }
    let is_asked = |name: &str| args.only.iter().any(|it| it == name);
    let several = Disturbance::Several { after_mib: args.mib / 3 };
    let with_copies = |copies| Transfer { copies: Some(copies), ..clean };
    let disturbed = |disturbance| Transfer { disturbance: Some(disturbance), ..clean };
    let transfers = [
        ("clean", "carom", clean),
        ("lossy", "carom, 1 % lost at every receiver", Transfer { loss: 0.01, ..clean }),
        ("relayed", "carom without multicast, two copies", with_copies("2")),
        ("chain", "carom without multicast, a chain", with_copies("1")),
        ("disturbed", "carom, one killed, one paused, one late", disturbed(several)),
        ("slow", "carom, one runs a quarter of the time", disturbed(Disturbance::Slow)),
    ];
    let asked = transfers.into_iter().filter(|(name, ..)| is_asked(name));
    let mut rows: Vec<(&str, Outcome)> =
        asked.map(|(_, title, transfer)| (title, transfer.run())).collect();
    if is_asked("tcp") {
        let bytes = args.tcp_mib.unwrap_or(args.mib).min(args.mib) << 20;
        rows.push(("TCP, a stream to each", tcp::run(&lab, bytes)));
    }
    tell(&args, &rows);
    ExitCode::SUCCESS
}

fn hold(lab: &Lab, mbit: u32) {
    let rate = format!("{mbit}mbit");
    let words = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", &rate];
    let sizes = ["burst", "128kb", "limit", "4mb"];
    let status = lab.host(1).command("tc", &[&words[..], &sizes].concat()).status();
    assert!(status.expect("tc is part of iproute2").success(), "tbf is not available here");
}

fn tell_runs(runs: impl Iterator<Item = Outcome>) {
    let mut with_stragglers = 0;
    let mut count = 0;
    for outcome in runs {
        count += 1;
        let slowest = outcome.slowest();
        let fastest = outcome.rates.iter().copied().fold(0.0, f64::max);
        let Stragglers { left_behind, fetched_bytes, kernel_dropped } = outcome.stragglers;
        with_stragglers += usize::from(left_behind > 0);
        println!(
            "run {count}: slowest {:.1} MB/s, fastest {:.1} MB/s, left behind {left_behind} times, \
             {:.1} MB fetched, {kernel_dropped} dropped by kernels",
            slowest / 1e6,
            fastest / 1e6,
            fetched_bytes as f64 / 1e6
        );
    }
    println!("{with_stragglers} of {count} runs left a receiver behind");
}

fn tell(args: &Args, rows: &[(&str, Outcome)]) {
    let clean = rows.iter().find(|(name, _)| *name == "carom").map(|(_, outcome)| outcome);
    let tcp = rows.iter().find(|(name, _)| name.starts_with("TCP")).map(|(_, it)| it.slowest());
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "",
        "slowest receiver",
        "of the link",
        "of TCP",
        "time of the others",
        "largest process",
    ]);
    for (name, outcome) in rows {
        let mbit = outcome.slowest() * 8.0 / 1e6;
        let of_link = match args.link {
            0 => String::new(),
            link => format!("{:.1} %", 100.0 * mbit / f64::from(link)),
        };
        let of_tcp = tcp.map_or(String::new(), |tcp| format!("{:.2}", outcome.slowest() / tcp));
        let of_clean =
            clean.map_or(String::new(), |it| format!("{:.3}", it.slowest() / outcome.slowest()));
        let memory = outcome.most_memory.map_or(String::new(), |it| format!("{} MiB", it >> 20));
        table.add_row([
            (*name).to_owned(),
            format!("{mbit:.1} Mbit/s"),
            of_link,
            of_tcp,
            of_clean,
            memory,
        ]);
    }
    println!("{table}");
}
