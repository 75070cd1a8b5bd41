//! Plans, scenarios and checkers of the simulator on the sockets of a lab.
#![cfg(target_os = "linux")]

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

fn carom_lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns `false`, and reports it, if this machine permits no lab.
fn is_possible() -> bool {
    let output = carom_lab(&["net", "run", "--", "true"]).output().expect("the binary was built");
    if !output.status.success() {
        skipping::lacking(&String::from_utf8_lossy(&output.stderr));
    }
    output.status.success()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn scenarios_of_all_engines_pass_their_checkers_on_sockets() {
    if !is_possible() {
        return;
    }
    let play = |(protocol, seed): (&'static str, &str)| {
        let args = ["sim", "fuzz", "--lab", "--json", "--seeds", "1"];
        let mut command = carom_lab(&args);
        (protocol, command.args(["--protocol", protocol, "--from", seed]).spawn())
    };
    let runs: Vec<_> = SEEDS.into_iter().map(play).collect();
    for (protocol, child) in runs {
        let child: Child = child.expect("the binary was built");
        let output = child.wait_with_output().expect("it has pipes");
        let report = json(&output);
        assert_eq!(report["failures"], Value::Array(Vec::new()), "{protocol}");
        assert_eq!(output.status.code(), Some(0), "{protocol}");
        assert_eq!((&report["seeds"], &report["history"]), (&Value::from(1), &Value::Null));
        assert!(report["steps"].as_u64() > Some(1000), "{protocol}: {report}");
    }
}

#[test]
fn plan_of_the_simulator_runs_on_sockets_unchanged() {
    if !is_possible() {
        return;
    }
    let folder = tempfile::tempdir().expect("there is room for a plan");
    let plan = carom_lab(&["paper", "ricochet-9", "--show-plan"]).output().expect("it was built");
    let plan = String::from_utf8(plan.stdout).expect("plans are text");
    // Few hosts at a low rate, so that a busy machine keeps up. Small groups recover less.
    let few = plan
        .replace("quick = [2, 16, 64, 256, 1024]", "quick = [4]")
        .replace("racks = 4, hosts_per_rack = 16", "racks = 2, hosts_per_rack = 6")
        .replace("mean_size = 10", "mean_size = 6")
        .replace("interval = \"10ms\"", "interval = \"20ms\"")
        .replace("quick = 1500", "quick = 200")
        .replace("at_least_percent = 97.0", "at_least_percent = 60.0")
        .replace("copies = [4.9, 5.1]", "copies = [3.0, 5.5]");
    let file = folder.path().join("few.toml");
    fs::write(&file, few).expect("the folder was just made");
    let (file, out) = (file.display().to_string(), folder.path().display().to_string());
    let args = ["paper", "ricochet-9", "--lab", "--quick", "--runs", "1", "--json", "--plan"];
    let output = carom_lab(&args).args([&file, "--out", &out]).output().expect("it was built");
    let report = json(&output);
    assert_eq!(output.status.code(), Some(0), "{report:#}");
    assert_eq!(report["lab"]["kernel_drops"], Value::from(0));
    let point = &report["experiments"][0]["points"][0];
    assert!(point["losses"].as_f64() > Some(50.0), "{point}");
}

#[test]
fn experiments_that_need_special_links_are_refused_on_sockets() {
    for name in ["rdcm-15", "slingshot-4", "churn"] {
        let output = carom_lab(&["paper", name, "--lab"]).output().expect("it was built");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        assert!(text.contains("fix: ") && text.contains("--lab"), "{name}: {text}");
    }
}

const SEEDS: [(&str, &str); 3] = [("lateral", "5"), ("rmp", "3"), ("rdcm", "4")];
