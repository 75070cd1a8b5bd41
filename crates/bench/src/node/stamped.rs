use std::io;
use std::net::UdpSocket;

use crate::clock;

/// A socket whose datagrams have the time of their receipt by the kernel, on Linux.
pub(super) struct StampedSocket {
    socket: UdpSocket,
    #[cfg(target_os = "linux")]
    control: Vec<u8>,
}

/// The receipt of a datagram. Times are those of `CLOCK_MONOTONIC` in nanoseconds.
pub(super) struct Arrival {
    pub(super) bytes: usize,
    /// Time at which the receiving thread had it.
    pub(super) at_ns: u64,
    /// Time at which the kernel had it, if this is known.
    pub(super) received_ns: Option<u64>,
}

#[cfg(target_os = "linux")]
impl StampedSocket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        use nix::sys::socket::{setsockopt, sockopt};
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { socket, control: nix::cmsg_space!(nix::sys::time::TimeSpec) })
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
        use std::os::fd::AsRawFd as _;
        let socket = self.socket.as_raw_fd();
        let mut parts = [io::IoSliceMut::new(buffer)];
        let control = Some(&mut self.control[..]);
        let message = recvmsg::<()>(socket, &mut parts, control, MsgFlags::empty())?;
        let at_ns = clock::monotonic_ns();
        let stamp = message.cmsgs()?.find_map(|it| match it {
            ControlMessageOwned::ScmTimestampns(time) => Some(time),
            _ => None,
        });
        // The kernel's time is one of `CLOCK_REALTIME`, of which only the age is used.
        let age = stamp.and_then(clock::ns_since);
        let received_ns = age.map(|age| at_ns.saturating_sub(age));
        Ok(Arrival { bytes: message.bytes, at_ns, received_ns })
    }
}

#[cfg(not(target_os = "linux"))]
impl StampedSocket {
    pub(super) fn new(socket: UdpSocket) -> io::Result<Self> {
        Ok(Self { socket })
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        let bytes = self.socket.recv(buffer)?;
        Ok(Arrival { bytes, at_ns: clock::monotonic_ns(), received_ns: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagram_has_the_time_at_which_the_kernel_had_it() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let address = socket.local_addr().expect("it is bound");
        let mut socket = StampedSocket::new(socket).expect("the option is allowed");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let before = clock::monotonic_ns();
        sender.send_to(b"hello", address).expect("loopback is up");
        let between = clock::monotonic_ns();
        let mut buffer = [0; 10];
        let Arrival { bytes, at_ns, received_ns } =
            socket.receive(&mut buffer).expect("a datagram was sent");
        assert_eq!((&buffer[..bytes], at_ns >= between), (&b"hello"[..], true));
        if cfg!(target_os = "linux") {
            let received = received_ns.expect("Linux reports it");
            assert!((before - SLACK_NS..=at_ns).contains(&received), "{before} {received} {at_ns}");
        }
    }

    /// Adjustments of `CLOCK_REALTIME` during the test.
    const SLACK_NS: u64 = 1_000_000;
}
