//! Tests `carom-lab paper` from the user's view.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn carom_lab(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.args(args).output().expect("the binary was built for this test")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("the target folder can be written to");
    folder
}

fn small_plan(folder: &std::path::Path) -> String {
    let plan = carom_lab(&["paper", "ricochet-11", "--show-plan"]);
    let plan = String::from_utf8(plan.stdout).expect("plans are text");
    let small = plan.replace("quick = 1500", "quick = 300");
    assert_ne!(plan, small);
    let file = folder.join("small.toml");
    fs::write(&file, small).expect("the folder was just made");
    file.display().to_string()
}

#[test]
fn wrong_use_is_refused_with_a_way_out() {
    let refused = |args: &[&str], cause: &str, fix: &str| {
        let output = carom_lab(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.contains(cause) && text.contains(fix), "{args:?}: {text}");
    };
    refused(&["paper"], "no experiment given", "carom-lab paper --list");
    refused(&["paper", "slingshot-9"], "unknown experiment 'slingshot-9'", "slingshot-2a");
    refused(&["paper", "nonsense"], "unknown experiment 'nonsense'", "--list");
    refused(&["paper", "ricochet-11", "--jobs", "0"], "0", "fix");
    refused(&["paper", "ricochet-11", "--plan", "/nowhere.toml"], "/nowhere.toml", "--show-plan");
}

#[test]
fn plan_with_an_unknown_key_is_refused_with_the_known_keys() {
    let folder = folder("unknown-key");
    let plan = small_plan(&folder);
    let text = fs::read_to_string(&plan).expect("it was just written");
    fs::write(&plan, text.replace("mean_size", "men_size")).expect("it can be written again");
    let output = carom_lab(&["paper", "ricochet-11", "--plan", &plan]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("small.toml:") && text.contains("unknown key 'men_size'"), "{text}");
    assert!(text.contains("known keys here: bed, rate_of_fire, mean_size"), "{text}");
}

#[test]
fn all_experiments_are_listed() {
    let list = json(&carom_lab(&["paper", "--list", "--json"]));
    let names: Vec<&str> = list["experiments"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|experiment| experiment["name"].as_str())
        .collect();
    assert_eq!(
        names,
        [
            "slingshot-2a",
            "slingshot-2b",
            "slingshot-3",
            "slingshot-4",
            "slingshot-5",
            "slingshot-model",
            "ricochet-4",
            "ricochet-8",
            "ricochet-9",
            "ricochet-10",
            "ricochet-11",
            "ricochet-12",
            "ricochet-13",
            "ricochet-14",
            "ricochet-15",
            "ricochet-latency",
            "ricochet-burst",
            "ricochet-stagger",
            "ricochet-loss",
            "ricochet-model",
            "discovery",
            "defaults",
            "rmp-5.1",
            "rmp-5.2",
            "rmp-5.3",
            "rmp-loss",
            "rdcm-10",
            "rdcm-11",
            "rdcm-12",
            "rdcm-15",
            "rdcm-table1",
            "churn",
        ]
    );
}

#[test]
fn same_seed_gives_the_same_files_and_json_for_any_jobs() {
    let folder = folder("same-seed");
    let plan = small_plan(&folder);
    let run = |out: &str, seed: &str, jobs: &str| {
        let out = folder.join(out);
        let out_text = out.display().to_string();
        let args = ["paper", "ricochet-11", "--quick", "--json", "--plan", &plan];
        let more = ["--out", &out_text, "--seed", seed, "--jobs", jobs];
        let output = carom_lab(&[&args[..], &more[..]].concat());
        let files = ["ricochet-11.csv", "ricochet-11.svg", "report.html"];
        let files = files.map(|file| fs::read_to_string(out.join(file)).expect("it was written"));
        (json(&output), files, output.status.code())
    };
    let (report, files, code) = run("one", "5", "1");
    assert_eq!(code, Some(0));
    let (again, same, _) = run("two", "5", "2");
    assert_eq!((&report, &files), (&again, &same));
    let (_, other, _) = run("other", "6", "2");
    assert_ne!(files[0], other[0]);
    assert!(files[2].contains("<svg") && !files[2].contains("<script"));
    assert!(files[0].starts_with("groups_per_node,losses,losses_min,losses_max,"));

    let experiment = &report["experiments"][0];
    assert_eq!(experiment["name"], "ricochet-11");
    assert_eq!((&report["holds"], &experiment["holds"]), (&true.into(), &true.into()));
    assert_eq!(experiment["points"][0]["groups_per_node"], 64);
    let relation = &experiment["relations"][0];
    for field in
        ["claim", "measured", "min", "max", "sense", "limit", "margin", "unit", "holds", "note"]
    {
        assert!(!relation[field].is_null(), "{field}");
    }
    assert_eq!(experiment["runs"], 3);
    let point = &experiment["points"][0];
    assert!(point["mean_delay_ms_min"].as_f64() < point["mean_delay_ms_max"].as_f64());
    for field in ["title", "source", "seed", "quick", "better", "notes"] {
        assert!(!experiment[field].is_null(), "{field}");
    }
}

#[test]
fn a_relation_that_does_not_hold_ends_with_code_1() {
    let folder = folder("not-held");
    let plan = small_plan(&folder);
    let text = fs::read_to_string(&plan).expect("it was just written");
    let strict = text.replace("p99_at_most_ms = 120.0", "p99_at_most_ms = 0.001");
    assert_ne!(text, strict);
    fs::write(&plan, strict).expect("it can be written again");
    let out = folder.join("out").display().to_string();
    let args = ["paper", "ricochet-11", "--quick", "--runs", "2", "--plan", &plan, "--out", &out];
    let output = carom_lab(&args);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("DOES NOT HOLD"));
    assert!(stderr(&output).contains("2 of 2 runs"), "{}", stderr(&output));
}
