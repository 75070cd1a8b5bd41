use std::io;
use std::net::UdpSocket;

use crate::clock;

/// A socket that can have the time at which the kernel received a datagram, on Linux.
pub(super) struct StampedSocket {
    socket: UdpSocket,
    /// Room for the time. `None` without times, which cost the kernel and the receiver some work.
    #[cfg(target_os = "linux")]
    control: Option<Vec<u8>>,
}

/// The receipt of a datagram. Times are those of `CLOCK_MONOTONIC` in nanoseconds.
pub(super) struct Arrival {
    pub(super) bytes: usize,
    /// Time at which the receiving thread had it.
    pub(super) at_ns: u64,
    /// Time at which the kernel had it, if this is known.
    pub(super) received_ns: Option<u64>,
}

impl StampedSocket {
    /// Returns a socket without times of the kernel.
    pub(super) fn plain(socket: UdpSocket) -> Self {
        Self {
            socket,
            #[cfg(target_os = "linux")]
            control: None,
        }
    }

    fn receive_plain(&self, buffer: &mut [u8]) -> io::Result<Arrival> {
        let bytes = self.socket.recv(buffer)?;
        Ok(Arrival { bytes, at_ns: clock::monotonic_ns(), received_ns: None })
    }
}

#[cfg(target_os = "linux")]
impl StampedSocket {
    /// Returns a socket with times of the kernel.
    pub(super) fn stamped(socket: UdpSocket) -> io::Result<Self> {
        use nix::sys::socket::{setsockopt, sockopt};
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        Ok(Self { socket, control: Some(nix::cmsg_space!(nix::sys::time::TimeSpec)) })
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
        use std::os::fd::AsRawFd as _;
        let Some(control) = &mut self.control else { return self.receive_plain(buffer) };
        let socket = self.socket.as_raw_fd();
        let mut parts = [io::IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(socket, &mut parts, Some(control), MsgFlags::empty())?;
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
    /// Returns a socket without times, which this system does not have.
    pub(super) fn stamped(socket: UdpSocket) -> io::Result<Self> {
        Ok(Self::plain(socket))
    }

    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Arrival> {
        self.receive_plain(buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the receipt of a datagram, the time before it was sent, and the time after.
    fn exchange(create: fn(UdpSocket) -> StampedSocket) -> (Arrival, u64, u64) {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let address = socket.local_addr().expect("it is bound");
        let mut socket = create(socket);
        let sender = UdpSocket::bind("127.0.0.1:0").expect("loopback is up");
        let before = clock::monotonic_ns();
        sender.send_to(b"hello", address).expect("loopback is up");
        let after = clock::monotonic_ns();
        let mut buffer = [0; 10];
        let arrival = socket.receive(&mut buffer).expect("a datagram was sent");
        assert_eq!(&buffer[..arrival.bytes], b"hello");
        (arrival, before, after)
    }

    #[test]
    fn datagram_has_the_time_at_which_the_kernel_had_it() {
        let stamped = |socket| StampedSocket::stamped(socket).expect("the option is allowed");
        let (Arrival { at_ns, received_ns, .. }, before, after) = exchange(stamped);
        assert!(at_ns >= after);
        if cfg!(target_os = "linux") {
            let received = received_ns.expect("Linux reports it");
            assert!((before - SLACK_NS..=at_ns).contains(&received), "{before} {received} {at_ns}");
        }
    }

    #[test]
    fn plain_socket_has_no_time_of_the_kernel() {
        let (Arrival { at_ns, received_ns, .. }, _, after) = exchange(StampedSocket::plain);
        assert_eq!((at_ns >= after, received_ns), (true, None));
    }

    /// Adjustments of `CLOCK_REALTIME` during the test.
    const SLACK_NS: u64 = 1_000_000;
}
