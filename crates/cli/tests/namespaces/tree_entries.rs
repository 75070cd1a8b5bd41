//! The command that installs trees in bridges, with removals that fail and runs that are killed.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::trees::{INSTALL, can_install, shell};

/// Two switches, each with the ports `a` and `b`. They are removed when they are dropped.
struct Switches {
    prefix: String,
    folder: TempDir,
}

const BUILD: &str = "
for s in s1 s2; do
    ip netns add $P$s
    ip -n $P$s link add br0 type bridge mcast_snooping 1
    ip -n $P$s link set br0 up
    for port in a b; do
        ip -n $P$s link add name $port type veth peer name peer-$port
        ip -n $P$s link set dev $port master br0 up
        ip -n $P$s link set dev peer-$port up
    done
done
";
const ADDRESS: &str = "239.77.0.6";

impl Switches {
    fn new(name: &str) -> Option<Self> {
        if !can_install() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder for the test");
        let switches = Self { prefix: format!("ce{}{name}-", std::process::id()), folder };
        shell(BUILD, &switches.prefix);
        Some(switches)
    }

    /// Runs the command for a tree with these links. Programs in the folder `bin` have precedence.
    fn install(&self, links: &[[&str; 2]]) -> Output {
        let links: Vec<_> =
            links.iter().map(|[from, to]| serde_json::json!({ "from": from, "to": to })).collect();
        let tree = serde_json::json!({ "group": "g", "address": ADDRESS, "links": links });
        let path = std::env::var("PATH").expect("a path");
        let mut command = Command::new("sh");
        command.arg(INSTALL).env("CAROM_NETNS_PREFIX", &self.prefix);
        command.env("CAROM_TREE_STATE", self.folder.path().join("trees"));
        command.env("PATH", format!("{}:{path}", self.folder.path().join("bin").display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        let mut stdin = child.stdin.take().expect("it is piped");
        stdin.write_all(tree.to_string().as_bytes()).expect("the command reads its input");
        drop(stdin);
        child.wait_with_output().expect("it is our child")
    }

    fn set_port(&self, switch: &str, port: &str, state: &str) {
        shell(&format!("ip -n ${{P}}{switch} link set dev {port} {state}"), &self.prefix);
    }

    /// Lets the program `bridge` run `script` instead for its command `mdb del`.
    fn replace_removal(&self, script: &str) {
        let bin = self.folder.path().join("bin");
        fs::create_dir_all(&bin).expect("space for a folder");
        let real = shell("command -v bridge", "");
        let text = format!(
            "#!/bin/sh\ncase \"$*\" in *' mdb del '*) {script};; *) exec {} \"$@\";; esac\n",
            real.trim()
        );
        fs::write(bin.join("bridge"), text).expect("space for a file");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(bin.join("bridge"), executable).expect("it is our file");
    }

    fn restore_removal(&self) {
        fs::remove_dir_all(self.folder.path().join("bin")).expect("it is our folder");
    }

    /// Returns the ports to which the switch forwards the multicast of the tree.
    fn ports(&self, switch: &str) -> Vec<String> {
        let entries = shell(&format!("bridge -n ${{P}}{switch} mdb show dev br0"), &self.prefix);
        let entries = entries.lines().filter(|it| it.contains(ADDRESS) && it.contains("permanent"));
        let mut ports: Vec<String> =
            entries.filter_map(|it| it.split_whitespace().nth(3).map(str::to_owned)).collect();
        ports.sort_unstable();
        ports
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        for name in ["s1", "s2"] {
            let namespace = format!("{}{name}", self.prefix);
            // This fails if the namespace was not created: then there is nothing to remove.
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).output();
        }
    }
}

fn assert_installed(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn assert_left(output: &Output, switch: &str, port: &str) {
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{errors}");
    let expected = format!("the entry of {ADDRESS} at port {port} of switch {switch}");
    assert!(errors.contains(&expected), "{errors}");
}

#[test]
fn entry_at_a_port_that_is_down_fails_the_run_until_removed() {
    let Some(switches) = Switches::new("d") else { return };
    assert_installed(&switches.install(&[["s1", "a"]]));
    assert_eq!(switches.ports("s1"), ["a"]);
    switches.set_port("s1", "a", "down");
    switches.replace_removal("exit 1"); // as on older kernels
    assert_left(&switches.install(&[["s1", "b"]]), "s1", "a");
    assert_eq!(switches.ports("s1"), ["a", "b"], "the new tree is installed nevertheless");
    assert_left(&switches.install(&[["s1", "b"]]), "s1", "a");
    switches.restore_removal();
    assert_installed(&switches.install(&[["s1", "b"]]));
    assert_eq!(switches.ports("s1"), ["b"]);
}

#[test]
fn failed_removal_at_a_port_that_is_up_prevents_a_second_tree() {
    let Some(switches) = Switches::new("u") else { return };
    assert_installed(&switches.install(&[["s1", "a"]]));
    switches.replace_removal("exit 1");
    assert_left(&switches.install(&[["s1", "b"]]), "s1", "a");
    assert_eq!(switches.ports("s1"), ["a"], "both trees together can have a loop");
    switches.restore_removal();
    assert_installed(&switches.install(&[["s1", "b"]]));
    assert_eq!(switches.ports("s1"), ["b"]);
}

#[test]
fn killed_run_forgets_no_entry_of_an_earlier_tree() {
    let Some(switches) = Switches::new("k") else { return };
    assert_installed(&switches.install(&[["s1", "a"], ["s2", "a"]]));
    switches.set_port("s1", "a", "down");
    switches.replace_removal("exit 1");
    assert_left(&switches.install(&[["s2", "a"]]), "s1", "a");
    switches.replace_removal("kill -s KILL $PPID");
    assert!(!switches.install(&[["s2", "b"]]).status.success());
    switches.restore_removal();
    assert_installed(&switches.install(&[["s2", "b"]]));
    assert_eq!(switches.ports("s1"), [""; 0]);
    assert_eq!(switches.ports("s2"), ["b"]);
}
