use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use carom_bench::plan::Row;
use carom_bench::report::{Report, Run, Syscalls};
use carom_terminal::{CliError, plain};
use serde_json::json;

use super::cases;
use super::machine::Machine;
use super::relations;
use super::system::System;

/// The results of a bench, for people and for programs.
pub(super) struct Page {
    machine: Machine,
    rows: Vec<Row>,
    report: Report,
    versions: BTreeMap<String, String>,
    /// Remarks on runs, by row.
    remarks: BTreeMap<String, BTreeSet<String>>,
    /// Sentences about peers, by system.
    notes: BTreeMap<String, Vec<String>>,
}

impl Page {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            rows: Vec::new(),
            report: Report::default(),
            versions: BTreeMap::new(),
            remarks: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    pub(super) fn begin(&mut self, row: &Row) {
        self.rows.push(row.clone());
    }

    pub(super) fn add(&mut self, run: Run) {
        self.report.runs.push(run);
    }

    /// Adds the number of system calls per message, or the reason why it is not known.
    pub(super) fn add_syscalls(
        &mut self,
        row: &Row,
        system: &System,
        counted: Result<f64, String>,
    ) {
        let (row, system) = (row.name.clone(), system.name.clone());
        let (per_message, reason) = match counted {
            Ok(per_message) => (Some(per_message), None),
            Err(reason) => (None, Some(reason)),
        };
        self.report.syscalls.push(Syscalls { row, system, per_message, reason });
    }

    pub(super) fn remark(&mut self, row: &str, remark: String) {
        self.remarks.entry(row.to_owned()).or_default().insert(remark);
    }

    /// Sets the version and the notes of a system.
    pub(super) fn describe(&mut self, system: &str, version: &str, notes: &[String]) {
        self.versions.insert(system.to_owned(), version.to_owned());
        let base = system.split(':').next().unwrap_or(system);
        if !notes.is_empty() {
            self.notes.insert(base.to_owned(), notes.to_vec());
        }
    }

    /// Writes `benchmarks.md`, `benchmarks.json`, and a chart for each row in the folder
    /// `benchmarks`. Each file is replaced as a whole, so that a bench that is killed leaves each
    /// file whole.
    pub(super) fn write(&self, out: &Path, interrupted: bool) -> Result<(), CliError> {
        let folder = out.join(CHARTS);
        fs::create_dir_all(&folder).map_err(|error| {
            let cause = format!("cannot create {}: {}", folder.display(), plain(&error));
            CliError::new(cause, "use a writable directory with --out")
        })?;
        let put = |name: &str, text: &str| {
            let path = out.join(name);
            let part = out.join(format!("{name}.part"));
            let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
            written.map_err(|error| {
                let cause = format!("cannot write {}: {}", path.display(), plain(&error));
                CliError::new(cause, "use a writable directory with --out")
            })
        };
        put("benchmarks.json", &format!("{}\n", self.json(interrupted)))?;
        put("benchmarks.md", &self.markdown())?;
        let cpu = relations::figure(&self.report, &self.rows);
        if !cpu.is_empty() {
            put(&format!("{CHARTS}/cpu-by-rate.svg"), &cpu)?;
        }
        for row in &self.rows {
            let svg = self.of(row).svg();
            if !svg.is_empty() {
                put(&format!("{CHARTS}/{}.svg", row.name), &svg)?;
            }
        }
        Ok(())
    }

    pub(super) fn json(&self, interrupted: bool) -> serde_json::Value {
        json!({
            "machine": self.machine,
            "versions": self.versions,
            "runs": self.report.runs,
            "syscalls": self.report.syscalls,
            "remarks": self.remarks,
            "interrupted": interrupted,
        })
    }

    /// Returns the sections of the rows, without the head of the page.
    pub(super) fn sections(&self) -> String {
        let sections: Vec<String> = self.rows.iter().map(|row| self.section(row)).collect();
        sections.join("\n")
    }

    fn markdown(&self) -> String {
        let mut text = format!("{HEAD}\nMachine: {}.\n", self.machine.described());
        text += &format!("\n## Main results\n\n{MAIN}\n{}", self.report.overview());
        text += "\n## Versions\n\n| system | version |\n|---|---|\n";
        for (system, version) in &self.versions {
            text += &format!("| {system} | {version} |\n");
        }
        text += &format!("\n## Rows\n\n{}", self.sections());
        if !relations::figure(&self.report, &self.rows).is_empty() {
            text += "\n## CPU at set rates\n\n![CPU at set rates](benchmarks/cpu-by-rate.svg)\n";
        }
        if !self.notes.is_empty() {
            text += "\n## Notes on the systems\n\n";
        }
        for (system, notes) in &self.notes {
            text += &format!("- **{system}**: {}\n", notes.join(" "));
        }
        text
    }

    fn section(&self, row: &Row) -> String {
        let report = self.of(row);
        let text = report.markdown();
        let (title, body) = text.split_once("\n\n").unwrap_or((&text, ""));
        let mut text = format!("{title}\n\n{}.\n\n{body}", cases::described(row));
        text += &relations::text(&self.report, row);
        for remark in self.remarks.get(&row.name).into_iter().flatten() {
            text += &format!("\n{remark}.\n");
        }
        if !report.svg().is_empty() {
            text += &format!("\n![Results of {name}]({CHARTS}/{name}.svg)\n", name = row.name);
        }
        text
    }

    fn of(&self, row: &Row) -> Report {
        let Report { runs, syscalls } = &self.report;
        let runs = runs.iter().filter(|run| run.row == row.name).cloned().collect();
        let syscalls = syscalls.iter().filter(|it| it.row == row.name).cloned().collect();
        Report { runs, syscalls }
    }
}

/// Folder of the charts, beside the page.
const CHARTS: &str = "benchmarks";

const HEAD: &str = "# Benchmarks

Written by `carom-lab bench`. [Benchmarking](benchmarking.md) describes the rows, the method and the
columns.
";

const MAIN: &str = "A ratio is the result of Carom divided by that of the other system in the same
turn: the median of the turns, with the other system and the range of the turns in parentheses.
Where the turns differ by more than 20 %, only the range is shown. A ratio is in bold where the best
peer is ahead of Carom, or ahead in any turn of a range.
";
