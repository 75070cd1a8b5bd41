//! Ordered groups: the flags with which they are joined, and the way into a ring.

pub(crate) mod news;

use std::time::{Duration, Instant};

use carom::{Event, Group, Node, Partition, Profile};

use crate::error::CliError;
use crate::interrupt::{self, Interrupt};
use crate::node;
use crate::units::UnitError;
pub(crate) use news::RingWatch;

/// The flags of a verb whose group may be an ordered one.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OrderedArgs {
    /// The group is an ordered one: all members are given the same messages in the same order
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    ring: RingArgs,
    /// End when the ring has gone on without this node, instead of joining it again as a new
    /// member; the group is ordered
    #[arg(long)]
    no_rejoin: bool,
}

/// The flags of a verb whose group is an ordered one.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RingArgs {
    /// Which part of an ordered group goes on after a fault, the same at all members: majority,
    /// all (none goes on without one), or N, every part of at least so many [default: majority]
    #[arg(long, value_name = "PART", value_parser = partition, allow_hyphen_values = true)]
    partition: Option<Partition>,
}

impl OrderedArgs {
    /// The profile of the group; `None` if it is not an ordered one.
    pub(crate) fn profile(&self) -> Option<Profile> {
        let is_ordered = self.ordered || self.ring.partition.is_some() || self.no_rejoin;
        is_ordered.then(|| self.ordered_profile())
    }

    /// The profile of the group, which is ordered because another flag says so.
    pub(crate) fn ordered_profile(&self) -> Profile {
        self.ring.profile().rejoin(!self.no_rejoin)
    }

    /// Whether messages may be promised to be known to a majority.
    pub(crate) fn has_majorities(&self) -> bool {
        !matches!(self.ring.partition, Some(Partition::AtLeast(_)))
    }
}

impl RingArgs {
    /// The profile of the group.
    pub(crate) fn profile(&self) -> Profile {
        Profile::ordered().partition(self.partition.unwrap_or(Partition::Majority))
    }
}

/// Listens for Ctrl-C; a ring is left in order, which takes its time.
///
/// # Errors
/// If the system does not let us.
pub(crate) fn listen() -> Result<&'static Interrupt, CliError> {
    interrupt::listen_with(LEAVE_WITHIN)
}

/// Joins `group` as an ordered one, and waits until its ring has let this node in.
///
/// # Errors
/// If the group's members have other settings, the node ended, or the user asks to end.
pub(crate) fn join(
    node: &Node,
    group: &str,
    profile: Profile,
    interrupt: &Interrupt,
) -> Result<Group, CliError> {
    let joined = node.join(group, profile).map_err(|error| node::refused(group, &error))?;
    let started = Instant::now();
    let mut told = false;
    loop {
        let status = node.status();
        match status.groups.iter().find(|it| it.id == joined.id()) {
            None => return Err(node::closed(node, group)),
            Some(status) if status.ring.is_some() => return Ok(joined),
            Some(_) => {}
        }
        if started.elapsed() >= TELL_AFTER && !std::mem::replace(&mut told, true) {
            eprintln!("waiting for the ring of {group}: it lets nobody in while it may not go on");
        }
        if interrupt.wait(STEP) {
            return Err(CliError::interrupted());
        }
    }
}

/// Takes all events that wait, for a verb that wants no messages: a member that does not take them
/// holds the others up. News of the ring are told; false if the group is closed.
pub(crate) fn drain(group: &Group, watch: &mut RingWatch) -> bool {
    loop {
        match group.recv_timeout(Duration::ZERO) {
            Ok(Some(Event::Ring(event))) => watch.tell(&event.news),
            Ok(Some(_)) => {}
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}

/// The flags with which a group of this partition is joined.
pub(crate) fn flags(partition: Partition) -> String {
    match partition {
        Partition::Majority => "--ordered".to_owned(),
        Partition::All => "--ordered --partition all".to_owned(),
        Partition::AtLeast(least) => format!("--ordered --partition {least}"),
    }
}

fn partition(text: &str) -> Result<Partition, UnitError> {
    match text {
        "majority" => Ok(Partition::Majority),
        "all" => Ok(Partition::All),
        _ => match text.parse() {
            Ok(least @ 1..=MOST_MEMBERS) => Ok(Partition::AtLeast(least)),
            _ => Err(UnitError {
                cause: format!("'{text}' is no part of a ring"),
                fix: format!("write majority, all, or a number of members, 1 to {MOST_MEMBERS}"),
            }),
        },
    }
}

const MOST_MEMBERS: u16 = 1024;
const STEP: Duration = Duration::from_millis(20);
const TELL_AFTER: Duration = Duration::from_secs(1);
/// A node that is closed waits 3 s for the rings of its groups to let it go.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_majority_all_or_a_number_of_members() {
        assert_eq!(partition("majority"), Ok(Partition::Majority));
        assert_eq!(partition("all"), Ok(Partition::All));
        assert_eq!(partition("3"), Ok(Partition::AtLeast(3)));
        for wrong in ["0", "-1", "half", "", "70000"] {
            assert!(partition(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_group_is_ordered_as_soon_as_one_flag_says_so() {
        assert_eq!(OrderedArgs::default().profile(), None);
        let ring = RingArgs { partition: Some(Partition::All) };
        let args = OrderedArgs { ring, ..OrderedArgs::default() };
        assert_eq!(args.profile(), Some(Profile::ordered().partition(Partition::All)));
        let args = OrderedArgs { no_rejoin: true, ..OrderedArgs::default() };
        assert_eq!(args.profile(), Some(Profile::ordered().rejoin(false)));
    }
}
