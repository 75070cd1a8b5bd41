//! Tests `carom tune` from the user's view.

use std::process::{Command, Output};

use serde_json::Value;

fn carom(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom"));
    command.args(args).output().expect("the binary was built for this test")
}

#[test]
fn wrong_use_is_refused_with_a_way_out() {
    let refused = |args: &[&str], cause: &str, fix: &str| {
        let output = carom(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(cause) && text.contains(fix), "{args:?}: {text}");
    };
    refused(&["tune"], "missing required option", "--model");
    refused(&["tune", "--model", "--view", "65"], "views of 65", "--view 64");
    refused(&["tune", "--model", "--loss", "200%"], "at most 100%", "100%");
}

#[test]
fn tune_reports_the_bounds_of_every_c() {
    let output = carom(&["tune", "--model", "--up-to-c", "8", "--json"]);
    let advice: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let points = advice["points"].as_array().expect("a list");
    assert_eq!((points.len(), &advice["group_size"]), (8, &64.into()));
    let lower = points[4]["recovered"]["lower"].as_f64().expect("a number");
    assert!((lower - 0.926).abs() < 5e-4, "{lower}");
}
