use std::path::Path;
use std::time::Instant;

use carom_bench::account::Account;
use carom_bench::plan::Row;
use carom_bench::report::{Kind, Run, RunResult};
use carom_netns::Lab;
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, output};

use super::cases;
use super::page::Page;
use super::system::System;
use super::trial::{self, Failure, Measured, Trial};
use crate::net::refused;

/// The measurement of rows, one after the other.
pub(super) struct Bench<'a> {
    peers: &'a Path,
    scratch: &'a Path,
    interrupt: &'a Interrupt,
    started: Instant,
    done: u32,
    total: u32,
}

impl<'a> Bench<'a> {
    pub(super) fn new(peers: &'a Path, scratch: &'a Path, interrupt: &'a Interrupt) -> Self {
        Self { peers, scratch, interrupt, started: Instant::now(), done: 0, total: 0 }
    }

    /// Measures rows until all are done or the user interrupts. Returns `true` if a system failed
    /// or Carom broke a promise.
    pub(super) fn measure(&mut self, rows: &[Row], page: &mut Page) -> Result<bool, CliError> {
        self.total = rows.iter().map(Row::runs).fold(0, u32::saturating_add);
        let mut finding = false;
        for row in rows {
            finding |= self.measure_row(row, page)?;
            if self.interrupt.is_asked() {
                break;
            }
        }
        Ok(finding)
    }

    /// Measures the systems of a row in turns, so that what disturbs the machine for a while
    /// disturbs all of them.
    fn measure_row(&mut self, row: &Row, page: &mut Page) -> Result<bool, CliError> {
        page.begin(row);
        let systems = self.systems(row, page);
        let lab = Lab::build(&cases::layout(row)).map_err(|error| refused(&error))?;
        let link = row.link_mbit.map(|rate| u64::from(rate) * 1_000_000);
        for host in lab.hosts().iter().filter(|_| link.is_some()) {
            host.set_rate(link).map_err(|error| refused(&error))?;
        }
        let mut finding = false;
        for repetition in 1..=row.repetitions {
            let repeated = |it: &&System| repetition <= row.runs_of(&it.name);
            for system in systems.iter().filter(repeated) {
                let (scratch, interrupt) = (self.scratch, self.interrupt);
                let measured = Trial { lab: &lab, row, system, scratch, interrupt }.run();
                self.done += 1;
                let label = format!("{} {} ({repetition})", row.name, system.name);
                match measured {
                    Ok(measured) => finding |= self.measured(row, system, measured, &label, page),
                    Err(Failure::Failed(reason)) => {
                        finding = true;
                        self.report(&format!("{label}: failed: {reason}"));
                        page.add(skipped(row, &system.name, system.kind, reason));
                    }
                    Err(Failure::Interrupted) => return Ok(finding),
                }
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
                    self.done += row.runs_of(name);
                    self.report(&format!("{} {name}: skipped: {reason}", row.name));
                    page.add(skipped(row, name, Kind::Peer, reason));
                }
            }
        }
        systems
    }

    fn measured(
        &self,
        row: &Row,
        system: &System,
        measured: Measured,
        label: &str,
        page: &mut Page,
    ) -> bool {
        let Measured { account, version, note } = measured;
        page.describe(&system.name, &version, &system.notes);
        let note = note.map(|note| format!("{}: {note}", system.name));
        let shown = note.as_ref().map_or_else(String::new, |note| format!("; {note}"));
        self.report(&format!("{label}: {}{shown}", in_short(&account)));
        if let Some(note) = note {
            page.remark(&row.name, note);
        }
        let is_broken = trial::is_broken(row, system, &account);
        if is_broken {
            let remark = format!(
                "{}: FAILED: missing {}, duplicates {}, unknown {}, orders {}",
                system.name,
                account.missing,
                account.duplicates,
                account.unknown,
                if account.orders_agree { "agree" } else { "differ" },
            );
            self.report(&format!("{label}: {remark}"));
            page.remark(&row.name, remark);
        }
        page.add(Run {
            row: row.name.clone(),
            system: system.name.clone(),
            kind: system.kind,
            result: RunResult::Measured(Box::new(account)),
        });
        is_broken
    }

    fn report(&self, line: &str) {
        let seconds = self.started.elapsed().as_secs();
        output::say(format_args!("{} of {}, {seconds} s: {line}", self.done, self.total));
    }
}

fn skipped(row: &Row, system: &str, kind: Kind, reason: String) -> Run {
    let result = RunResult::Skipped(reason);
    Run { row: row.name.clone(), system: system.to_owned(), kind, result }
}

/// Returns the main figures of a run in one line.
fn in_short(account: &Account) -> String {
    let ms = |ns: u64| format!("{:.3}", ns as f64 / 1e6);
    let mut text = format!("{} of {} delivered", account.delivered, account.expected);
    let (all, recovered) = (&account.latency, &account.latency_recovered);
    text += &format!(", p50 {} ms, p99 {} ms", ms(all.p50), ms(all.p99));
    if recovered.count > 0 {
        let count = recovered.count;
        text += &format!(
            ", {count} recovered: p50 {} ms, p99 {} ms",
            ms(recovered.p50),
            ms(recovered.p99)
        );
    }
    if let Some(goodput) = account.goodput_slowest {
        text += &format!(", {:.1} MB/s", goodput / 1e6);
    }
    text
}
