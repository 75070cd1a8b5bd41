use std::collections::VecDeque;

use carom_proto::{Class, Destination, Endpoint, Time, Transmit};
use carom_sim::Machine;

/// A machine that sends datagrams of zeros, and reports the source of each received datagram.
#[derive(Default)]
pub(crate) struct Talker(VecDeque<(Destination, usize)>, VecDeque<Endpoint>);

impl Machine for Talker {
    type Command = (Destination, usize);
    type Event = Endpoint;

    fn handle_command(&mut self, _now: Time, command: Self::Command) {
        self.0.push_back(command);
    }

    fn handle_datagram(&mut self, _now: Time, source: Endpoint, _datagram: &[u8]) {
        self.1.push_back(source);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let (destination, bytes) = self.0.pop_front()?;
        out.resize(bytes, 0);
        Some(Transmit { destination, class: Class::Data })
    }

    fn poll_event(&mut self) -> Option<Endpoint> {
        self.1.pop_front()
    }
}
