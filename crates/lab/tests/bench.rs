//! Tests `carom-lab bench` from the user's view, with real sockets in network namespaces.
#![cfg(target_os = "linux")]

#[path = "../../cli/tests/lab/skipping.rs"]
mod skipping;

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// A folder with a link to the program. Its processes are identified by their environment, which
/// every program that they start inherits.
struct Place {
    folder: PathBuf,
    program: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tmp")).expect("the target folder is writable");
        let program = folder.join("carom-lab");
        // A child that another test starts at this moment would keep a copy open for writing, so
        // that it could not be started.
        fs::hard_link(env!("CARGO_BIN_EXE_carom-lab"), &program).expect("the binary was built");
        Self { folder, program }
    }

    /// Writes a plan with one row of 4 nodes.
    fn plan(&self, systems: &str, messages: u32, more: &str) -> PathBuf {
        let text = format!(
            "[[row]]\nname = \"small\"\nsystems = [{systems}]\nnodes = 4\nmessages = {messages}\n\
             rate = 400\nsize = 256\n{more}\n"
        );
        let path = self.folder.join("plan.toml");
        fs::write(&path, text).expect("the folder is writable");
        path
    }

    fn command(&self, plan: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["bench", "run"]).arg(plan).arg("--out").arg(self.folder.join("out"));
        command.arg("--peers").arg(self.folder.join("peers")).arg("--json");
        command.env(PLACE, &self.folder).env("TMPDIR", self.folder.join("tmp"));
        command
    }

    /// Writes a peer whose node runs `before`, then a node of raw sockets, then `after` in the
    /// folder of its deliveries.
    fn peer(&self, name: &str, before: &str, after: &str) {
        let folder = self.folder.join("peers").join(name);
        fs::create_dir_all(&folder).expect("the folder is writable");
        let script = format!(
            "{before}\n\
             dir=; before=; for word; do [ \"$before\" = --dir ] && dir=$word; before=$word; done\n\
             {} bench node --system raw \"$@\" || exit\n\
             cd \"$dir\" && [ -e delivered.bin ] || exit 0\n{after}\n",
            self.program.display()
        );
        fs::write(folder.join("node"), script).expect("the folder is writable");
        fs::write(folder.join("settings"), "").expect("the folder is writable");
        let manifest = format!(
            "start = [\"sh\", \"{{out}}/{name}/node\"]\nsupports = [\"groups\"]\ngroups = 1\n\
             settings = {{ default = \"settings\" }}\n"
        );
        fs::write(folder.join("manifest.toml"), manifest).expect("the folder is writable");
    }

    /// Returns the command lines of the processes of this place, in all namespaces.
    fn processes(&self) -> Vec<String> {
        let mark = format!("{PLACE}={}", self.folder.display());
        let processes = fs::read_dir("/proc").expect("/proc is mounted").flatten();
        let found = processes.filter_map(|process| {
            let environment = fs::read(process.path().join("environ")).ok()?;
            let mut variables = environment.split(|byte| *byte == 0);
            variables.find(|variable| *variable == mark.as_bytes())?;
            let words = fs::read_to_string(process.path().join("cmdline")).unwrap_or_default();
            // A process that has ended and was not waited for has no words.
            (!words.is_empty()).then(|| words.replace('\0', " "))
        });
        found.collect()
    }

    /// Returns what a bench has left: processes, temporary files, files in the folders that it
    /// covers, and namespaces. Waits for the end of processes that the kernel still ends.
    fn leftovers(&self) -> Vec<String> {
        wait_for(Duration::from_secs(10), || self.processes().is_empty());
        let files = |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten();
        let temporary = files(self.folder.join("tmp"));
        let covered = ["/mnt", "/media", "/srv"].map(|folder| Path::new(folder).join("run"));
        let runs = covered.into_iter().flat_map(files);
        let names = temporary.chain(runs).map(|file| file.path().display().to_string());
        self.processes().into_iter().chain(names).chain(namespaces()).collect()
    }

    fn start(&self, plan: &Path) -> Child {
        let mut command = self.command(plan);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the binary was linked")
    }

    /// Runs the program to its end, with this exit code. Returns its report and its messages, or
    /// `None` after a report if this machine permits no lab.
    fn report(&self, plan: &Path, args: &[&str], code: i32) -> Option<(Value, String)> {
        let output = self.command(plan).args(args).output().expect("the binary was linked");
        if is_refused(&output) {
            return None;
        }
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let report = serde_json::from_slice(&output.stdout).expect("it is JSON");
        Some((report, String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// Returns the report for people.
    fn page(&self) -> String {
        fs::read_to_string(self.folder.join("out/benchmarks.md")).expect("it is written")
    }

    /// Waits until the nodes run. Returns `false` if the program ended before.
    fn has_nodes(&self, child: &mut Child) -> bool {
        wait_for(Duration::from_secs(60), || {
            let nodes = self.processes();
            let count = nodes.iter().filter(|words| words.contains(" bench node ")).count();
            count >= 4 || child.try_wait().expect("it is our child").is_some()
        });
        child.try_wait().expect("it is our child").is_none()
    }
}

fn wait_for(timeout: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let give_up = Instant::now() + timeout;
    while Instant::now() < give_up {
        if is_done() {
            return true;
        }
        thread::sleep(Duration::from_millis(20));
    }
    is_done()
}

/// Returns `true` and reports it if this machine permits no lab.
fn is_refused(output: &Output) -> bool {
    let text = String::from_utf8_lossy(&output.stderr);
    let is_refused = text.contains("user namespaces") || text.contains("is not installed");
    if is_refused {
        skipping::lacking(&text.replace('\n', "; "));
    }
    is_refused
}

fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name == "h1" || name.starts_with("lab")).collect()
}

fn account<'a>(report: &'a Value, system: &str) -> &'a Value {
    let runs = report["runs"].as_array().expect("there are runs");
    let run = runs.iter().find(|run| run["system"] == system).expect("it was measured");
    &run["result"]["measured"]
}

fn number(account: &Value, name: &str) -> u64 {
    account[name].as_u64().unwrap_or_else(|| panic!("{name}: {account}"))
}

#[test]
fn lost_messages_are_those_of_the_drop_log() {
    let place = Place::new("bench-loss");
    let plan = place.plan("\"carom\", \"raw\"", 800, "loss = { share = 0.02 }");
    let Some((report, _)) = place.report(&plan, &[], 0) else { return };
    let raw = account(&report, "raw");
    assert_eq!(number(raw, "expected"), 2_400);
    assert!(number(raw, "missing") > 0, "{raw}");
    // Each datagram of raw sockets is one message, so that three independent counts must agree:
    // what was not delivered, what the log and the kernel show, and the datagrams in the log.
    assert_eq!(number(raw, "missing"), number(raw, "lost") + number(raw, "kernel_drops"));
    assert_eq!(number(raw, "lost"), number(raw, "datagrams_dropped"));
    assert_eq!(number(&raw["latency_recovered"], "count"), 0);
    let carom = account(&report, "carom");
    assert_eq!((number(carom, "delivered"), number(carom, "missing")), (2_400, 0));
    assert_eq!((number(carom, "duplicates"), number(carom, "unknown")), (0, 0));
    assert!(number(carom, "lost") > 0, "{carom}");
    assert_eq!(number(carom, "lost"), number(&carom["latency_recovered"], "count"));
    assert!(number(carom, "datagrams_dropped") > number(carom, "lost"), "repairs get lost, too");
    let recovered = number(&carom["latency_recovered"], "p50");
    assert!(recovered > number(&carom["latency_kept"], "p50"), "{carom}");
    let files = fs::read_dir(place.folder.join("out")).expect("it was created").flatten();
    let mut files: Vec<_> = files.map(|file| file.file_name()).collect();
    files.sort();
    assert_eq!(files, ["benchmarks", "benchmarks.json", "benchmarks.md"]);
    assert!(place.folder.join("out/benchmarks/small.svg").exists());
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn peer_that_forges_its_deliveries_is_found_out() {
    let place = Place::new("bench-forger");
    let forge = |peer: &str, forgery: &str| place.peer(peer, "", forgery);
    forge("less", "head -c -16 delivered.bin >forged && mv forged delivered.bin");
    forge("twice", "head -c 32 delivered.bin >forged && cat forged >>delivered.bin");
    forge("broken", "echo out of order >&2; exit 9");
    let plan = place.plan("\"less\", \"twice\", \"broken\", \"missing\"", 100, "");
    let Some((report, shown)) = place.report(&plan, &[], 1) else { return };
    let less = account(&report, "less");
    assert_eq!((number(less, "missing"), number(less, "duplicates")), (3, 0));
    let twice = account(&report, "twice");
    assert_eq!((number(twice, "missing"), number(twice, "duplicates")), (0, 6));
    let text = place.page();
    assert!(text.contains("\nbroken: failed in 1 of 1 runs: node "), "{text}");
    assert!(text.contains("failed: exit status: 9: out of order.\n"), "{text}");
    assert!(shown.contains("out of order\nfix: "), "{shown}");
    assert!(text.contains("Not measured: missing (not built: "), "{text}");
}

#[test]
fn daemons_of_a_peer_end_with_the_bench_or_its_death() {
    let place = Place::new("bench-daemon");
    place.peer("daemon", "setsid sleep 7654 >/dev/null 2>&1 &", "");
    let plan = place.plan("\"daemon\"", 800, "");
    let mut child = place.start(&plan);
    let has_daemon = |place: &Place| place.processes().iter().any(|it| it.contains("sleep 7654"));
    let is_started = |child: &mut Child| {
        wait_for(Duration::from_secs(60), || {
            has_daemon(&place) || child.try_wait().expect("it is our child").is_some()
        });
        has_daemon(&place)
    };
    if !is_started(&mut child) {
        let output = child.wait_with_output().expect("it is our child");
        assert!(is_refused(&output), "no daemon was seen: {output:?}");
        return;
    }
    let output = child.wait_with_output().expect("it is our child");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(place.leftovers(), [] as [String; 0]);
    let mut child = place.start(&plan);
    assert!(is_started(&mut child), "no daemon was seen");
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn killed_bench_leaves_nothing_behind() {
    let place = Place::new("bench-killed");
    let plan = place.plan("\"carom\"", 40_000, "");
    let mut child = place.start(&plan);
    if !place.has_nodes(&mut child) {
        let output = child.wait_with_output().expect("it is our child");
        assert!(is_refused(&output), "it ended early: {output:?}");
        return;
    }
    child.kill().expect("it is our child");
    child.wait().expect("it is our child");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn killed_bench_leaves_the_report_of_its_rows() {
    let place = Place::new("bench-rows");
    let second = "[[row]]\nname = \"long\"\nsystems = [\"raw\"]\nnodes = 2\nmessages = 40_000\n\
                  rate = 400\nsize = 256\n";
    let plan = place.plan("\"raw\"", 40, second);
    let mut child = place.start(&plan);
    let json = place.folder.join("out/benchmarks.json");
    let is_written = wait_for(Duration::from_secs(60), || {
        json.exists() || child.try_wait().expect("it is our child").is_some()
    });
    assert!(is_written, "no row ended");
    child.kill().expect("it is our child");
    let output = child.wait_with_output().expect("it is our child");
    if is_refused(&output) {
        return;
    }
    let report: Value = serde_json::from_slice(&fs::read(&json).expect("it is written"))
        .expect("it is replaced as a whole");
    assert_eq!(
        (number(account(&report, "raw"), "expected"), &report["interrupted"]),
        (120, &Value::Bool(true))
    );
    let text = place.page();
    assert!(text.contains("### small"), "{text}");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn benches_that_differ_are_compared_with_exit_code_1() {
    let place = Place::new("bench-compare");
    let write = |name: &str, p50: u64, interrupted: bool| {
        let quantiles = |p50: u64| {
            let (count, mean) = (9, 0.0);
            json!({ "count": count, "mean": mean, "p50": p50, "p90": 0, "p99": 0, "p999": 0,
                    "max": 0 })
        };
        let run = |system: &str, kind: &str, p50: u64| {
            let account = json!({
                "receivers": 1, "killed": 0, "sent": 1, "expected": 1, "delivered": 1, "missing": 0,
                "duplicates": 0, "unknown": 0, "lost": 0, "unclassified": 0, "datagrams_dropped": 0,
                "is_paced": true,
                "order": [], "orders_agree": true, "out_of_order": 0, "send_delay": quantiles(0),
                "latency": quantiles(p50),
                "latency_kept": quantiles(0), "latency_recovered": quantiles(0),
                "spread": quantiles(0),
            });
            let result = json!({ "measured": account });
            json!({ "row": "pace", "system": system, "turn": 1, "kind": kind, "order": "none",
                    "result": result })
        };
        let runs = [run("carom", "carom", 1000), run("raw", "raw", p50)];
        let text = json!({ "runs": runs, "interrupted": interrupted }).to_string();
        fs::write(place.folder.join(name), text).expect("the folder is writable");
    };
    write("a.json", 500, false);
    write("b.json", 550, false);
    write("c.json", 1000, false);
    write("part.json", 500, true);
    let compared = |first: &str, second: &str| {
        let mut command = Command::new(&place.program);
        command.args(["bench", "compare", first, second]).current_dir(&place.folder);
        let output = command.output().expect("the binary was linked");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), text)
    };
    let (code, text) = compared("a.json", "b.json");
    let line = "1 ratios, of which 0 are ranges: 0 differences of more than 20 %; \
                0 ratios of one turn left out\n";
    assert_eq!((code, &*text), (Some(0), line));
    let (code, text) = compared("a.json", "c.json");
    let line = "pace, carom, latency p50 to raw sockets: 2 (raw) and 1 (raw), 100 %\n";
    assert!(code == Some(1) && text.starts_with(line), "{text}");
    let (code, text) = compared("a.json", "part.json");
    assert!(code == Some(2) && text.contains("was interrupted"), "{text}");
    let (code, text) = compared("a.json", "plan.toml");
    assert!(code == Some(2) && text.contains("\nfix: "), "{text}");
}

#[test]
fn datagrams_discarded_at_a_full_buffer_are_counted() {
    let place = Place::new("bench-full");
    // Receivers are stopped for longer than their buffers last.
    let pauses = format!(
        "case \"$*\" in *receiver*) exec 3<&0; {} bench node --system raw \"$@\" <&3 & node=$!\n\
         for _ in 1 2 3 4 5 6; do kill -STOP $node; sleep 0.5; kill -CONT $node; sleep 0.2; done\n\
         wait $node; exit;; esac",
        place.program.display()
    );
    place.peer("slow", &pauses, "");
    let text = "[[row]]\nname = \"small\"\nsystems = [\"slow\"]\nnodes = 3\nmessages = 40_000\n\
                rate = 20_000\nsize = 1_024\n";
    let plan = place.folder.join("plan.toml");
    fs::write(&plan, text).expect("the folder is writable");
    let Some((report, _)) = place.report(&plan, &[], 0) else { return };
    let slow = account(&report, "slow");
    let discarded = number(slow, "kernel_drops");
    assert!(discarded > 0 && discarded <= number(slow, "missing"), "{slow}");
    assert_eq!(number(slow, "unclassified"), number(slow, "delivered"));
    assert_eq!(number(&slow["latency_kept"], "count"), 0);
    assert_eq!(report["runs"][0]["limit"], "delivery");
    let text = place.page();
    assert!(text.contains("\nslow: time limit reached in 1 of 1 runs.\n"), "{text}");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn processor_time_of_a_daemon_counts() {
    let place = Place::new("bench-cpu");
    place.peer("idle", "", "");
    place.peer("busy", "setsid sh -c 'while :; do :; done' >/dev/null 2>&1 &", "");
    let plan = place.plan("\"idle\", \"busy\"", 400, "");
    let Some((report, _)) = place.report(&plan, &[], 0) else { return };
    for name in ["cpu_us_per_copy", "cpu_percent_sender", "cpu_percent_receivers"] {
        let of = |system: &str| account(&report, system)[name].as_f64().expect("it is known");
        assert!(of("idle") > 0.0 && of("busy") > 2.0 * of("idle"), "{name}: {report}");
    }
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn row_beside_a_transfer_has_link_drops_and_no_costs() {
    let place = Place::new("bench-link");
    let text = "[[row]]\nname = \"small\"\nsystems = [\"raw\"]\nnodes = 3\nmessages = 2_000\n\
                rate = 2_000\nsize = 1_024\nlink_mbit = 2\nbackground_mib = 1\n";
    let plan = place.folder.join("plan.toml");
    fs::write(&plan, text).expect("the folder is writable");
    let Some((report, _)) = place.report(&plan, &[], 0) else { return };
    let raw = account(&report, "raw");
    assert!(number(raw, "missing") > 0, "{raw}");
    // A datagram that the link of the sender drops is missing at both receivers.
    assert!(2 * number(raw, "link_drops") >= number(raw, "missing"), "{raw}");
    assert_eq!(number(raw, "unclassified"), number(raw, "delivered"));
    for name in ["cpu_us_per_copy", "cpu_percent_sender", "cpu_percent_receivers"] {
        assert_eq!(raw[name], Value::Null, "{name}: {raw}");
    }
    assert_eq!(raw["packets_per_copy"], Value::Null, "{raw}");
    let text = place.page();
    assert!(text.contains("\n| link drops | "), "{text}");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn system_calls_are_counted_in_a_run_of_their_own() {
    let place = Place::new("bench-syscalls");
    let plan = place.plan("\"raw\"", 200, "");
    let Some((report, _)) = place.report(&plan, &["--count-syscalls"], 0) else { return };
    let runs = report["runs"].as_array().expect("there are runs");
    assert_eq!(runs.len(), 1, "the run with strace is not among them");
    let syscalls = &report["syscalls"][0];
    if let Some(reason) = syscalls["reason"].as_str() {
        assert!(reason.starts_with("cannot start strace: "), "{reason}");
        return skipping::lacking(reason);
    }
    // One call to send, one to receive at each of 3 nodes, and a sleep of the sender.
    let per_message = syscalls["per_message"].as_f64().expect("it was counted");
    assert!((4.0..20.0).contains(&per_message), "{syscalls}");
    let text = place.page();
    assert!(text.contains("| system calls per message |"), "{text}");
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn interrupted_bench_ends_with_a_report() {
    let place = Place::new("bench-interrupted");
    let plan = place.plan("\"raw\"", 40_000, "");
    let mut child = place.start(&plan);
    if place.has_nodes(&mut child) {
        let id = i32::try_from(child.id()).expect("process ids have 22 bits");
        kill(Pid::from_raw(id), Signal::SIGINT).expect("it runs");
    }
    let output = child.wait_with_output().expect("it is our child");
    if is_refused(&output) {
        return;
    }
    assert_eq!((output.status.code(), output.status.signal()), (Some(130), None), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(report["interrupted"], true);
    assert_eq!(place.leftovers(), [] as [String; 0]);
}

#[test]
fn wrong_use_is_refused_before_anything_is_created() {
    let place = Place::new("bench-refused");
    for (args, cause) in [
        (vec!["bench"], "error: `carom-lab bench` needs a subcommand"),
        (vec!["bench", "run"], "error: no row given"),
        (vec!["bench", "run", "pace-9"], "error: no row or plan has the name 'pace-9'"),
        (vec!["bench", "run", "pace", "--systems", "dds"], "error: no row has a system of 'dds'"),
    ] {
        let output = Command::new(&place.program).args(&args).current_dir(&place.folder).output();
        let output = output.expect("the binary was linked");
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with(cause) && text.contains("\nfix: "), "{text}");
    }
    assert!(!place.folder.join("carom-bench").exists());
}

/// Variable of the environment that marks the processes of a [`Place`].
const PLACE: &str = "CAROM_BENCH_PLACE";
