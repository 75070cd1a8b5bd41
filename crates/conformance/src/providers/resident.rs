use carom_proto::membership::link::{LinkCommand, LinkEvent, LinkId};
use carom_proto::membership::service::{Client, Detector, Observer};
use carom_proto::wire::Datagram;
use carom_proto::{Endpoint, GroupId, GroupSettings, JoinError, Time, Transmit, Wakeup};
use carom_sim::{Command, GroupMember, Machine};

use super::process::{Process, ProcessEvent, StoreReport};

/// A machine of a cluster with a registry: a member, or a part or a client of the registry.
pub enum Resident<M> {
    /// A member of groups.
    Member(M),
    /// A registry process.
    Process(Box<Process>),
    /// The failure detector of a rack.
    Detector(Box<Detector>),
    /// A program that observes the members of groups.
    Observer(Box<Observer>),
}

/// A command for a resident.
#[derive(Clone, Debug, PartialEq)]
pub enum ResidentCommand<C> {
    /// A request from the member's application.
    Member(C),
    /// A report from the store to a registry process.
    Process(StoreReport),
}

/// An event of a resident.
#[derive(Clone, Debug, PartialEq)]
pub enum ResidentEvent<E> {
    /// An event of a member.
    Member(E),
    /// An event of a registry process.
    Process(ProcessEvent),
}

impl<M> Resident<M> {
    /// Returns the member, or `None` if this is another kind of machine.
    pub fn member(&self) -> Option<&M> {
        match self {
            Self::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Returns the member, or `None` if this is another kind of machine.
    pub fn member_mut(&mut self) -> Option<&mut M> {
        match self {
            Self::Member(member) => Some(member),
            _ => None,
        }
    }

    /// Returns the registry process, or `None` if this is another kind of machine.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Process(process) => Some(process),
            _ => None,
        }
    }
}

impl<C: From<Command>> From<Command> for ResidentCommand<C> {
    fn from(command: Command) -> Self {
        Self::Member(command.into())
    }
}

impl<M: GroupMember> GroupMember for Resident<M> {
    fn join_group(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        let member = self.member_mut().expect("only members join groups");
        member.join_group(now, group, settings)
    }
}

impl<M: Machine> Machine for Resident<M> {
    type Command = ResidentCommand<M::Command>;
    type Event = ResidentEvent<M::Event>;

    fn handle_command(&mut self, now: Time, command: Self::Command) {
        match (self, command) {
            (Self::Member(member), ResidentCommand::Member(command)) => {
                member.handle_command(now, command)
            }
            (Self::Process(process), ResidentCommand::Process(report)) => {
                process.handle_report(now, report)
            }
            _ => panic!("a command for another kind of machine"),
        }
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        match self {
            Self::Member(member) => member.handle_datagram(now, source, datagram),
            // Multicast hellos reach these machines too.
            Self::Process(_) | Self::Observer(_) => {}
            Self::Detector(detector) => {
                if let Ok(datagram) = Datagram::parse(datagram) {
                    detector.handle_datagram(now, source, &datagram);
                }
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Member(member) => member.handle_timeout(now),
            Self::Process(process) => process.handle_timeout(now),
            Self::Detector(detector) => detector.handle_timeout(now),
            Self::Observer(observer) => observer.handle_timeout(now),
        }
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        match self {
            Self::Member(member) => member.poll_transmit(out),
            Self::Detector(detector) => detector.poll_transmit(out),
            Self::Process(_) | Self::Observer(_) => None,
        }
    }

    fn listens(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    fn handle_accepted(&mut self, now: Time, link: LinkId, from: Endpoint) {
        if let Self::Process(process) = self {
            process.handle_accepted(now, link, from);
        }
    }

    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>) {
        match self {
            Self::Member(member) => member.handle_link(now, link, event),
            Self::Process(process) => process.handle_link(now, link, event),
            Self::Detector(detector) => detector.handle_link(now, link, event),
            Self::Observer(observer) => observer.handle_link(now, link, event),
        }
    }

    fn poll_link(&mut self) -> Option<LinkCommand> {
        match self {
            Self::Member(member) => member.poll_link(),
            Self::Process(process) => process.poll_link(),
            Self::Detector(detector) => detector.poll_link(),
            Self::Observer(observer) => observer.poll_link(),
        }
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        match self {
            Self::Member(member) => member.poll_event().map(ResidentEvent::Member),
            Self::Process(process) => process.poll_event().map(ResidentEvent::Process),
            Self::Detector(_) | Self::Observer(_) => None,
        }
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        match self {
            Self::Member(member) => member.poll_timeout(),
            Self::Process(process) => process.poll_timeout(),
            Self::Detector(detector) => detector.poll_timeout(),
            Self::Observer(observer) => observer.poll_timeout(),
        }
    }

    fn check(&self) {
        match self {
            Self::Member(member) => member.check(),
            Self::Process(process) => process.server().check(),
            Self::Detector(_) | Self::Observer(_) => {}
        }
    }
}
