use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStderr, Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::error::Error;
use crate::tool;

/// A process on a host, killed when it is dropped.
///
/// Unlike a [`Child`], it can be paused and interrupted.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a command of [`Host::command`](crate::Host::command).
    pub fn start(mut command: Command) -> Result<Self, Error> {
        let child = command.spawn().map_err(|error| tool::not_started(&command, &error))?;
        Ok(Self { child })
    }

    /// Returns the process, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Stops the process without its notice, as if its machine were suspended.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues a paused process.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::SIGCONT)
    }

    /// Requests the end of the process, as Ctrl-C does.
    pub fn interrupt(&self) -> Result<(), Error> {
        self.signal(Signal::SIGINT)
    }

    /// Ends the process as a power failure would. Returns when it is gone.
    pub fn kill(&mut self) -> Result<(), Error> {
        self.signal(Signal::SIGKILL)?;
        self.wait().map(|_| ())
    }

    /// Waits for the end of the process.
    pub fn wait(&mut self) -> Result<ExitStatus, Error> {
        self.child.wait().map_err(|error| Error::io("cannot wait for a process", &error))
    }

    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Error> {
        let id = i32::try_from(self.child.id()).expect("process ids have 22 bits");
        let what = format!("cannot send {signal} to process {id}");
        kill(Pid::from_raw(id), signal).map_err(|errno| Error::system(what, errno))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the exit code of a process as a shell reports it: 128 and the signal after a signal.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
}
