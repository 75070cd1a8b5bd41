//! A node with one engine in the simulated world. It can count the datagrams that it handles.

use std::convert::Infallible;

use carom_proto::wire::Datagram;
use carom_proto::{Class, Endpoint, Event, Time, Transmit, Wakeup};
use carom_sim::Machine;

use super::plane::FRAMING_BYTES;
use super::protocol::{Protocol, Ridden};
use super::tally::Tally;

pub(crate) struct Rider {
    protocol: Protocol,
    pub(super) ridden: Ridden,
    pub(super) tally: Option<Tally>,
    /// Number of bytes on the wire that the node has sent, with framing. A multicast counts once.
    pub(super) sent_bytes: u64,
}

impl Rider {
    pub(crate) fn new(protocol: Protocol, ridden: Ridden, is_tallied: bool) -> Self {
        let tally = is_tallied.then(Tally::default);
        Self { protocol, ridden, tally, sent_bytes: 0 }
    }
}

impl Machine for Rider {
    type Command = Infallible;
    type Event = Event;

    fn handle_command(&mut self, _now: Time, command: Infallible) {
        match command {}
    }

    fn handle_datagram(&mut self, now: Time, _source: Endpoint, datagram: &[u8]) {
        if let Some(tally) = &mut self.tally {
            tally.note_received(now, self.protocol, datagram);
        }
        if let Ok(datagram) = Datagram::parse(datagram) {
            self.ridden.engine_mut().handle_datagram(now, &datagram);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        self.ridden.engine_mut().handle_timeout(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        let start = out.len();
        let transmit = self.ridden.engine_mut().poll_transmit(out)?;
        self.sent_bytes += (out.len() - start + FRAMING_BYTES) as u64;
        if let Some(tally) = &mut self.tally
            && matches!(transmit.class, Class::Retransmission | Class::Repair)
        {
            tally.note_repair_sent(self.protocol, &transmit.destination, &out[start..]);
        }
        Some(transmit)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.ridden.engine_mut().poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        self.ridden.engine().poll_timeout()
    }

    fn check(&self) {
        self.ridden.engine().check();
    }
}
