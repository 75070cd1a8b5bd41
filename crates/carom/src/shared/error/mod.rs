//! Errors of the public API, each with its cause and its fix.

mod fix;

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use carom_proto::loss::Loss;
use carom_proto::rmp::{self, Qos, Removal};
use carom_proto::{GroupSettings, JoinError, NodeId, lateral, rdcm};

use super::addressing::{DEFAULT_MULTICAST_PORT, MulticastPool};

/// Error of a node that could not be started. `Display` gives the cause in one line,
/// [`StartError::fix`] the fix in another.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The requested port belongs to another socket.
    #[error("port {port} is in use")]
    AddressInUse {
        /// UDP port.
        port: u16,
        /// `true` if it is the multicast port.
        multicast: bool,
    },
    /// No interface has this name or address.
    #[error("unknown interface {name:?}")]
    UnknownInterface {
        /// Requested name or address.
        name: String,
        /// Interfaces of this host, each as `name (address)`.
        known: Vec<String>,
    },
    /// The host has no interface with an IPv4 address, not even loopback.
    #[error("no network interface is up and has an IPv4 address")]
    NoInterface,
    /// The operating system does not permit the operation to this process.
    #[error("no permission to {action}")]
    Permission {
        /// Operation that was not permitted.
        action: String,
    },
    /// A seed is not an address, or its name does not resolve to an IPv4 address.
    #[error("seed {seed:?}: {reason}")]
    Seed {
        /// Seed as given.
        seed: String,
        /// Reason for the refusal.
        reason: String,
    },
    /// The address of a membership service is invalid, or its name does not resolve to an IPv4
    /// address.
    #[error("membership service {address:?}: {reason}")]
    Control {
        /// Address as given.
        address: String,
        /// Reason for the refusal.
        reason: String,
    },
    /// The name of a cluster or rack is longer than 255 bytes.
    #[error("the name {name:?} is longer than 255 bytes")]
    LongName {
        /// Beginning of the name.
        name: String,
    },
    /// The pool is empty, or contains addresses that are not for multicast.
    #[error("{pool} is not a pool of multicast addresses")]
    Pool {
        /// Pool as given.
        pool: MulticastPool,
    },
    /// The multicast port is 0. All nodes share the port, so that no node can select a free one.
    #[error("multicast port 0 is invalid: expected 1 to 65535")]
    MulticastPort,
    /// The injected loss has a rate outside 0 to 1, or a burst length of 0.
    #[error("loss of {loss} is invalid")]
    Loss {
        /// Injected loss as given.
        loss: Loss,
    },
    /// The settings of the lateral engine are invalid.
    #[error("lateral engine: {0}")]
    Lateral(#[from] lateral::ConfigError),
    /// The settings of the engine of ordered groups are invalid.
    #[error("ordered groups: {0}")]
    Ordered(#[from] rmp::ConfigError),
    /// The settings of the engine of bulk groups are invalid.
    #[error("bulk groups: {0}")]
    Bulk(#[from] rdcm::ConfigError),
    /// The shared driver of the node has stopped.
    #[error("the driver has stopped")]
    DriverStopped,
    /// The operating system refused another operation.
    #[error("cannot {action}: {}", plain(error))]
    System {
        /// Operation that was attempted.
        action: String,
        /// Error of the operating system. It is part of the text, and therefore not a
        /// [`source`](std::error::Error).
        error: io::Error,
    },
}

/// Error of a group that could not be joined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinGroupError {
    /// The settings are out of bounds, or conflict with those of the node or of the group's
    /// members.
    #[error(transparent)]
    Refused(#[from] JoinError),
    /// Seeds were given, and no node was found through any of them.
    #[error("no seed answered: {}", seeds.join(", "))]
    NoSeedAnswered {
        /// Seeds as given.
        seeds: Vec<String>,
    },
    /// The membership service has not answered.
    #[error("no answer from the membership service at {}{}", addresses.join(", "), because(why))]
    ServiceAway {
        /// Addresses of the service as given.
        addresses: Vec<String>,
        /// Reason, if it is known.
        why: Option<String>,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// Error of a message that was not published. No part of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The message is larger than [`Group::payload_limit`](crate::Group::payload_limit), or an
    /// unreliable message in an ordered group is larger than one packet.
    #[error("message of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the message in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The group does not offer this quality of service.
    #[error("this group does not support quality of service '{asked}'")]
    Qos {
        /// Requested quality of service.
        asked: Qos,
    },
    /// The group was left, its join was refused later, or its node is closed.
    #[error("the group is closed")]
    Closed,
}

/// Error of a message that was not accepted without waiting. No part of it was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryPublishError {
    /// The group's outgoing queue is full.
    #[error("the send queue is full{}", held_back(*held_back_by))]
    Full {
        /// Member that the group waits for, and the number of messages by which it lags; `None` if
        /// messages are published faster than they can be sent.
        held_back_by: Option<(NodeId, u32)>,
        /// The message, returned to the caller.
        payload: Bytes,
    },
    /// See [`PublishError::TooLarge`].
    #[error("message of {bytes} bytes is too large: expected at most {limit}")]
    TooLarge {
        /// Size of the message in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// See [`PublishError::Qos`].
    #[error("this group does not support quality of service '{asked}'")]
    Qos {
        /// Requested quality of service.
        asked: Qos,
    },
    /// See [`PublishError::Closed`].
    #[error("the group is closed")]
    Closed,
}

/// Error of a message whose guarantee is not known to hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotDelivered {
    /// This node was removed from the ring before it delivered the message. The other members may
    /// or may not have delivered it.
    #[error("this node was removed from the ring before the outcome was known")]
    Removed {
        /// Cause of the removal.
        why: Removal,
    },
    /// Members have lost messages up to and including this one.
    #[error("lost by {}", counts(lost_by))]
    Incomplete {
        /// Each of these members, with the number of this node's messages that it lost.
        lost_by: Vec<(NodeId, u32)>,
    },
    /// The message was given up before it was confirmed, because another node sends in the bulk
    /// group. Members may or may not have it.
    #[error("the message was given up before it was confirmed: another node sends in the group")]
    GivenUp,
    /// No other member was in the group, or all have left. No node is known to have the message.
    #[error("the group has no other member to receive the message")]
    Nobody,
    /// No confirmation arrived within this time. The guarantee may still be fulfilled.
    #[error("no confirmation within {0:?}")]
    Timeout(Duration),
    /// The group or its node was closed.
    #[error("the group was closed before the outcome was known")]
    Closed,
}

/// Error of a request without an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotAnswered {
    /// No answer arrived within the patience of the request, or this node has left the group
    /// meanwhile. The request may have been executed.
    #[error("no answer in time")]
    Unanswered,
    /// The request was not sent.
    #[error(transparent)]
    Refused(#[from] rmp::RequestError),
    /// The group is not ordered, and has no requests.
    #[error("this group is not ordered: it does not accept requests")]
    NoRequests,
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

/// Error of a lock that could not be acquired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another node holds the lock.
    #[error("{}", refused(*holder))]
    Refused {
        /// Holder of the lock; `None` if the lock is free, but the group has the maximum number of
        /// locks.
        holder: Option<NodeId>,
    },
    /// Another task of this node holds the lock or waits for it.
    #[error("this node already holds the lock or waits for it")]
    HeldHere,
    /// This node was removed from the ring before the lock was granted.
    #[error("this node was removed from the ring before the lock was granted")]
    Lost,
    /// Too many lock requests are waiting.
    #[error("too many lock requests: {asked} are already waiting")]
    TooMany {
        /// Number of waiting requests.
        asked: usize,
    },
    /// The lock was not granted within this time.
    #[error("not granted within {0:?}")]
    Timeout(Duration),
    /// The group is not ordered, and has no locks.
    #[error("this group is not ordered: it has no locks")]
    NoLocks,
    /// The group or its node was closed.
    #[error("the group is closed")]
    Closed,
}

/// Error of a confirmation: the messages are not known to be settled at all members.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSafe {
    /// Not all members have confirmed in time.
    #[error("{}", not_confirmed(waiting_for))]
    Timeout {
        /// Members that have not confirmed, as far as known.
        waiting_for: Vec<NodeId>,
    },
    /// Messages were given up before they were confirmed: another node sends in the bulk group, or
    /// this node was removed from the ring of the ordered group. Members may or may not have them.
    #[error("messages were given up before they were confirmed")]
    GivenUp,
    /// No other member was in the group to receive the messages, or all have left since.
    #[error("the group has no other member to receive the messages")]
    Nobody,
    /// The group or its node was closed.
    #[error("the group was closed before its messages were confirmed")]
    Closed,
}

/// No event arrived within this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no event within {0:?}")]
pub struct Timeout(pub Duration);

/// Error of a ring query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// Too many queries of this node are in progress.
    #[error("too many ring queries: {open} are in progress")]
    TooMany {
        /// Number of queries in progress.
        open: usize,
    },
    /// The node is closed.
    #[error("the node is closed")]
    Closed,
}

impl StartError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::AddressInUse { port, multicast: false } => {
                format!("choose another port than {port}, or omit it to use a free port")
            }
            Self::AddressInUse { port, multicast: true } => format!(
                "choose another multicast port than {port} (the same for all nodes), or stop the \
                 program that uses it (ss -ulpn 'sport = :{port}')"
            ),
            Self::UnknownInterface { known, .. } => format!("use one of: {}", known.join(", ")),
            Self::NoInterface => "bring an interface up (ip link set lo up)".into(),
            Self::Permission { .. } => {
                "run with the required permission (ports below 1024 need CAP_NET_BIND_SERVICE), or \
                 choose another port"
                    .into()
            }
            Self::Control { .. } => "give the address as HOST:PORT, such as 10.0.0.1:7402".into(),
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
            Self::Lateral(_) => "see lateral::Config for the allowed values".into(),
            Self::Ordered(_) => "see rmp::Config for the allowed values".into(),
            Self::Bulk(_) => "see rdcm::Config for the allowed values".into(),
            Self::DriverStopped => "create a new driver".into(),
            Self::System { error, .. } => match error.raw_os_error() {
                Some(TOO_MANY_FILES) => "raise the limit of open files (ulimit -n)".into(),
                _ => "run `carom doctor` to check this host for common causes".into(),
            },
        }
    }

    /// Returns the error of the operating system while `action` was attempted.
    pub(crate) fn system(action: impl Into<String>, source: io::Error) -> Self {
        let action = action.into();
        match source.kind() {
            io::ErrorKind::PermissionDenied => Self::Permission { action },
            _ => Self::System { action, error: source },
        }
    }

    /// Returns the error of the operating system while `port` of `address` was bound.
    pub(crate) fn bind(address: IpAddr, port: u16, multicast: bool, source: io::Error) -> Self {
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::AddressInUse { port, multicast },
            _ => Self::system(format!("bind UDP {address}:{port}"), source),
        }
    }
}

impl JoinGroupError {
    /// Returns the fix, in one line.
    pub fn fix(&self) -> String {
        match self {
            Self::Refused(error) => refused_fix(error),
            Self::NoSeedAnswered { .. } => {
                "start a node there, or check address, port, firewall (UDP) and that all nodes use \
                 the same multicast port; omit the seeds to find nodes by multicast"
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
            "choose a number of members or voters in this range, or a majority".into()
        }
        JoinError::TooManyGroups { .. } => {
            "leave another group first, or join from another node".into()
        }
        JoinError::DifferentR { existing, .. } => {
            format!("use r = {existing} in all groups of this node, or join from another node")
        }
        JoinError::NoEngine { .. } => {
            "give the node an engine for this profile with Builder::guest".into()
        }
        JoinError::AlreadyJoined => "use the existing handle of the group".into(),
        JoinError::NameCollision => "choose another name for the group".into(),
        JoinError::Contradiction { theirs, .. } => format!("join with {theirs}"),
        JoinError::Unserved { .. } => {
            "check the log of the membership service, and try again".into()
        }
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

impl From<rmp::LookError> for LookError {
    fn from(error: rmp::LookError) -> Self {
        match error {
            rmp::LookError::TooMany { open } => Self::TooMany { open },
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

/// Returns the text of a system error without its number, in lower case like the rest of the line.
pub(crate) fn plain(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}

fn refused(holder: Option<NodeId>) -> String {
    match holder {
        Some(node) => format!("{node} holds the lock"),
        None => "the group has the maximum number of locks".into(),
    }
}

fn counts(lost_by: &[(NodeId, u32)]) -> String {
    let each = lost_by.iter().map(|(node, count)| format!("{node} ({count})"));
    each.collect::<Vec<String>>().join(", ")
}

fn held_back(by: Option<(NodeId, u32)>) -> String {
    by.map(|(node, behind)| {
        let noun = if behind == 1 { "message" } else { "messages" };
        format!(": member {node} is {behind} {noun} behind")
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

/// `EMFILE` on every Unix.
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
        assert!(told(1).ends_with(" is 1 message behind"), "{}", told(1));
        assert!(told(2).ends_with(" is 2 messages behind"), "{}", told(2));
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
