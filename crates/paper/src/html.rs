//! Reports as one HTML page, without scripts or references to other files.

use std::fmt::Write as _;

use carom_figures::significant;

use crate::relation::{Relation, Sense, least_first};
use crate::report::Report;
use crate::table::{Cell, Spread, Table};

/// Returns the reports as one self-contained page.
pub fn page(reports: &[Report]) -> String {
    let mut out = String::new();
    let _ = write!(
        out,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <title>Reproduced evaluations</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>The evaluations of Slingshot, Ricochet, RMP and RDCM, reproduced</h1>\n"
    );
    if let Some(first) = reports.first() {
        let length = if first.quick { "short runs (--quick)" } else { "full runs" };
        let _ = writeln!(
            out,
            "<p>Simulated with carom {}, seeds from {} on, {length}. Results are means over the \
             runs with different seeds; smallest and largest values are in parentheses, and error \
             bars and thin lines show them in figures. Relations are judged on the means. \
             Recovered shares count repairs only. Delays run from the multicast of a message to \
             its delivery, and include the discovery of the loss.</p>",
            env!("CARGO_PKG_VERSION"),
            first.seed
        );
    }
    summary(&mut out, reports);
    for report in reports {
        section(&mut out, report);
    }
    out += "</body></html>\n";
    out
}

fn summary(out: &mut String, reports: &[Report]) {
    *out += "<table><tr><th>experiment</th><th>title</th><th>relations</th>\
             <th>smallest margin</th></tr>\n";
    for report in reports {
        let closest = report.relations.iter().min_by(|a, b| least_first(&share(a), &share(b)));
        let margin = closest.map_or_else(String::new, |relation| {
            format!("{} ({})", margin(relation), escape(&relation.claim))
        });
        let name = escape(report.name());
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{name}\">{name}</a></td><td>{}</td><td>{}</td><td>{margin}</td>\
             </tr>",
            escape(&report.heading.title),
            verdict(report)
        );
    }
    *out += "</table>\n";
}

fn section(out: &mut String, report: &Report) {
    let heading = &report.heading;
    let name = escape(report.name());
    let _ = writeln!(
        out,
        "<section id=\"{name}\"><h2>{name}: {}</h2>\n<p class=\"source\">{}; {} runs</p>\n\
         <p><b>The paper reports:</b> {}</p>",
        escape(&heading.title),
        escape(&heading.source),
        report.runs,
        escape(&heading.reports)
    );
    relations(out, report);
    better(out, report);
    let figure = report.svg();
    let _ = writeln!(out, "<figure>{figure}</figure>");
    list(out, "Differences from the paper", &heading.differs);
    list(out, "Notes", &report.notes);
    points(out, "Points", &report.table);
    if let Some(measured) = &report.measured {
        points(out, "CPU time on this machine", measured);
    }
    *out += "</section>\n";
}

fn relations(out: &mut String, report: &Report) {
    if report.relations.is_empty() {
        *out += "<p>Shown only: no relation must hold.</p>\n";
        return;
    }
    *out += "<table><tr><th>relation</th><th>measured</th><th>limit</th><th>margin</th>\
             <th>result</th><th>note</th></tr>\n";
    for relation in &report.relations {
        let (class, word) = if relation.holds { ("yes", "holds") } else { ("no", "does not hold") };
        let side = if relation.sense == Sense::AtLeast { "≥" } else { "≤" };
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{side} {}</td><td>{}</td><td class=\"{class}\">{word}\
             </td><td>{}</td></tr>",
            escape(&relation.claim),
            with_range(relation.measured, (relation.min, relation.max), relation.unit),
            with_unit(relation.limit, relation.unit),
            margin(relation),
            escape(&relation.note)
        );
    }
    *out += "</table>\n";
}

fn better(out: &mut String, report: &Report) {
    if report.better.is_empty() {
        return;
    }
    *out += "<p><b>Better than in the paper:</b></p><table><tr><th>value</th><th>Carom</th>\
             <th>paper</th></tr>\n";
    for better in &report.better {
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&better.what),
            with_unit(better.ours, better.unit),
            with_unit(better.papers, better.unit)
        );
    }
    *out += "</table>\n";
}

fn list(out: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "<p><b>{title}:</b></p><ul>");
    for item in items {
        let _ = writeln!(out, "<li>{}</li>", escape(item));
    }
    *out += "</ul>\n";
}

fn points(out: &mut String, title: &str, table: &Table) {
    let _ = write!(out, "<details><summary>{title}</summary><table><tr>");
    for column in &table.columns {
        let _ = write!(out, "<th>{}</th>", escape(column));
    }
    *out += "</tr>\n";
    for row in &table.rows {
        *out += "<tr>";
        for cell in row {
            let _ = write!(out, "<td>{}</td>", escape(&with_ends(cell)));
        }
        *out += "</tr>\n";
    }
    *out += "</table></details>\n";
}

fn verdict(report: &Report) -> &'static str {
    match (report.relations.is_empty(), report.holds()) {
        (true, _) => "shown",
        (false, true) => "<span class=\"yes\">holds</span>",
        (false, false) => "<span class=\"no\">does not hold</span>",
    }
}

fn share(relation: &Relation) -> f64 {
    relation.margin / relation.limit.abs().max(f64::MIN_POSITIVE)
}

fn margin(relation: &Relation) -> String {
    let sign = if relation.margin >= 0.0 { "+" } else { "" };
    let unit = if relation.unit == "%" { "points" } else { relation.unit };
    format!("{sign}{}", with_unit(relation.margin, unit))
}

fn with_unit(value: f64, unit: &str) -> String {
    let number = if value.is_finite() { significant4(value) } else { "n/a".to_owned() };
    if unit.is_empty() { number } else { format!("{number} {}", escape(unit)) }
}

fn with_range(value: f64, (min, max): (f64, f64), unit: &str) -> String {
    let all = with_unit(value, unit);
    if min == max || !value.is_finite() {
        return all;
    }
    format!("{all} ({} to {})", significant4(min), significant4(max))
}

/// Formats a cell, with the smallest and the largest value of several runs if they differ.
fn with_ends(cell: &Cell) -> String {
    match cell {
        Cell::Spread(Spread { mean, min, max }) if min != max && mean.is_finite() => {
            with_range(*mean, (*min, *max), "")
        }
        _ => cell.text(),
    }
}

fn significant4(value: f64) -> String {
    let rounded = format!("{value:.3e}").parse().unwrap_or(value);
    significant(rounded)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const STYLE: &str = "body{font:16px/1.45 system-ui,sans-serif;max-width:66rem;margin:2rem auto;\
padding:0 1rem;color:#1a1a1a;background:#fff}table{border-collapse:collapse;margin:.6rem 0;\
font-size:.92rem}th,td{border:1px solid #ccc;padding:.25rem .55rem;text-align:left;\
vertical-align:top}th{background:#f3f3f3}section{border-top:2px solid #ccc;margin-top:2.2rem}\
figure{margin:1rem 0;overflow-x:auto}svg{max-width:100%;height:auto}.source{color:#555;\
margin-top:-.6rem}.yes{color:#00694c;font-weight:600}.no{color:#a33a00;font-weight:700}\
details{margin:.6rem 0}summary{cursor:pointer}";

#[cfg(test)]
mod tests {
    use super::*;
    use carom_figures::{Axis, Figure};

    use crate::plan::{Heading, Reported, RunScale};
    use crate::relation::Better;
    use crate::report::Findings;
    use crate::table::Rows;

    fn report(relations: Vec<Relation>) -> Report {
        let heading = Heading {
            experiment: "ricochet-9".to_owned(),
            title: "Groups & losses".to_owned(),
            source: "Ricochet, figure 9".to_owned(),
            reports: "flat".to_owned(),
            differs: vec!["no Java".to_owned()],
            reported: vec![Reported {
                figure: "recovered".to_owned(),
                label: "points of theirs".to_owned(),
                points: vec![(2.0, 97.5)],
            }],
        };
        let figure = Figure::new("recovered", "Recovered", Axis::log("d", 2.0), Axis::linear("%"));
        let table = Rows(&[2_u64]).table(1, &[("d", |d| (*d).into())]);
        let better = Better::if_higher("recovered", 98.5, 97.5, "%").into_iter().collect();
        let figures = vec![figure.ours("ours", vec![(2.0, 98.5)])];
        let findings = Findings { table, figures, relations, better, ..Findings::default() };
        Report::new(heading, RunScale { quick: false, seed: 1 }, 1, findings)
    }

    #[test]
    fn page_has_the_figure_the_papers_points_and_all_relations() {
        let holds = Relation::at_least("at least 97 %", 98.5, 97.0, "%").noted("at d = 2");
        let fails = Relation::at_most("below 5 ms", 8.25, 5.0, "ms");
        let page = page(&[report(vec![holds, fails])]);
        for text in [
            "<svg",
            "points of theirs",
            "+1.5 points",
            "≥ 97 %",
            "-3.25 ms",
            "does not hold",
            "Groups &amp; losses",
            "Better than in the paper",
            "no Java",
            "seeds from 1 on",
            "at d = 2",
        ] {
            assert!(page.contains(text), "{text} is missing");
        }
        assert!(!page.contains("http://") || page.matches("http://").count() == 1);
    }

    #[test]
    fn report_without_relations_is_marked_as_shown_only() {
        assert!(page(&[report(Vec::new())]).contains("Shown only: no relation must hold"));
    }
}
