//! A node with its queues, as the simulator drives it.

use std::sync::{Arc, Mutex};

use carom_proto::{Endpoint, GroupId, GroupSettings, Time, Transmit, Wakeup};
use carom_sim::Machine;

use super::network::SimNetwork;
use super::oracle::{Ear, News};
use crate::command::NodeCommand;
use crate::host::Host;

/// Host of a node over a simulated network.
pub(crate) struct SimMachine {
    host: Host<SimNetwork>,
    /// Connection to the membership provider, if that is the world's oracle.
    ear: Option<Arc<Mutex<Ear>>>,
    has_begun: bool,
    /// `true` after the node has closed.
    has_ended: bool,
}

/// Order of the world to a node.
pub(crate) enum Order {
    /// Executes a command of a handle.
    Command(NodeCommand),
    /// Serves the node's queues.
    Serve,
    /// Delivers a change from the oracle.
    Hear(News),
}

/// Report of a node to the world.
#[derive(Debug)]
pub(crate) enum Told {
    /// The node joins the multicast of the group.
    ListensTo(GroupId),
    /// The node leaves the multicast of the group.
    StopsListening(GroupId),
    /// For the oracle: the node has joined the group, with the number of this stay.
    Joined(GroupId, GroupSettings, u32),
    /// For the oracle: the node has left the group.
    Left(GroupId),
    /// The node has notified the others, and is closed.
    Closed,
}

impl SimMachine {
    pub(crate) fn new(host: Host<SimNetwork>, ear: Option<Arc<Mutex<Ear>>>) -> Self {
        Self { host, ear, has_begun: false, has_ended: false }
    }

    fn serve(&mut self, now: Time) {
        if !self.has_ended {
            self.host.serve(now);
        }
        if let Some(reply) = self.host.closed(now) {
            self.has_ended = true;
            self.host.network.told.push_back(Told::Closed);
            let _ = reply.try_send(());
        }
    }

    fn hear(&mut self, news: News) {
        if let Some(ear) = &self.ear {
            Ear::lock(ear).heard.push_back(news);
        }
    }
}

impl Machine for SimMachine {
    type Command = Order;
    type Event = Told;

    fn handle_command(&mut self, now: Time, order: Order) {
        match order {
            Order::Command(command) => self.host.command(now, command),
            Order::Serve => {}
            Order::Hear(news) => self.hear(news),
        }
        self.serve(now);
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        if self.host.network.accepts(datagram) {
            self.host.node.handle_datagram(now, source, datagram);
            self.serve(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.host.begin(now);
        }
        self.serve(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.host.network.poll_transmit(out)
    }

    fn poll_event(&mut self) -> Option<Told> {
        let told = self.host.network.told.pop_front();
        told.or_else(|| Ear::lock(self.ear.as_ref()?).told.pop_front())
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let at = self.host.due(Time::ZERO)?;
        Some(Wakeup { at, reason: "turn of a node" })
    }

    fn check(&self) {
        self.host.node.check();
    }
}
