use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, setns};

use crate::error::Error;
use crate::tool::{self, Running};

/// A named network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    pub(crate) fn new(name: String) -> Self {
        Self { name }
    }

    /// Creates a namespace with a loopback interface. It exists until it is deleted, or, inside
    /// [`isolate`](crate::isolate), until the process ends.
    pub fn create(name: impl Into<String>) -> Result<Self, Error> {
        Self::create_with(name.into(), "link set lo up")
    }

    /// Creates a namespace and runs lines of `ip -batch` in it. If one fails, no namespace is left.
    fn create_with(name: String, lines: &str) -> Result<Self, Error> {
        let namespace = Self::new(name);
        let mut command = Command::new("ip");
        command.args(["netns", "add", &namespace.name]);
        tool::run(command, "")?;
        match namespace.ip(lines) {
            Ok(()) => Ok(namespace),
            Err(error) => {
                // The first error is the reason of the second.
                let _ = namespace.delete();
                Err(error)
            }
        }
    }

    /// Deletes the namespace. Its interfaces and their peers disappear with it.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let mut command = Command::new("ip");
        command.args(["netns", "delete", &self.name]);
        tool::run(command, "").map(|_| ())
    }

    /// Returns the name, for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a command that runs `program` in the namespace. The process that it starts is the
    /// program itself. Standard input is empty unless the caller sets it.
    pub fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]).args(args).stdin(Stdio::null());
        command
    }

    /// Runs `work` in a new thread in the namespace, and waits for its result.
    ///
    /// Sockets that `work` opens belong to the namespace wherever they are used later, and threads
    /// that it starts are in the namespace. `/proc/net` is that of the process, and
    /// `/proc/thread-self/net` that of the namespace.
    ///
    /// # Panics
    ///
    /// Resumes a panic of `work`.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = PathBuf::from(NAMED).join(&self.name);
        let file = File::open(&path).map_err(|error| Error::io(path.display(), &error))?;
        let inside = || setns(&file, CloneFlags::CLONE_NEWNET).map(|()| work());
        let joined = thread::scope(|scope| {
            let named = thread::Builder::new().name(self.name.clone());
            named.spawn_scoped(scope, inside).map(thread::ScopedJoinHandle::join)
        });
        match joined.map_err(|error| Error::io("cannot start a thread", &error))? {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(errno)) => Err(Error::system(format!("cannot enter {}", self.name), errno)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Runs lines of `ip -batch` in the namespace. None has an effect after the first that fails.
    pub fn ip(&self, lines: &str) -> Result<(), Error> {
        self.start_ip(lines)?.output().map(|_| ())
    }

    /// Starts to run lines of `ip -batch` in the namespace.
    pub(crate) fn start_ip(&self, lines: &str) -> Result<Running, Error> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "-batch", "-"]);
        tool::start(command, lines)
    }

    /// Runs lines of `bridge -batch` in the namespace. None has an effect after the first that
    /// fails.
    pub fn bridge(&self, lines: &str) -> Result<(), Error> {
        let mut command = Command::new("bridge");
        command.args(["-n", &self.name, "-batch", "-"]);
        tool::run(command, lines).map(|_| ())
    }

    /// Runs `program` in the namespace to its end. Returns its standard output.
    pub(crate) fn output(
        &self,
        program: &str,
        args: &[&str],
        input: &str,
    ) -> Result<String, Error> {
        tool::run(self.command(program, args), input)
    }

    /// Applies an nft script in the namespace, as a whole or not at all.
    pub fn nft(&self, script: &str) -> Result<(), Error> {
        self.output("nft", &["-f", "-"], script).map(|_| ())
    }

    /// Writes values to files in `/proc/sys` of the namespace. Files that do not exist are skipped,
    /// because they belong to optional modules of the kernel.
    pub(crate) fn sysctl(&self, values: &[(&str, &str)]) -> Result<(), Error> {
        let write = || {
            for (name, value) in values {
                let path = PathBuf::from("/proc/sys").join(name);
                if path.exists() {
                    fs::write(&path, value).map_err(|error| Error::io(path.display(), &error))?;
                }
            }
            Ok(())
        };
        self.enter(write)?
    }

    /// Returns `true` if the interface has a carrier and the kernel uses it.
    pub(crate) fn is_up(&self, interface: &str) -> Result<bool, Error> {
        let mut command = Command::new("ip");
        command.args(["-n", &self.name, "link", "show", interface]);
        tool::run(command, "").map(|text| text.contains("state UP"))
    }
}

pub(crate) const NAMED: &str = "/run/netns";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;
    use crate::test_support::permitted;

    /// Returns a name that [`remove_stale`](crate::remove_stale) finds if this process is killed.
    fn test_name() -> String {
        let Owner { pid, start } = Owner::this_process().expect("/proc is mounted");
        format!("carom-{pid}-{start}-0.test")
    }

    #[test]
    fn namespace_that_cannot_be_prepared_is_not_left() {
        let name = test_name();
        let created = permitted(Namespace::create(name.clone()));
        let Some(namespace) = created else { return };
        let has = || PathBuf::from(NAMED).join(&name).exists();
        Namespace::create(name.clone()).expect_err("the name is taken");
        assert!(has(), "a failed creation leaves the namespace of another");
        namespace.delete().expect("it exists");
        let failed = Namespace::create_with(name.clone(), "link set no-such-link up");
        failed.expect_err("there is no such link");
        assert!(!has());
    }
}
