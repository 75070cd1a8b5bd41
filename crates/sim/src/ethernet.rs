//! A shared Ethernet: one cable that connects all hosts and carries one frame at a time.
//!
//! A frame occupies the cable for its preamble (8 bytes), its header and check sequence (18), its
//! payload (at least 46 bytes, of which IPv4 and UDP take 28) and the gap after it (12). All hosts
//! receive each frame, so a multicast occupies the cable once. The frames of one host wait in a
//! bounded queue in its interface. Frames that exceed the bound are dropped.
//!
//! **Access**: the hosts with waiting frames take turns, one frame each. A real Ethernet
//! approximates this by collisions and random back-off, which are not modeled. Several busy senders
//! therefore use the cable fully, whereas a real one loses a few percent of its time, and no host
//! starves. With a single sender there is no difference.

use core::time::Duration;
use std::collections::VecDeque;

use carom_proto::Time;

use crate::ids::PacketIx;

/// A shared cable that connects several hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Bandwidth, in bits per second.
    pub bits_per_second: u64,
    /// Propagation delay from any host to any other.
    pub propagation: Duration,
    /// Maximum number of bytes of frames in the queue of one host's interface.
    pub queue_bytes: u64,
}

pub(crate) fn bytes_on_the_wire(datagram_bytes: usize) -> u64 {
    let carried = (IP_AND_UDP_BYTES + datagram_bytes as u64).max(LEAST_CARRIED_BYTES);
    PREAMBLE_BYTES + HEADER_AND_CHECK_BYTES + carried + GAP_BYTES
}

pub(crate) fn transmission_time(bytes: u64, bits_per_second: u64) -> Duration {
    let nanos = u128::from(bytes) * 8 * 1_000_000_000 / u128::from(bits_per_second.max(1));
    Duration::from_nanos(nanos as u64)
}

const IP_AND_UDP_BYTES: u64 = 28;
const PREAMBLE_BYTES: u64 = 8;
const HEADER_AND_CHECK_BYTES: u64 = 18;
/// Minimum payload, in bytes: it makes a frame 64 bytes from its header to its check sequence.
const LEAST_CARRIED_BYTES: u64 = 46;
const GAP_BYTES: u64 = 12;

impl Default for Ethernet {
    /// Returns a cable of 10 Mbit/s with a delay of 5 us (one kilometer) and queues of 64 KiB.
    fn default() -> Self {
        let propagation = Duration::from_micros(5);
        Self { bits_per_second: 10_000_000, propagation, queue_bytes: 64 * 1024 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) packet: PacketIx,
    pub(crate) branch: u32,
    pub(crate) bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Cable {
    ethernet: Ethernet,
    interfaces: Vec<Interface>,
    on_it: Option<Frame>,
    last: usize,
    free_from: Time,
}

#[derive(Debug, Default)]
struct Interface {
    waiting: VecDeque<Frame>,
    waiting_bytes: u64,
}

impl Cable {
    pub(crate) fn new(ethernet: Ethernet, hosts: u32) -> Self {
        let interfaces = (0..hosts).map(|_| Interface::default()).collect();
        Self { ethernet, interfaces, on_it: None, last: 0, free_from: Time::ZERO }
    }

    /// Queues a frame in the interface of `host`. Returns `false` if the queue is full.
    pub(crate) fn wait(&mut self, host: u32, frame: Frame) -> bool {
        let interface = &mut self.interfaces[host as usize];
        let has_room = interface.waiting_bytes + frame.bytes <= self.ethernet.queue_bytes;
        if has_room {
            interface.waiting_bytes += frame.bytes;
            interface.waiting.push_back(frame);
        }
        has_room
    }

    /// Puts the next waiting frame on a free cable. Returns the time when its last bit has passed.
    pub(crate) fn begin(&mut self, now: Time) -> Option<Time> {
        if self.on_it.is_some() {
            return None;
        }
        let hosts = self.interfaces.len();
        let mut turns = (1..=hosts).map(|step| (self.last + step) % hosts);
        self.last = turns.find(|host| !self.interfaces[*host].waiting.is_empty())?;
        let interface = &mut self.interfaces[self.last];
        let frame = interface.waiting.pop_front()?;
        interface.waiting_bytes -= frame.bytes;
        let rate = self.ethernet.bits_per_second;
        let end = now.max(self.free_from) + transmission_time(frame.bytes - GAP_BYTES, rate);
        self.free_from = end + transmission_time(GAP_BYTES, rate);
        self.on_it = Some(frame);
        Some(end)
    }

    pub(crate) fn end(&mut self) -> Option<Frame> {
        self.on_it.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(packet: PacketIx, bytes: u64) -> Frame {
        Frame { packet, branch: 0, bytes }
    }

    #[test]
    fn a_datagram_takes_what_the_standard_says() {
        assert_eq!(bytes_on_the_wire(1472), 1538, "the largest");
        assert_eq!(bytes_on_the_wire(1), 84, "the minimum: 64 bytes, preamble and gap");
        assert_eq!(bytes_on_the_wire(18), 84);
        assert_eq!(bytes_on_the_wire(19), 85);
    }

    #[test]
    fn frames_follow_each_other_with_a_gap() {
        let mut cable = Cable::new(Ethernet::default(), 2);
        assert_eq!(cable.begin(Time(0)), None, "no frame waits");
        assert!(cable.wait(1, frame(1, 1250)) && cable.wait(1, frame(2, 1250)));
        let end = cable.begin(Time(0)).expect("it is free");
        assert_eq!(end, Time(1_000_000 - 9_600), "at 10 Mbit/s; the gap is 9.6 us");
        assert_eq!(cable.begin(end), None, "it is busy");
        assert_eq!(cable.end(), Some(frame(1, 1250)));
        assert_eq!(cable.begin(end), Some(Time(2_000_000 - 9_600)));
    }

    #[test]
    fn hosts_that_wait_take_turns() {
        let mut cable = Cable::new(Ethernet::default(), 3);
        for packet in 0..3 {
            assert!(cable.wait(0, frame(packet, 100)));
        }
        assert!(cable.wait(2, frame(20, 100)));
        let mut now = Time(0);
        let mut order = Vec::new();
        while let Some(end) = cable.begin(now) {
            now = end;
            order.push(cable.end().expect("it has begun").packet);
        }
        assert_eq!(order, [20, 0, 1, 2], "host 0 sent last, so its next frame comes last");
    }

    #[test]
    fn an_interface_holds_so_much_and_no_more() {
        let ethernet = Ethernet { queue_bytes: 250, ..Ethernet::default() };
        let mut cable = Cable::new(ethernet, 2);
        assert!(cable.wait(0, frame(1, 100)) && cable.wait(0, frame(2, 100)));
        assert!(!cable.wait(0, frame(3, 100)));
        assert!(cable.wait(1, frame(4, 100)), "each interface has its own queue");
        cable.begin(Time(0));
        cable.begin(cable.free_from);
        assert_eq!(cable.end(), Some(frame(4, 100)));
        cable.begin(cable.free_from);
        assert!(cable.wait(0, frame(5, 100)), "there is room again");
    }
}
