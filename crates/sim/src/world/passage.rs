//! The passage of time, virtual or that of a medium.

use core::time::Duration;

use carom_proto::Time;

use super::World;
use super::context::Due;
use crate::machine::{Happening, Machine};
use crate::network::Hop;

impl<M: Machine> World<M> {
    /// Returns the time of the next scheduled event, or `None` if there is none. Over a medium,
    /// returns the current time, because a datagram may arrive at any time.
    pub fn next_at(&self) -> Option<Time> {
        self.delivery.real_time().map(|at| at.max(self.cx.now)).or_else(|| self.cx.queue.next_at())
    }

    /// Processes the next scheduled event. Returns `false` if there is none. Over a medium, waits
    /// for a short time for an event, and returns `true`.
    pub fn step(&mut self) -> bool {
        match self.delivery.real_time() {
            Some(now) => self.step_over_medium(now + LONGEST_WAIT),
            None => {
                let Some((at, due)) = self.cx.queue.pop() else { return false };
                self.pass_to(at);
                self.execute(due);
            }
        }
        true
    }

    /// Processes the next event that is due. If there is none, waits for a datagram until the next
    /// event is due, or until `end`.
    fn step_over_medium(&mut self, end: Time) {
        self.follow_medium();
        let next = self.cx.queue.next_at();
        if next.is_none_or(|at| at > self.cx.now) {
            let until = next.map_or(end, |at| at.min(end));
            let most = until.since(self.cx.now);
            self.delivery.receive(&mut self.cx, most);
            self.follow_medium();
        }
        if self.cx.queue.next_at().is_some_and(|at| at <= self.cx.now)
            && let Some((at, due)) = self.cx.queue.pop()
        {
            self.delivery.note_lag(self.cx.now.since(at));
            self.execute(due);
        }
    }

    /// Advances to the time of the medium, if there is one.
    pub(super) fn follow_medium(&mut self) {
        if let Some(now) = self.delivery.real_time() {
            self.pass_to(now);
        }
    }

    fn pass_to(&mut self, at: Time) {
        if at > self.cx.now {
            (self.cx.now, self.idle_calls) = (at, 0);
        }
    }

    fn execute(&mut self, due: Due) {
        match due {
            Due::Arrival(host, packet) => self.on_arrival(host, packet),
            Due::Link(packet, branch) => {
                self.delivery.forward(&mut self.cx, packet, Hop::Link(branch));
            }
            Due::Cable(cable) => self.delivery.on_cable(&mut self.cx, cable),
            Due::Service(host, incarnation) => {
                if let Some(number) = self.hosts[host].end_service(incarnation) {
                    self.deliver(host, number);
                    self.hosts.serve_next(&mut self.cx, host);
                }
            }
            Due::Wake(host) => self.on_wake(host),
            Due::Stream(link, side) => self.on_stream(link, side),
            Due::Read(link, side) => self.read_link(link, side),
            Due::Command(host, incarnation, number) => self.on_command(host, incarnation, number),
        }
    }

    /// Removes and returns the next event that a machine has reported.
    pub fn poll_event(&mut self) -> Option<Happening<M::Event>> {
        self.events.pop_front()
    }

    /// Advances time to `end`, and passes every event to `on_event`.
    ///
    /// Over a medium whose time has passed `end`, processes the events that were due, and at least
    /// one datagram, so that a late caller does not keep the world from receiving.
    pub fn run_until(&mut self, end: Time, on_event: &mut impl FnMut(Happening<M::Event>)) {
        let mut is_first = true;
        loop {
            while let Some(happening) = self.events.pop_front() {
                on_event(happening);
            }
            let is_due = self.cx.queue.next_at().is_some_and(|at| at <= end);
            match self.delivery.real_time() {
                Some(now) if now < end || is_due || is_first => self.step_over_medium(end),
                None if is_due => _ = self.step(),
                _ => break,
            }
            is_first = false;
        }
        if let Some(now) = self.delivery.real_time() {
            self.delivery.note_lag(now.since(end));
        }
        self.cx.now = self.cx.now.max(end);
    }

    /// Advances time by `span`, and passes every event to `on_event`.
    pub fn run_for(&mut self, span: Duration, on_event: &mut impl FnMut(Happening<M::Event>)) {
        self.run_until(self.now() + span, on_event);
    }
}

/// Time after which a world over a medium returns to its caller.
const LONGEST_WAIT: Duration = Duration::from_millis(1);
