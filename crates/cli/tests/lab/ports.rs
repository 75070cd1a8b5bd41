//! Ports that a test assigns to a process, which binds them later or more than once.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free loopback port that the system does not assign to other sockets by default.
pub(crate) fn free_port() -> u16 {
    // Ports that systems assign, and ports that tests name, start above this range.
    const LOWEST: u16 = 10_000;
    const PORTS: u16 = 7_000;
    const OF_A_PROCESS: u32 = 50;
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    // Test processes that run at the same time start elsewhere in the range.
    let first = std::process::id().wrapping_mul(OF_A_PROCESS) % u32::from(PORTS);
    let first = u16::try_from(first).expect("it is below PORTS");
    loop {
        let given = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(given < PORTS, "no port of loopback is free");
        let port = LOWEST + (first + given) % PORTS;
        let at = ("127.0.0.1", port);
        if TcpListener::bind(at).is_ok() && UdpSocket::bind(at).is_ok() {
            return port;
        }
    }
}
