//! What the world can drive.

use bytes::Bytes;
use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::{
    Endpoint, Engine, Event, GroupId, GroupSettings, JoinError, NodeId, SendOptions, Time,
    Transmit, ViewChange, Wakeup,
};

/// A state machine under the [engine contract](carom_proto::engine), as the world drives it: an
/// engine alone, or a whole node.
///
/// The world calls one of the `handle_*` verbs, then drains `poll_transmit`, then `poll_link`, then
/// `poll_event`, then waits until `poll_timeout`. Links go to hosts' endpoints, and their promises
/// are those of [`carom_proto::membership::link`].
pub trait Machine {
    /// What its application can ask of it.
    type Command;
    /// What it tells its application.
    type Event;

    /// The application asks for something.
    fn handle_command(&mut self, now: Time, command: Self::Command);

    /// A datagram arrived.
    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]);

    /// Time has passed.
    fn handle_timeout(&mut self, now: Time);

    /// Appends the next datagram to `out` and says where it goes.
    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit>;

    /// Whether links can be opened to this machine.
    fn listens(&self) -> bool {
        false
    }

    /// Somebody at `from` has opened a link. Its number is the world's choice, and new.
    fn handle_accepted(&mut self, _now: Time, _link: LinkId, _from: Endpoint) {}

    /// Something happened to a link that this machine has opened or accepted.
    fn handle_link(&mut self, _now: Time, _link: LinkId, _event: LinkEvent<'_>) {}

    /// The next thing to be done with a link.
    fn poll_link(&mut self) -> Option<LinkCommand> {
        None
    }

    /// The next thing that happened.
    fn poll_event(&mut self) -> Option<Self::Event>;

    /// When [`Machine::handle_timeout`] should be called next, and why.
    fn poll_timeout(&self) -> Option<Wakeup>;

    /// Asserts the machine's invariants.
    ///
    /// # Panics
    /// If one of them is broken: that is a bug in the machine.
    fn check(&self);
}

/// A machine that can be asked to join groups and told of views.
pub trait GroupMember: Machine<Command: From<Command>> {
    /// Joins a group.
    ///
    /// # Errors
    /// It refuses, and nothing has changed.
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

/// What an application can ask of an engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Join the group. Who must know of it is told by [`Command::View`].
    Join(GroupId, GroupSettings),
    /// Leave the group.
    Leave(GroupId),
    /// Multicast a message in the group.
    Send(GroupId, Bytes, SendOptions),
    /// Ask the group's members to confirm what was sent so far.
    Confirm(GroupId),
    /// The membership says that a view has changed.
    View(ViewChange),
    /// The membership says that the node can be reached there.
    Met(NodeId, Endpoint),
    /// The membership says that the node is gone.
    Parted(NodeId),
}

impl<E: Engine + ?Sized> Machine for Box<E> {
    type Command = Command;
    type Event = Event;

    /// Refusals are of no consequence here: whoever wants to know calls the engine itself, by
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
        (**self).handle_datagram(now, datagram);
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
