use std::fs;
use std::net::UdpSocket;
use std::thread;

use nix::sys::socket::{getsockopt, setsockopt, sockopt};
use serde::Serialize;

/// The machine on which a bench ran.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Machine {
    processor: String,
    processors: usize,
    kernel: String,
    memory_mib: u64,
    /// Largest receive buffer in bytes that a program without privileges can set: the value of
    /// `net.core.rmem_max`.
    rmem_max: usize,
    /// Mean number of running processes in the minute before the bench, as `/proc/loadavg` has it.
    load: String,
}

impl Machine {
    /// Describes this machine. Properties that the kernel does not show are `unknown`, or 0.
    pub(super) fn this() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let unknown = || "unknown".to_owned();
        let memory = field(&read("/proc/meminfo"), "MemTotal").unwrap_or_default();
        let kib = memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok());
        let load = read("/proc/loadavg").split(' ').next().map(str::to_owned);
        let kernel = read("/proc/sys/kernel/osrelease").trim().to_owned();
        Self {
            processor: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            processors: thread::available_parallelism().map_or(1, usize::from),
            kernel: if kernel.is_empty() { unknown() } else { kernel },
            memory_mib: kib.unwrap_or_default() / 1024,
            rmem_max: rmem_max().unwrap_or_default(),
            load: load.filter(|load| !load.is_empty()).unwrap_or_else(unknown),
        }
    }

    /// Returns a description of the machine for people.
    pub(super) fn described(&self) -> String {
        let Self { processor, processors, kernel, memory_mib, rmem_max, load } = self;
        format!(
            "{processors} x {processor}, {memory_mib} MiB of memory, Linux {kernel}, \
             rmem_max {rmem_max}, load {load} before the first run"
        )
    }
}

/// Returns `net.core.rmem_max`, which a network namespace does not show, but applies.
fn rmem_max() -> Option<usize> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    setsockopt(&socket, sockopt::RcvBuf, &LARGEST).ok()?;
    // The kernel doubles a size, to have room for its own data.
    Some(getsockopt(&socket, sockopt::RcvBuf).ok()? / 2)
}

/// Half of the largest size that a socket can have.
const LARGEST: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_receive_buffer_is_that_of_the_kernel() {
        let text = fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
        // In a network namespace, the file may not exist.
        if let Ok(bytes) = text.trim().parse::<usize>() {
            assert_eq!(rmem_max(), Some(bytes.min(LARGEST)));
        }
        assert!(rmem_max() > Some(0));
    }
}
