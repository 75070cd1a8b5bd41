//! Help, completions, and rejected command lines of `carom-lab`.

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.args(args).output().expect("the binary was built for this test")
}

#[test]
fn every_help_has_an_example() {
    for verb in ["paper", "sim", "completions"] {
        let output = run(&[verb, "--help"]);
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{verb}");
        assert!(text.contains("Example") && text.contains(&format!("carom-lab {verb}")), "{text}");
    }
}

#[test]
fn every_shell_has_completions() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert!(output.status.success(), "{shell}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("carom-lab") && text.contains("show-plan"), "{shell}");
    }
}

#[test]
fn missing_subcommand_is_refused_with_the_list_of_all() {
    let output = run(&[]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    let fix = "fix: use one of paper, sim, completions; see `carom-lab --help`";
    assert_eq!(text.trim_end(), format!("error: no subcommand given\n{fix}"));
}
