use std::fs;
use std::path::Path;

use carom_bench::plan::{Plan, Roles, Row};
use carom_netns::Layout;
use carom_terminal::{CliError, plain};

/// Returns the rows of all built-in plans, in the order of the report.
pub(super) fn built_in() -> Vec<Row> {
    let plans = PLANS.iter().map(|(_, text)| Plan::parse(text).expect("it is tested"));
    plans.flat_map(|plan| plan.rows).collect()
}

/// Returns the rows with these names: names of rows, names of built-in plans, paths of plan files,
/// or `all`.
pub(super) fn named(names: &[String]) -> Result<Vec<Row>, CliError> {
    if names.is_empty() {
        let fix = "use a name from `carom-lab bench list`, a plan file, or all";
        return Err(CliError::new("no row given", fix));
    }
    let mut rows: Vec<Row> = Vec::new();
    for name in names {
        for row in find(name)? {
            if rows.iter().all(|other| other.name != row.name) {
                rows.push(row);
            }
        }
    }
    rows.iter().try_for_each(check)?;
    Ok(rows)
}

/// Returns a short version of a row, for tests.
pub(super) fn quick(row: Row) -> Row {
    let messages = match row.rate {
        rate if rate > 0.0 => (rate * QUICK_SECONDS).ceil() as u32,
        _ => row.messages / QUICK_SHARE,
    };
    let messages = row.messages.min(messages.max(LEAST));
    let end_ms = (QUICK_SECONDS * 1e3) as u64;
    let outages = row.outages.into_iter().filter(|outage| outage.at_ms < end_ms).collect();
    let kill = row.kill.map(|mut kill| {
        kill.at_ms = kill.at_ms.min(end_ms / 2);
        kill
    });
    let file_mib = row.file_mib.map(|mib| mib.min(QUICK_MIB));
    let idle_s = row.idle_s.map(|seconds| seconds.min(QUICK_IDLE_S));
    Row { messages, outages, kill, file_mib, idle_s, repetitions: 1, ..row }
}

/// Returns the layout of a row's lab.
pub(super) fn layout(row: &Row) -> Layout {
    let racks = row.racks as usize;
    let hosts_per_rack = (row.nodes as usize).div_ceil(racks.max(1));
    Layout { racks, hosts_per_rack, mtu: row.mtu, ..Layout::default() }
}

/// Returns a description of a row for people.
pub(super) fn described(row: &Row) -> String {
    let receivers = row.nodes - 1;
    let nodes = match row.roles {
        Roles::OneSender => format!("1 sender, {receivers} receivers"),
        Roles::AllMembers => format!("{} members, all of which send", row.nodes),
    };
    let loss = match (row.loss.share, row.loss.shared) {
        (share, _) if share <= 0.0 => String::new(),
        (share, false) => format!("; {} % of the datagrams lost", share * 100.0),
        (share, true) => format!(
            "; {} racks, {} % of the datagrams lost at the uplink of each rack",
            row.racks,
            share * 100.0
        ),
    };
    if let Some(mib) = row.file_mib {
        return format!("{nodes}; a file of {mib} MiB{loss}");
    }
    let rate = match row.rate {
        rate if rate > 0.0 => format!("{rate} per second"),
        _ => "as fast as possible".to_owned(),
    };
    let Row { groups, messages, size, .. } = row;
    let mut text = format!(
        "{nodes}; groups: {groups}; messages of each sender: {messages} of {size} bytes, {rate}"
    );
    text += &loss;
    if row.mtu != 1500 {
        text += &format!("; MTU {}", row.mtu);
    }
    if let Some(rate) = row.link_mbit {
        text += &format!("; links of {rate} Mbit/s");
    }
    if let Some(mib) = row.background_mib {
        text += &format!("; beside a transfer of {mib} MiB in a second group");
    }
    if let Some(seconds) = row.idle_s {
        text += &format!("; then idle for {seconds} s");
    }
    if let Some(outage) = row.outages.first() {
        let (count, ms) = (row.outages.len(), outage.ms);
        text += &format!("; {count} outages of {ms} ms, each at one receiver");
    }
    if let Some(kill) = row.kill {
        text += &format!("; node {} killed after {} ms", kill.node, kill.at_ms);
    }
    text
}

fn find(name: &str) -> Result<Vec<Row>, CliError> {
    if name.ends_with(".toml") || name.contains('/') {
        return read(Path::new(name));
    }
    if name == "all" {
        return Ok(built_in());
    }
    if let Some((_, text)) = PLANS.iter().find(|(plan, _)| *plan == name) {
        return Ok(Plan::parse(text).expect("it is tested").rows);
    }
    let found: Vec<Row> = built_in().into_iter().filter(|row| row.name == name).collect();
    if found.is_empty() {
        let cause = format!("no row or plan has the name '{name}'");
        return Err(CliError::new(cause, "see `carom-lab bench list` for the names, or use all"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<Row>, CliError> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| {
        let cause = format!("cannot read {name}: {}", plain(&error));
        CliError::new(cause, "use a plan file, such as those in crates/lab/plans")
    })?;
    let plan = Plan::parse(&text).map_err(|error| {
        let cause = format!("{name}: {error}");
        CliError::new(cause, "correct the plan; those in crates/lab/plans are examples")
    })?;
    Ok(plan.rows)
}

/// Refuses a row whose lab cannot be built, before anything is measured.
fn check(row: &Row) -> Result<(), CliError> {
    layout(row).validate().map_err(|error| {
        CliError::new(format!("row '{}': {}", row.name, error.cause()), error.fix())
    })
}

const PLANS: [(&str, &str); 5] = [
    ("time-critical", include_str!("../../plans/time-critical.toml")),
    ("goodput", include_str!("../../plans/goodput.toml")),
    ("ordered", include_str!("../../plans/ordered.toml")),
    ("files", include_str!("../../plans/files.toml")),
    ("rdcm-14", include_str!("../../plans/rdcm-14.toml")),
];
const QUICK_SECONDS: f64 = 2.0;
/// A quick row at full speed has this part of the messages.
const QUICK_SHARE: u32 = 10;
const QUICK_MIB: u32 = 16;
const QUICK_IDLE_S: u32 = 1;
const LEAST: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_rows_have_distinct_names() {
        let all = built_in();
        let rows = named(&["all".to_owned()]).expect("they are valid");
        assert_eq!(rows, all);
        assert!(PLANS.iter().all(|(plan, _)| all.iter().all(|row| row.name != *plan)));
    }

    #[test]
    fn quick_rows_take_seconds_and_keep_their_faults() {
        for row in built_in() {
            let quick = quick(row.clone());
            let seconds = f64::from(quick.messages) / quick.rate.max(10.0);
            assert!(quick.rate == 0.0 || seconds <= 2.0, "{}", row.name);
            assert_eq!(quick.outages.is_empty(), row.outages.is_empty(), "{}", row.name);
            assert_eq!(quick.kill.is_some(), row.kill.is_some(), "{}", row.name);
        }
    }

    #[test]
    fn unknown_row_is_refused_with_the_way_to_the_names() {
        let error = named(&["pace-9".to_owned()]).expect_err("there is none").to_string();
        assert!(error.contains("'pace-9'") && error.contains("bench list"), "{error}");
        assert!(named(&[]).is_err());
        assert_eq!(named(&["pace".to_owned()]).expect("it is built in").len(), 1);
    }

    #[test]
    fn row_whose_lab_cannot_be_built_is_refused() {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let path = dir.path().join("mine.toml");
        let row = "[[row]]\nname = \"a\"\nsystems = [\"raw\"]\nnodes = 300\nmessages = 1\n\
                   rate = 0\nsize = 32\n";
        fs::write(&path, row).expect("the folder is writable");
        let error = named(&[path.display().to_string()]).expect_err("it is refused").to_string();
        assert!(error.contains("row 'a': 300 hosts per rack are not possible"), "{error}");
        assert!(error.contains("fix: use 1 to 249"), "{error}");
    }
}
