use std::path::Path;
use std::time::Instant;

use carom_bench::Quantiles;
use carom_bench::account::Account;
use carom_bench::plan::Row;
use carom_bench::report::{Kind, Limit, Order, Run, RunResult};
use carom_netns::Lab;
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, output};

use super::cases;
use super::failure::Failure;
use super::limits::Limits;
use super::page::Page;
use super::syscalls::SyscallCounter;
use super::system::{self, System};
use super::trial::{self, Measured, Trial};
use crate::net::refused;

/// The measurement of rows, one after the other.
pub(super) struct Bench<'a> {
    peers: &'a Path,
    scratch: &'a Path,
    interrupt: &'a Interrupt,
    started: Instant,
    done: u64,
    total: u64,
    /// `true` if each system has one more run, in which its system calls are counted.
    pub(super) counts_syscalls: bool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(peers: &'a Path, scratch: &'a Path, interrupt: &'a Interrupt) -> Self {
        Self {
            peers,
            scratch,
            interrupt,
            started: Instant::now(),
            done: 0,
            total: 0,
            counts_syscalls: false,
        }
    }

    /// Measures rows until all are done or the user interrupts, and writes the page to `out` after
    /// each. Returns `true` if a system failed or Carom broke a promise.
    pub(super) fn measure(
        &mut self,
        rows: &[Row],
        page: &mut Page,
        out: &Path,
    ) -> Result<bool, CliError> {
        self.total = total(rows);
        let mut finding = false;
        for row in rows {
            let ended = self.measure_row(row, page);
            let is_last = rows.last().is_some_and(|last| last.name == row.name);
            let is_whole = is_last && ended.is_ok() && !self.interrupt.is_asked();
            page.write(out, !is_whole)?;
            finding |= ended?;
            if self.interrupt.is_asked() {
                break;
            }
        }
        Ok(finding)
    }

    /// Measures the systems of a row in turns, so that a disturbance of the machine that lasts
    /// longer than a turn affects all of them. Each turn begins with another system, so that none
    /// is always the first.
    fn measure_row(&mut self, row: &Row, page: &mut Page) -> Result<bool, CliError> {
        page.begin(row);
        let systems = self.systems(row, page);
        let lab = Lab::build(&cases::layout(row)).map_err(|error| refused(&error))?;
        let link = row.link_mbit.map(|rate| u64::from(rate) * 1_000_000);
        for host in lab.hosts().iter().filter(|_| link.is_some()) {
            host.set_rate(link).map_err(|error| refused(&error))?;
        }
        let (scratch, interrupt) = (self.scratch, self.interrupt);
        let trial = |system, counts_syscalls| Trial {
            lab: &lab,
            row,
            system,
            scratch,
            interrupt,
            counts_syscalls,
        };
        let mut finding = false;
        for turn in 1..=row.repetitions {
            let repeated = |it: &&System| turn <= row.runs_of(&it.name);
            let mut order: Vec<&System> = systems.iter().filter(repeated).collect();
            let first = (turn as usize - 1) % order.len().max(1);
            order.rotate_left(first);
            for system in order {
                let measured = trial(system, false).run();
                self.done += 1;
                match measured {
                    Ok(measured) => finding |= self.measured(row, system, turn, measured, page),
                    Err(Failure::Failed { cause, fix }) => {
                        finding = true;
                        let label = label(row, system, turn);
                        self.report(&format!("{label}: failed: {cause}\nfix: {fix}"));
                        page.add(run(row, system, turn, None, RunResult::Failed(cause)));
                    }
                    Err(Failure::Interrupted) => return Ok(finding),
                }
            }
        }
        for system in systems.iter().filter(|_| self.counts_syscalls) {
            match syscalls_per_message(&trial(system, true)) {
                Err(Failure::Interrupted) => return Ok(finding),
                Err(Failure::Failed { cause, .. }) => page.add_syscalls(row, system, Err(cause)),
                Ok(per_message) => page.add_syscalls(row, system, Ok(per_message)),
            }
        }
        Ok(finding)
    }

    /// Returns the systems of a row that can be measured.
    fn systems(&mut self, row: &Row, page: &mut Page) -> Vec<System> {
        let mut systems = Vec::new();
        for name in &row.systems {
            match System::find(name, row, self.peers) {
                Ok(system) => systems.push(system),
                Err(reason) => {
                    self.done += u64::from(row.runs_of(name));
                    self.report(&format!(
                        "{} {name}: skipped: {reason}\nfix: {AVAILABLE}",
                        row.name
                    ));
                    page.add(skipped(row, name, reason));
                }
            }
        }
        systems
    }

    fn measured(
        &self,
        row: &Row,
        system: &System,
        turn: u32,
        measured: Measured,
        page: &mut Page,
    ) -> bool {
        let label = label(row, system, turn);
        let Measured { account, version, limit, remarks, .. } = measured;
        page.describe(&system.name, &version, &system.notes);
        let limits = Limits::of(row, system.kind);
        let reached = limit.map(|limit| limits.described(limit));
        let mut shown = in_short(&account);
        for remark in reached.into_iter().chain(remarks) {
            shown += &format!("; {remark}");
            page.remark(&row.name, format!("{}: {remark}", system.name));
        }
        self.report(&format!("{label}: {shown}"));
        let is_late = system.kind == Kind::Carom && limit.is_some();
        let is_broken = is_late || trial::is_broken(row, system, &account);
        if is_broken {
            let remark = format!(
                "{}: FAILED: missing {}, duplicates {}, unknown {}, out of order {}, orders {}",
                system.name,
                account.missing,
                account.duplicates,
                account.unknown,
                account.out_of_order,
                if account.orders_agree { "agree" } else { "differ" },
            );
            self.report(&format!("{label}: {remark}\nfix: {BROKEN}"));
            page.remark(&row.name, remark);
        }
        page.add(run(row, system, turn, limit, RunResult::Measured(Box::new(account))));
        is_broken
    }

    fn report(&self, line: &str) {
        let seconds = self.started.elapsed().as_secs();
        output::say(format_args!("{} of {}, {seconds} s: {line}", self.done, self.total));
    }
}

/// Returns the number of runs of all rows.
fn total(rows: &[Row]) -> u64 {
    rows.iter().map(Row::runs).fold(0, u64::saturating_add)
}

fn run(row: &Row, system: &System, turn: u32, limit: Option<Limit>, result: RunResult) -> Run {
    let System { name, kind, order, .. } = system;
    let (row, system) = (row.name.clone(), name.clone());
    Run { row, system, turn, kind: *kind, order: *order, limit, result }
}

/// Returns the name of a run for the user.
fn label(row: &Row, system: &System, turn: u32) -> String {
    format!("{} {} ({turn})", row.name, system.name)
}

/// Runs a system once more to count its system calls. Its other results are not used, because
/// strace slows it down.
fn syscalls_per_message(trial: &Trial<'_>) -> Result<f64, Failure> {
    if let Some(reason) = SyscallCounter::unavailable() {
        return Err(reason.into());
    }
    if trial.row.background_mib.is_some() {
        return Err("those of the background transfer would be among them".to_owned().into());
    }
    if trial.row.file_mib.is_some() {
        return Err("they are not counted in rows with a file".to_owned().into());
    }
    let Measured { account, limit, syscalls, .. } = trial.run()?;
    match (limit, syscalls, account.sent) {
        // The calls of the wait would be among them.
        (Some(_), ..) => Err("the run reached a time limit under strace".to_owned().into()),
        (None, Some(calls), sent @ 1..) => Ok(calls as f64 / sent as f64),
        (None, ..) => Err("no message was sent".to_owned().into()),
    }
}

fn skipped(row: &Row, name: &str, reason: String) -> Run {
    let (kind, result) = (System::kind_of(name), RunResult::Skipped(reason));
    let (row, system) = (row.name.clone(), system::full_name(name, row));
    Run { row, system, turn: 1, kind, order: Order::None, limit: None, result }
}

/// Returns the main figures of a run in one line.
fn in_short(account: &Account) -> String {
    let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    let mut text = format!("{} of {} delivered", account.delivered, account.expected);
    let (all, recovered) = (&account.latency, &account.latency_recovered);
    let quantiles = |it: &Quantiles| match it.count {
        100.. => format!("p50 {} ms, p99 {} ms", ms(it.p50), ms(it.p99)),
        _ => format!("p50 {} ms", ms(it.p50)),
    };
    if all.count > 0 {
        text += &format!(", {}", quantiles(all));
    }
    if recovered.count > 0 {
        text += &format!(", {} recovered: {}", recovered.count, quantiles(recovered));
    }
    if account.kernel_drops > Some(0) {
        text += &format!(", {} kernel drops", account.kernel_drops.unwrap_or_default());
    }
    if account.link_drops > Some(0) {
        text += &format!(", {} link drops", account.link_drops.unwrap_or_default());
    }
    if let Some(goodput) = account.goodput_slowest {
        text += &format!(", {:.1} MB/s", goodput / 1e6);
    }
    text
}

const BROKEN: &str = "repeat the row, and report the failure with its benchmarks.json";
const AVAILABLE: &str =
    "see `carom-lab bench list` for what is missing, or choose others by --systems";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases;

    #[test]
    fn runs_are_counted_beyond_32_bits() {
        let mut row = cases::built_in().remove(0);
        row.repetitions = u32::MAX;
        row.once.clear();
        let systems = row.systems.len() as u64;
        assert_eq!(total(&[row]), systems * u64::from(u32::MAX));
    }

    #[test]
    fn system_that_is_skipped_keeps_its_kind() {
        let row = cases::built_in().remove(0);
        let kind = |name: &str| skipped(&row, name, String::new()).kind;
        assert_eq!(["carom", "carom:bulk", "raw"].map(kind), [Kind::Carom, Kind::Carom, Kind::Raw]);
        assert_eq!(kind("aeron:tuned"), Kind::Peer);
    }
}
