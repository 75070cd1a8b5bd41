//! What can go wrong, each with its cause and its fix.

mod fix;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::rmp::{self, Qos, Removal};
use carom_proto::{GroupSettings, JoinError, NodeId, lateral, rdcm};

use crate::pool::MulticastPool;
use crate::sockets::DEFAULT_MULTICAST_PORT;

/// Why a node could not be started. `Display` gives the cause in one line, [`StartError::fix`]
/// the remedy in another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The port that was asked for belongs to another socket.
    #[error("port {port} is in use")]
    AddressInUse {
        /// The UDP port.
        port: u16,
        /// Whether it is the port for multicast.
        multicast: bool,
    },
    /// No interface has this name or address.
    #[error("unknown interface {name:?}")]
    UnknownInterface {
        /// What was asked for.
        name: String,
        /// The interfaces that there are, each as `name (address)`.
        known: Vec<String>,
    },
    /// The host has no interface with an IPv4 address, not even loopback.
    #[error("no network interface is up and has an IPv4 address")]
    NoInterface,
    /// The operating system does not let this process do it.
    #[error("no permission to {action}")]
    Permission {
        /// What was not permitted.
        action: String,
    },
    /// A seed is not an address, or its name does not resolve to an IPv4 address.
    #[error("seed {seed:?}: {reason}")]
    Seed {
        /// The seed as given.
        seed: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The address of a membership service is none, or its name does not resolve to an IPv4
    /// address.
    #[error("membership service {address:?}: {reason}")]
    Control {
        /// The address as given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The name of a cluster or rack is longer than 255 bytes.
    #[error("the name {name:?} is longer than 255 bytes")]
    LongName {
        /// The beginning of the name.
        name: String,
    },
    /// The pool holds addresses that are not for multicast.
    #[error("{pool} is not a pool of multicast addresses")]
    Pool {
        /// The pool.
        pool: MulticastPool,
    },
    /// The multicast port is 0: all nodes share one, so that none can choose a free one.
    #[error("multicast port 0 is invalid: expected 1 to 65535")]
    MulticastPort,
    /// A rate outside 0 to 1 or a burst of 0.
    #[error("impossible loss: {loss}")]
    Loss {
        /// What was asked for.
        loss: Loss,
    },
    /// The lateral engine's settings cannot work.
    #[error("lateral engine: {0}")]
    Lateral(#[from] lateral::ConfigError),
    /// The settings of the engine of ordered groups cannot work.
    #[error("ordered groups: {0}")]
    Ordered(#[from] rmp::ConfigError),
    /// The bulk engine cannot be set like that.
    #[error("bulk groups: {0}")]
    Bulk(#[from] rdcm::ConfigError),
    /// The driver that the node was to share has stopped.
    #[error("the driver has stopped")]
    DriverStopped,
    /// The operating system refused something else.
    #[error("cannot {action}: {}", plain(error))]
    System {
        /// What was attempted.
        action: String,
        /// Its answer. It is part of the text, and therefore not a [`source`](std::error::Error).
        error: io::Error,
    },
}

/// Why a group could not be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The settings are out of bounds or contradict those of the node or of the group's members.
    #[error(transparent)]
    Refused(#[from] JoinError),
    /// Seeds were given, and nobody was met through any of them.
    #[error("no seed answered: {}", seeds.join(", "))]
    NoSeedAnswered {
        /// The seeds as given.
        seeds: Vec<String>,
    },
    /// The node has a membership service, and it has not answered.
    #[error("no answer from the membership service at {}{}", addresses.join(", "), because(why))]
    ServiceAway {
        /// Its addresses as given.
        addresses: Vec<String>,
        /// What is known of the reason.
        why: Option<String>,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// Why a message was not published. Nothing of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The message does not fit into a packet whose repairs fit into the path MTU.
    #[error("message of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// The message's size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// The group does not give this guarantee.
    #[error("this group cannot promise that a message is {asked}")]
    Qos {
        /// What was asked for.
        asked: Qos,
    },
    /// The group was left, refused later on, or its node is closed.
    #[error("the group is closed")]
    Closed,
}

/// Why a message was not taken without waiting. Nothing of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryPublishError {
    /// The group's outgoing queue is full.
    #[error("the queue is full{}", held_back(*held_back_by))]
    Full {
        /// The member that the group waits for, and how many messages it is behind; `None` if
        /// the messages come faster than they can be sent.
        held_back_by: Option<(NodeId, u32)>,
        /// The message, the caller's again.
        payload: Bytes,
    },
    /// As [`PublishError::TooLarge`].
    #[error("message of {bytes} bytes, where at most {limit} fit")]
    TooLarge {
        /// The message's size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// As [`PublishError::Qos`].
    #[error("this group cannot promise that a message is {asked}")]
    Qos {
        /// What was asked for.
        asked: Qos,
    },
    /// As [`PublishError::Closed`].
    #[error("the group is closed")]
    Closed,
}

/// Why it is not known that a message's promise is kept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDelivered {
    /// The ring went on without this node before the message had its place here: the others may
    /// have been given it, or not.
    #[error("this node was removed from the group's ring before it knew")]
    Removed {
        /// Why it was removed.
        why: Removal,
    },
    /// Members have lost messages that were sent up to this one.
    #[error("lost by {}", counts(lost_by))]
    Incomplete {
        /// Who, and how many messages of this node.
        lost_by: Vec<(NodeId, u32)>,
    },
    /// It was given up before it was confirmed: another node sends in the bulk group. Members may
    /// have it, or not.
    #[error("it was given up before it was confirmed: another node sends in the group")]
    GivenUp,
    /// There was no other member, or none any more, to get it: nobody is known to have it.
    #[error("no other member was there to get it")]
    Nobody,
    /// Nothing was heard in this time; the promise may still be kept.
    #[error("not known within {0:?}")]
    Timeout(Duration),
    /// The group or its node was closed.
    #[error("the group was closed before it was known")]
    Closed,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnswered {
    /// Nobody has answered within the patience of the request, or this node has left the group
    /// meanwhile. The request may have been executed.
    #[error("no answer in time")]
    Unanswered,
    /// The request was not made.
    #[error(transparent)]
    Refused(#[from] rmp::RequestError),
    /// The group is not an ordered one: it takes no requests.
    #[error("this group is not ordered: it takes no requests")]
    NoRequests,
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// The error of a lock that could not be acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another node holds it.
    #[error("{}", refused(*holder))]
    Refused {
        /// Who; `None` if nobody does, and the group has as many locks as it can keep.
        holder: Option<NodeId>,
    },
    /// Another task of this node holds it or waits for it.
    #[error("this node holds the lock or waits for it already")]
    HeldHere,
    /// The ring went on without this node before it was granted.
    #[error("this node was removed from the group's ring before it had the lock")]
    Lost,
    /// So many requests for locks wait already.
    #[error("{asked} requests for locks wait already")]
    TooMany {
        /// How many.
        asked: usize,
    },
    /// It was not granted within this time.
    #[error("not granted within {0:?}")]
    Timeout(Duration),
    /// The group is not an ordered one: it has no locks.
    #[error("this group is not ordered: it has no locks")]
    NoLocks,
    /// The group or its node was closed.
    #[error("the group is closed")]
    Closed,
}

/// Why it is not known that everything that was sent is settled at all members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSafe {
    /// Not all members have confirmed in time.
    #[error("{}", not_confirmed(waiting_for))]
    Timeout {
        /// The members that have not, as far as known.
        waiting_for: Vec<NodeId>,
    },
    /// Messages were given up before they were confirmed: another node sends in the bulk group, or
    /// the ring of the ordered group went on without this node. Members may have them, or not.
    #[error("messages were given up before they were confirmed")]
    GivenUp,
    /// No other member was there to receive the messages, or all have left since.
    #[error("no other member was there to get the messages")]
    Nobody,
    /// The group or its node was closed.
    #[error("the group was closed before its messages were confirmed")]
    Closed,
}

/// The time ran out before anything happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing happened within {0:?}")]
pub struct Timeout(pub Duration);

impl StartError {
    /// The fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::AddressInUse { port, multicast: false } => {
                format!("choose another port than {port}, or none to have a free one chosen")
            }
            Self::AddressInUse { port, multicast: true } => format!(
                "choose another multicast port than {port} (for all nodes alike), or stop the \
                 program that has it (ss -ulpn 'sport = :{port}')"
            ),
            Self::UnknownInterface { known, .. } => format!("use one of: {}", known.join(", ")),
            Self::NoInterface => "bring one up (ip link set lo up)".into(),
            Self::Permission { .. } => {
                "run with the permission to do so (ports below 1024 need CAP_NET_BIND_SERVICE), \
                 or choose another port"
                    .into()
            }
            Self::Control { .. } => "give it as HOST:PORT, such as 10.0.0.1:7402".into(),
            Self::LongName { .. } => "choose a shorter name".into(),
            Self::Seed { .. } => "give each seed as HOST:PORT, such as 10.0.0.1:7400".into(),
            Self::Pool { .. } => {
                format!("use addresses in 224.0.1.0 to 239.255.255.255, such as {}", default_pool())
            }
            Self::MulticastPort => {
                format!("give all nodes the same port, such as {DEFAULT_MULTICAST_PORT}")
            }
            Self::Loss { .. } => "use a rate of 0 to 1 and bursts of at least 1 datagram".into(),
            Self::Lateral(lateral::ConfigError::PathMtu(_)) => {
                "raise path_mtu and the interface's MTU (ip link set dev IF mtu 1500)".into()
            }
            Self::Lateral(_) => "see lateral::Config for what is possible".into(),
            Self::Ordered(_) => "see rmp::Config for what is possible".into(),
            Self::Bulk(_) => "see rdcm::Config for what is possible".into(),
            Self::DriverStopped => "make a new driver".into(),
            Self::System { error, .. } => match error.raw_os_error() {
                Some(TOO_MANY_FILES) => "raise the limit of open files (ulimit -n)".into(),
                _ => "see the system's message; carom doctor checks the usual suspects".into(),
            },
        }
    }

    /// The error of the operating system while `action` was attempted.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { action },
            _ => Self::System { action, error: source },
        }
    }

    /// The error of the operating system when `port` of `address` was bound.
    pub(crate) fn bind(address: IpAddr, port: u16, multicast: bool, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { port, multicast },
            _ => Self::system(format!("bind UDP {address}:{port}"), source),
        }
    }
}

impl JoinGroupError {
    /// The fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused(error) => refused_fix(error),
            Self::NoSeedAnswered { .. } => {
                "start a node there, or check address, port, firewall (UDP) and that the \
                 multicast port is the same; leave the seeds away to be found by multicast"
                    .into()
            }
            Self::ServiceAway { .. } => {
                "start `carom control` there, or check address, port, cluster and firewall (TCP)"
                    .into()
            }
            Self::Closed => "start a new node".into(),
        }
    }
}

fn because(why: &Option<String>) -> String {
    why.as_ref().map(|why| format!(": {why}")).unwrap_or_default()
}

fn refused_fix(error: &JoinError) -> String {
    match error {
        JoinError::NameLength { .. } => {
            format!("give a name of 1 to {} bytes", GroupSettings::MAX_NAME_BYTES)
        }
        JoinError::NameCharacter { .. } => "give a name of printable characters".into(),
        JoinError::RateOfFire { .. } => "choose r from 1 to 32, such as (8,5)".into(),
        JoinError::Partition { .. } => {
            "choose how many members, or voters, from 1 on; or a majority".into()
        }
        JoinError::TooManyGroups { .. } => "leave groups, or join with another node".into(),
        JoinError::DifferentR { existing, .. } => {
            format!("use r = {existing} in all groups of this node, or another node")
        }
        JoinError::NoEngine { .. } => "give the node's builder an engine for it (guest)".into(),
        JoinError::AlreadyJoined => "use the group that was joined already".into(),
        JoinError::NameCollision => "choose another name for the group".into(),
        JoinError::Contradiction { theirs, .. } => format!("join with {theirs}, as the group is"),
        JoinError::Unserved { .. } => "see the log of the membership service, and try again".into(),
    }
}

impl From<rmp::LockError> for LockError {
    fn from(error: rmp::LockError) -> Self {
        match error {
            rmp::LockError::NotJoined => Self::Closed,
            rmp::LockError::AlreadyAsked => Self::HeldHere,
            rmp::LockError::NotAsked => Self::Lost,
            rmp::LockError::TooMany { asked } => Self::TooMany { asked },
        }
    }
}

impl From<NotSafe> for NotDelivered {
    fn from(error: NotSafe) -> Self {
        match error {
            NotSafe::Timeout { .. } => Self::Timeout(Duration::MAX),
            NotSafe::GivenUp => Self::GivenUp,
            NotSafe::Nobody => Self::Nobody,
            NotSafe::Closed => Self::Closed,
        }
    }
}

impl From<PublishError> for TryPublishError {
    fn from(error: PublishError) -> Self {
        match error {
            PublishError::TooLarge { bytes, limit } => Self::TooLarge { bytes, limit },
            PublishError::Qos { asked } => Self::Qos { asked },
            PublishError::Closed => Self::Closed,
        }
    }
}

/// The text of a system error without its number, in lower case as the rest of the line.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn refused(holder: Option<NodeId>) -> String {
    match holder {
        Some(node) => format!("{node} holds the lock"),
        None => "the group has as many locks as it can keep".into(),
    }
}

fn counts(lost_by: &[(NodeId, u32)]) -> String {
    let each = lost_by.iter().map(|(node, count)| format!("{node} ({count})"));
    each.collect::<Vec<String>>().join(", ")
}

fn held_back(by: Option<(NodeId, u32)>) -> String {
    by.map(|(node, behind)| {
        let noun = if behind == 1 { "message" } else { "messages" };
        format!(": held back by {node}, {behind} {noun} behind")
    })
    .unwrap_or_default()
}

fn not_confirmed(waiting_for: &[NodeId]) -> String {
    match waiting_for {
        [] => "the messages were not confirmed in time".into(),
        nodes => {
            let names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
            format!("not confirmed in time by {}", names.join(", "))
        }
    }
}

fn default_pool() -> MulticastPool {
    MulticastPool::default()
}

/// `EMFILE` of every Unix.
const TOO_MANY_FILES: i32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_and_every_fix_is_one_line() {
        let errors = [
            StartError::AddressInUse { port: 7400, multicast: false },
            StartError::AddressInUse { port: 7401, multicast: true },
            StartError::UnknownInterface { name: "x".into(), known: vec!["lo (::)".into()] },
            StartError::NoInterface,
            StartError::Permission { action: "bind".into() },
            StartError::Seed { seed: "x".into(), reason: "no port".into() },
            StartError::Control { address: "x".into(), reason: "no port".into() },
            StartError::LongName { name: "x".into() },
            StartError::Pool { pool: MulticastPool::default() },
            StartError::MulticastPort,
            StartError::Loss { loss: Loss::Uniform(2.0) },
            StartError::Lateral(lateral::ConfigError::Stagger),
            StartError::DriverStopped,
            StartError::system("open a socket", io::Error::from_raw_os_error(24)),
        ];
        for error in errors {
            for line in [error.to_string(), error.fix()] {
                assert!(!line.is_empty() && !line.contains('\n') && !line.contains("  "), "{line}");
            }
        }
    }

    #[test]
    fn a_system_error_is_told_once_and_without_its_number() {
        use std::error::Error as _;
        let error = StartError::system("open a socket", io::Error::from_raw_os_error(24));
        assert_eq!(error.to_string(), "cannot open a socket: too many open files");
        assert!(error.source().is_none(), "a chain of causes would repeat it");
    }

    #[test]
    fn one_message_behind_is_singular() {
        let told = |behind| held_back(Some((NodeId(1), behind)));
        assert!(told(1).ends_with(", 1 message behind"), "{}", told(1));
        assert!(told(2).ends_with(", 2 messages behind"), "{}", told(2));
    }

    #[test]
    fn what_became_of_a_message_has_a_fix_of_one_line() {
        let full = |held_back_by| TryPublishError::Full { held_back_by, payload: Bytes::new() };
        let fixes = [
            full(None).fix(),
            full(Some((NodeId(1), 2))).fix(),
            TryPublishError::TooLarge { bytes: 9, limit: 4 }.fix(),
            TryPublishError::Closed.fix(),
            NotDelivered::Nobody.fix(),
            NotDelivered::Incomplete { lost_by: vec![(NodeId(1), 2)] }.fix(),
            NotDelivered::Timeout(Duration::from_secs(1)).fix(),
            NotDelivered::Closed.fix(),
            NotDelivered::GivenUp.fix(),
            NotSafe::Timeout { waiting_for: vec![NodeId(1)] }.fix(),
            NotSafe::Timeout { waiting_for: Vec::new() }.fix(),
            NotSafe::GivenUp.fix(),
            NotSafe::Nobody.fix(),
            NotSafe::Closed.fix(),
            Timeout(Duration::from_secs(1)).fix(),
        ];
        for fix in fixes {
            assert!(!fix.is_empty() && !fix.contains('\n') && !fix.contains("  "), "{fix}");
        }
    }
}
