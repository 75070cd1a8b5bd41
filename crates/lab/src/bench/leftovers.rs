use std::process::Command;

use carom_netns::Host;
use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

/// Kills all processes on a host.
pub(super) fn kill(host: &Host) -> Result<(), String> {
    for id in processes(host)? {
        match signal::kill(Pid::from_raw(id), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => {
                return Err(format!("cannot kill process {id} on {}: {errno}", host.name()));
            }
        }
    }
    Ok(())
}

/// Returns the ids of all processes on a host.
pub(super) fn processes(host: &Host) -> Result<Vec<i32>, String> {
    let name = host.namespace().name();
    let output = Command::new("ip").args(["netns", "pids", name]).output();
    let output = output.map_err(|error| format!("cannot start ip: {error}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return Err(format!("cannot list the processes on {name}: {}", errors.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
}
