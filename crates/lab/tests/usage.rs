//! Help, completions, and rejected command lines of `carom-lab`.

#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_carom-lab"));
    command.args(args).output().expect("the binary was built for this test")
}

#[test]
fn every_help_has_an_example() {
    for verb in ["bench", "net", "paper", "sim", "completions"] {
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
    let fix = "fix: use one of bench, net, paper, sim, completions; see `carom-lab --help`";
    assert_eq!(text.trim_end(), format!("error: no subcommand given\n{fix}"));
}

#[test]
fn a_script_runs_in_a_lab_and_sets_the_exit_code() {
    let script = "ip netns list | wc -l; echo $CAROM_LAB_HOSTS; ip netns exec h2 cat /proc/net/dev \
        | grep -c eth0; cat /etc/resolv.conf; exit 5";
    let output = run(&["net", "run", "--racks", "2", "--hosts", "1", "--", "sh", "-c", script]);
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("user namespaces") || text.contains("is not installed") {
        skipping::lacking(&text.replace('\n', "; "));
        return;
    }
    assert_eq!(output.status.code(), Some(5), "{text}");
    let text = String::from_utf8_lossy(&output.stdout);
    // No host can reach a name server: one in the file would delay each look-up by seconds.
    assert_eq!(text.lines().collect::<Vec<_>>(), ["3", "10.77.1.1 10.77.2.1", "1"]);
}

#[test]
fn captures_and_drop_logs_of_a_lab_are_files_per_host() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (pcap, drops) = (path("pcap"), path("drops"));
    let script = "ip netns exec h1 bash -c 'for i in 1 2 3; do echo > /dev/udp/10.77.2.1/9; done'";
    let lab = ["net", "run", "--racks", "2", "--hosts", "1", "--loss", "100%", "--uplink-loss"];
    let rest = ["bursts:1ms/100s", "--pcap", &pcap, "--drops", &drops, "--", "sh", "-c", script];
    let output = run(&[&lab[..], &rest[..]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    if lacks(&text) {
        return;
    }
    assert!(output.status.success(), "{text}");
    let size = |path: String| std::fs::metadata(path).expect("it was written").len();
    // A file without packets has 24 bytes.
    assert!(size(format!("{pcap}/h1.pcap")) > 24);
    assert!(size(format!("{drops}/h2.drops.pcap")) > 24);
    assert_eq!(size(format!("{drops}/h1.drops.pcap")), 24);
}

#[test]
fn datagrams_that_an_uplink_loses_are_in_the_log_of_its_rack() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let drops = folder.path().display().to_string();
    let script = "ip netns exec h1 bash -c 'for i in 1 2 3; do echo > /dev/udp/10.77.2.1/9; done'";
    let lab = ["net", "run", "--racks", "2", "--hosts", "1", "--uplink-loss", "100%"];
    let output = run(&[&lab[..], &["--drops", &drops, "--", "sh", "-c", script]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    if lacks(&text) {
        return;
    }
    assert!(output.status.success(), "{text}");
    // Header and time of a packet, headers of IP and UDP, and a line feed.
    let packet = 16 + 20 + 8 + 1;
    for (name, packets) in [("rack2", 3), ("rack1", 0), ("h2", 0)] {
        let file = folder.path().join(format!("{name}.drops.pcap"));
        let size = std::fs::metadata(file).expect("it was written").len();
        assert_eq!(size, 24 + packets * packet, "{name}");
    }
}

/// Reports a test that cannot run here.
fn lacks(stderr: &str) -> bool {
    let lacks = ["user namespaces", "is not installed", "tcpdump refuses"];
    let lacks = lacks.iter().any(|text| stderr.contains(text));
    if lacks {
        skipping::lacking(&stderr.replace('\n', "; "));
    }
    lacks
}

#[test]
fn an_impossible_lab_is_refused_with_the_range() {
    let output = run(&["net", "run", "--hosts", "400", "--", "true"]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(text, "error: 400 hosts per rack are not possible\nfix: use 1 to 249\n");
}

#[test]
fn removed_namespaces_are_listed_as_json() {
    let output = run(&["net", "clean", "--json"]);
    assert!(output.status.success());
    let text = String::from_utf8_lossy(&output.stdout);
    let report: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    assert!(report["removed"].is_array(), "{text}");
}
