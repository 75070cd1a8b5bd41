use carom_netns::Host;
use nix::errno::Errno;
use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use super::failure::Failure;
use super::processes;

/// Kills all processes on a host.
pub(super) fn kill(host: &Host) -> Result<(), Failure> {
    for id in processes::on(host)? {
        match signal::kill(Pid::from_raw(id), Signal::SIGKILL) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => {
                let host = host.name();
                return Err(format!("cannot kill process {id} on {host}: {errno}").into());
            }
        }
    }
    Ok(())
}
