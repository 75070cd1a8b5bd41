//! Private namespaces of a process tree, which end with it.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::OnceLock;

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::unistd::{Pid, getgid, getuid};

use crate::error::{Error, PRIVILEGE};
use crate::namespace::NAMED;
use crate::owner::Owner;
use crate::process::exit_code;

/// The result of [`isolate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// The process is in private namespaces. The owner is the process as the machine sees it, for
    /// `nsenter`.
    Inside(Owner),
    /// The process was outside. It has run itself inside to the end, with this exit code. After a
    /// signal, that is 128 and its number.
    Ended(u8),
}

/// Runs this program again in private mount, network and process namespaces, and in a user
/// namespace if it is not root. Call it first in `main`, and return the exit code of
/// [`Isolation::Ended`].
///
/// Everything that the inner process creates disappears with it: the kernel ends its processes and
/// removes its namespaces when it ends, and also when the outer process is killed. The outer
/// process passes SIGTERM, SIGHUP and SIGINT on. If the inner process does not handle them, they
/// end it. No name server is set inside, because none is reachable.
///
/// Fails if the kernel does not permit it, or if the process is not root and has several threads.
pub fn isolate() -> Result<Isolation, Error> {
    let parent = std::env::var(PARENT).ok().and_then(|text| text.parse().ok());
    // Programs that run inside inherit the variable, but only the first process has the id 1.
    match parent {
        Some(parent) if std::process::id() == 1 => inside(parent).map(Isolation::Inside),
        _ => outside().map(Isolation::Ended),
    }
}

/// Returns `true` if this process has been isolated.
pub(crate) fn is_isolated() -> bool {
    OWNER.get().is_some()
}

fn outside() -> Result<u8, Error> {
    let this = Owner::this_process()?;
    let program = std::env::current_exe().map_err(|error| Error::io("this program", &error))?;
    unshare_all()?;
    // From here on, this thread reads these signals from a file.
    let signals = handled();
    let signal_error = |errno| Error::system("cannot handle signals", errno);
    signals.thread_block().map_err(signal_error)?;
    let file = SignalFd::new(&signals).map_err(signal_error)?;
    let mut arguments = std::env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.args(arguments).env(PARENT, this.pid.to_string());
    let child = command.spawn().map_err(|error| Error::io("cannot start in isolation", &error))?;
    supervise(child, &file)
}

fn supervise(mut child: Child, signals: &SignalFd) -> Result<u8, Error> {
    let id = Pid::from_raw(i32::try_from(child.id()).expect("process ids have 22 bits"));
    loop {
        let waited = child.try_wait().map_err(|error| Error::io("cannot wait", &error))?;
        if let Some(status) = waited {
            return Ok(exit_code(status));
        }
        let signal = signals.read_signal();
        let signal = signal.map_err(|errno| Error::system("cannot read signals", errno))?;
        let Some(signal) = signal else { continue };
        // The terminal sends its signals to both processes.
        let is_from_terminal = signal.ssi_code > 0;
        let number = i32::try_from(signal.ssi_signo).unwrap_or_default();
        match Signal::try_from(number) {
            // The kernel protects the first process of a namespace from signals without a handler.
            Ok(Signal::SIGCHLD) | Err(_) => {}
            Ok(signal) if !handles(child.id(), number) => {
                // It fails if the child has ended. The namespaces end with it.
                let _ = child.kill();
                child.wait().map_err(|error| Error::io("cannot wait", &error))?;
                return Ok(u8::try_from(128 + signal as i32).unwrap_or(u8::MAX));
            }
            Ok(signal) if !is_from_terminal => {
                // This fails if the child has ended: the next turn returns its status.
                let _ = kill(id, signal);
            }
            Ok(_) => {}
        }
    }
}

/// Returns `true` if a process has a handler for a signal.
fn handles(process: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Creates the namespaces. The process namespace applies to children.
fn unshare_all() -> Result<(), Error> {
    let flags = CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWPID;
    let (user, group) = (getuid(), getgid());
    if user.is_root() && unshare(flags).is_ok() {
        return Ok(());
    }
    unshare(flags | CloneFlags::CLONE_NEWUSER).map_err(|errno| {
        let cause = format!("cannot create private namespaces: {errno}");
        match errno {
            Errno::EINVAL => Error::new(cause, "isolate the process before it starts threads"),
            _ => Error::lacking(cause, PRIVILEGE),
        }
    })?;
    let write = |file: &str, text: String| {
        let path = format!("/proc/self/{file}");
        fs::write(&path, text).map_err(|error| Error::io(path, &error))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {user} 1"))?;
    write("gid_map", format!("0 {group} 1"))
}

fn inside(parent: i32) -> Result<Owner, Error> {
    set_pdeathsig(Signal::SIGKILL).map_err(|errno| Error::system("cannot follow", errno))?;
    handled().thread_unblock().map_err(|errno| Error::system("cannot handle signals", errno))?;
    // Until the new /proc is mounted, the old one shows this process as the machine sees it.
    let owner = Owner::this_process()?;
    if Owner::parent_of_this_process() != Some(parent) {
        return Err(Error::new("the process that isolates has ended", "start again"));
    }
    // The outer process needs its own /proc, to find out which signals this process handles.
    unshare(CloneFlags::CLONE_NEWNS).map_err(|errno| Error::system("cannot mount", errno))?;
    let mounted = |what: &str, result: nix::Result<()>| {
        result.map_err(|errno| Error::system(format!("cannot mount {what}"), errno))
    };
    let none: Option<&str> = None;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mounted("/ privately", mount(none, "/", none, private, none))?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mounted("/proc", mount(Some("proc"), "/proc", Some("proc"), flags, none))?;
    // Named namespaces are files here. Without this folder, a user cannot create it.
    let has_folder = fs::exists(NAMED).unwrap_or(false);
    let covered = if has_folder { NAMED } else { "/run" };
    mounted(covered, mount(Some("tmpfs"), covered, Some("tmpfs"), MsFlags::empty(), none))?;
    fs::create_dir_all(NAMED).map_err(|error| Error::io(NAMED, &error))?;
    // No name server is reachable here. Without one in this file, look-ups fail at once instead of
    // waiting for seconds.
    if fs::exists(RESOLVER).unwrap_or(false) {
        mounted(RESOLVER, mount(Some("/dev/null"), RESOLVER, none, MsFlags::MS_BIND, none))?;
    }
    Ok(*OWNER.get_or_init(|| owner))
}

fn handled() -> SigSet {
    [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT, Signal::SIGCHLD].into_iter().collect()
}

static OWNER: OnceLock<Owner> = OnceLock::new();
const RESOLVER: &str = "/etc/resolv.conf";
/// Environment variable with the process id of the outer process.
const PARENT: &str = "CAROM_NETNS_OUTER";
