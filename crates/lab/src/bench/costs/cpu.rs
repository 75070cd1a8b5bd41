use std::collections::BTreeMap;

use carom_netns::Host;
use nix::sys::time::TimeValLike as _;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use crate::bench::failure::Failure;
use crate::bench::processes;

/// The processor times that the processes of a host have used up to a moment.
#[derive(Clone, Debug)]
pub(crate) struct CpuReading {
    /// Nanoseconds of each process: user and system, all its threads.
    used_ns: BTreeMap<i32, u64>,
}

impl CpuReading {
    /// Reads the clocks of all processes on the host: the node, its daemons and their children.
    pub(crate) fn of(host: &Host) -> Result<Self, Failure> {
        Ok(Self::of_processes(processes::on(host)?))
    }

    fn of_processes(ids: impl IntoIterator<Item = i32>) -> Self {
        // A process that has just ended has no clock.
        let used_ns = ids.into_iter().filter_map(|id| Some((id, used_ns(id)?))).collect();
        Self { used_ns }
    }

    /// Returns the nanoseconds used since an earlier reading. Processes that started in between
    /// count from their start. Returns `None` if one has ended, because its last time is not known.
    pub(super) fn since(&self, before: &Self) -> Option<u64> {
        let mut used_ns: u64 = self.used_ns.values().sum();
        for (id, earlier) in &before.used_ns {
            // An id with less time than before belongs to another process.
            self.used_ns.get(id).filter(|now| *now >= earlier)?;
            used_ns -= earlier;
        }
        Some(used_ns)
    }
}

fn used_ns(process: i32) -> Option<u64> {
    let clock = clock_getcpuclockid(Pid::from_raw(process)).ok()?;
    clock_gettime(clock).ok()?.num_nanoseconds().try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use carom_netns::Process;

    use super::*;

    #[test]
    fn time_of_another_process_advances_with_its_work() {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        let mut child = Process::start(command).expect("sh is installed");
        let id = i32::try_from(child.child().id()).expect("process ids have 22 bits");
        let before = CpuReading::of_processes([id]);
        let give_up = Instant::now() + Duration::from_secs(60);
        let used = loop {
            let used = CpuReading::of_processes([id]).since(&before).expect("it runs");
            if used > 5_000_000 || Instant::now() > give_up {
                break used;
            }
        };
        assert!(used > 5_000_000, "{used} ns");
        drop(child);
        assert!(CpuReading::of_processes([id]).used_ns.is_empty(), "it has ended");
    }

    fn reading(used: &[(i32, u64)]) -> CpuReading {
        CpuReading { used_ns: used.iter().copied().collect() }
    }

    #[test]
    fn process_that_started_counts_and_one_that_ended_is_not_known() {
        let before = reading(&[(1, 100), (2, 50)]);
        let used = |after: &[(i32, u64)]| reading(after).since(&before);
        assert_eq!(used(&[(1, 130), (2, 50), (3, 7)]), Some(37));
        assert_eq!(used(&[(1, 130)]), None, "process 2 has ended");
        assert_eq!(used(&[(1, 130), (2, 10)]), None, "another process has the id 2");
    }
}
