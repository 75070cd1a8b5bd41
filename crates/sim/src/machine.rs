use bytes::Bytes;
use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::wire::Datagram;
use carom_proto::{
    Endpoint, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, SendOptions, Time,
    Transmit, ViewChange, Wakeup,
};

use crate::ids::HostIx;

/// A state machine under the [engine contract](carom_proto::engine), driven by the world. It is,
/// for example, a single engine or a whole node.
///
/// The world calls one of the `handle_*` methods, then drains `poll_transmit`, `poll_link` and
/// `poll_event` in this order, and then waits for input, or for the time of `poll_timeout`.
/// Connections lead to the endpoints of hosts, and have the guarantees of
/// [`carom_proto::membership::link`].
pub trait Machine {
    /// A request from the machine's application.
    type Command;
    /// An event for the machine's application.
    type Event;

    /// Handles a request from the application.
    fn handle_command(&mut self, _now: Time, _command: Self::Command) {}

    /// Handles a received datagram.
    fn handle_datagram(&mut self, _now: Time, _source: Endpoint, _datagram: &[u8]) {}

    /// Handles the passage of time.
    fn handle_timeout(&mut self, _now: Time) {}

    /// Appends the next datagram to `out`, and returns its destination.
    fn poll_transmit(&mut self, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    /// Returns `true` if the machine accepts connections.
    fn listens(&self) -> bool {
        false
    }

    /// Handles a new connection, called `link`, that a machine at `from` has opened.
    fn handle_accepted(&mut self, _now: Time, _link: LinkId, _from: Endpoint) {}

    /// Handles an event of a connection that the machine has opened or accepted.
    fn handle_link(&mut self, _now: Time, _link: LinkId, _event: LinkEvent<'_>) {}

    /// Returns the next operation on a connection.
    fn poll_link(&mut self) -> Option<LinkCommand> {
        None
    }

    /// Returns the next event.
    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    /// Returns the time of the next call to [`Machine::handle_timeout`], and its reason.
    fn poll_timeout(&self) -> Option<Wakeup> {
        None
    }

    /// Asserts the machine's invariants.
    ///
    /// # Panics
    /// Panics if an invariant is violated, which is a bug in the machine.
    fn check(&self) {}
}

/// An event that a machine reported, with its time and host.
#[derive(Clone, Debug, PartialEq)]
pub struct Happening<E> {
    /// World time of the report.
    pub at: Time,
    /// Host of the machine that reported the event.
    pub host: HostIx,
    /// The reported event.
    pub event: E,
}

/// A machine that joins groups and accepts view changes.
pub trait GroupMember: Machine<Command: From<Command>> {
    /// Joins a group.
    ///
    /// # Errors
    /// Returns the error of the engine or of its membership provider if it refuses the join. The
    /// machine is then not in the group.
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError>;
}

impl<E: Engine + ?Sized> GroupMember for Box<E> {
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.join(now, group, settings)
    }
}

/// A request from an application to an engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Joins the group. Its other members are then reported by [`Command::View`].
    Join(GroupId, GroupSettings),
    /// Leaves the group.
    Leave(GroupId),
    /// Multicasts a message in the group.
    Send(GroupId, Bytes, SendOptions),
    /// Requests that the group's members confirm all messages sent so far.
    Confirm(GroupId),
    /// Reports a view change.
    View(ViewChange),
    /// Reports the address of a node.
    Met(NodeId, Endpoint),
    /// Reports that a node is gone.
    Parted(NodeId),
}

impl<E: Engine + ?Sized> Machine for Box<E> {
    type Command = Command;
    type Event = Event;

    /// Passes the command to the engine, except [`Command::Met`] and [`Command::Parted`], and
    /// ignores refusals. A caller that needs the result calls the engine with
    /// [`World::with`](crate::World::with).
    fn handle_command(&mut self, now: Time, command: Command) {
        match command {
            Command::Join(group, settings) => _ = self.join(now, group, settings),
            Command::Leave(group) => self.leave(now, group),
            Command::Send(group, payload, options) => {
                _ = self.send(now, group, payload, options);
            }
            Command::Confirm(group) => self.confirm(now, group),
            Command::View(change) => self.handle_view(now, &change),
            Command::Met(..) | Command::Parted(_) => {}
        }
    }

    fn handle_datagram(&mut self, now: Time, _source: Endpoint, datagram: &[u8]) {
        if let Ok(datagram) = Datagram::parse(datagram) {
            (**self).handle_datagram(now, &datagram);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        (**self).handle_timeout(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        (**self).poll_transmit(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        (**self).poll_event()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        (**self).poll_timeout()
    }

    fn check(&self) {
        (**self).check();
    }
}
