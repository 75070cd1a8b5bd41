use std::fs;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// A process, identified by its id and its start time, because ids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process id.
    pub pid: i32,
    /// Start in clock ticks since the boot of the machine.
    pub start: u64,
}

impl Owner {
    /// Returns the calling process.
    pub fn this_process() -> Result<Self, Error> {
        Self::read("self").ok_or_else(|| {
            Error::new("cannot read /proc/self/stat", "mount /proc: mount -t proc proc /proc")
        })
    }

    /// Returns `true` if the process has not ended.
    pub fn is_alive(self) -> bool {
        Self::read(&self.pid.to_string()) == Some(self)
    }

    /// Returns the process id of the parent of the calling process, as `/proc` shows it.
    pub(crate) fn parent_of_this_process() -> Option<i32> {
        field(&stat("self")?, PARENT)
    }

    fn read(pid: &str) -> Option<Self> {
        let text = stat(pid)?;
        let is_zombie = field::<char>(&text, STATE)? == 'Z';
        let (pid, _) = text.split_once(' ')?;
        let (pid, start) = (pid.parse().ok()?, field(&text, START)?);
        (!is_zombie).then_some(Self { pid, start })
    }
}

fn stat(pid: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/{pid}/stat")).ok()
}

fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    // The name of the program, field 2, may contain spaces and parentheses.
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(number - STATE)?.parse().ok()
}

/// Numbers of fields in `/proc/PID/stat`, from 1.
const STATE: usize = 3;
const PARENT: usize = 4;
const START: usize = 22;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_only_with_its_own_start_time() {
        let this = Owner::this_process().expect("/proc is mounted");
        assert_eq!(this.pid, i32::try_from(std::process::id()).expect("it is small"));
        assert!(this.is_alive());
        assert!(!Owner { start: this.start + 1, ..this }.is_alive());
    }

    #[test]
    fn an_ended_process_is_not_alive_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("true").spawn().expect("it is installed");
        let owner = Owner::read(&child.id().to_string());
        while owner.is_some_and(Owner::is_alive) {
            std::thread::yield_now();
        }
        child.wait().expect("it is our child");
    }
}
