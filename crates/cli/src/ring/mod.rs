//! Ordered groups: the flags with which they are joined, and the way into a ring.

mod force;
mod limit;
pub(crate) mod news;
pub(crate) mod verb;

use std::time::{Duration, Instant};

use carom::{Event, Group, Node, Partition, Profile};

use crate::counted::counted;
use crate::error::CliError;
use crate::interrupt::{self, Interrupt};
use crate::node;
use crate::output;
use crate::units::UnitError;
pub(crate) use limit::Limit;
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
    /// How many voters the group has, the same at all members: nothing is ordered, acknowledged or
    /// locked while fewer than a majority of them are in the ring, also at the beginning
    #[arg(long, value_name = "N", conflicts_with = "partition", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(Partition::MAX_ELECTORATE)))]
    quorum_of: Option<u16>,
    /// Count this member among the voters of --quorum-of [default: sub and serve are voters]
    #[arg(long, requires = "quorum_of", conflicts_with = "client")]
    voter: bool,
    /// Do not count this member among the voters of --quorum-of [default: pub and lock are clients]
    #[arg(long, requires = "quorum_of")]
    client: bool,
}

/// Whether a member is a voter of an electorate unless its flags say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It stays, and counts.
    Voter,
    /// It comes and goes, and does not.
    Client,
}

impl OrderedArgs {
    /// The profile of the group; `None` if it is not an ordered one.
    pub(crate) fn profile(&self, part: Part) -> Option<Profile> {
        let has_part = self.ring.partition.is_some() || self.ring.quorum_of.is_some();
        let is_ordered = self.ordered || has_part || self.no_rejoin;
        is_ordered.then(|| self.ordered_profile(part))
    }

    /// The profile of the group, which is ordered because another flag says so.
    pub(crate) fn ordered_profile(&self, part: Part) -> Profile {
        self.ring.profile(part).rejoin(!self.no_rejoin)
    }

    /// Whether messages may be promised to be known to a majority.
    pub(crate) fn has_majorities(&self) -> bool {
        !matches!(self.ring.partition, Some(Partition::AtLeast(_)))
    }

    /// Says on standard error what a majority cannot promise without an electorate.
    pub(crate) fn warn_of_majority(&self) {
        self.ring.warn("a majority is one of the members that this ring happens to have");
    }
}

impl RingArgs {
    /// The profile of the group.
    pub(crate) fn profile(&self, part: Part) -> Profile {
        let partition = match self.quorum_of {
            Some(voters) => Partition::QuorumOf(voters),
            None => self.partition.unwrap_or(Partition::Majority),
        };
        let is_voter = self.voter || (part == Part::Voter && !self.client);
        Profile::ordered().partition(partition).voter(is_voter)
    }

    /// Says on standard error, in one line, what cannot be promised without an electorate.
    pub(crate) fn warn(&self, what: &str) {
        if self.quorum_of.is_none() {
            output::say(format_args!(
                "warning: {what}: machines that start apart do not know of each other; \
                       give --quorum-of N to all members"
            ));
        }
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
    let joined = join_within(node, group, profile, interrupt, Limit::new(None))?;
    joined.map_err(|why| CliError::new(why, "start more members of the group"))
}

/// Like [`join`], but not beyond `limit`. Returns why no ring let this node in if none did.
///
/// # Errors
/// Those of [`join`].
pub(crate) fn join_within(
    node: &Node,
    group: &str,
    profile: Profile,
    interrupt: &Interrupt,
    limit: Limit,
) -> Result<Result<Group, String>, CliError> {
    let started = Instant::now();
    let give_up = limit.of_ring(started);
    let joined = node.join(group, profile).map_err(|error| node::refused(group, &error))?;
    let mut told = false;
    loop {
        let status = node.status();
        match status.groups.iter().find(|it| it.id == joined.id()) {
            None => return Err(node::closed(node, group)),
            Some(status) if status.ring.is_some() => return Ok(Ok(joined)),
            Some(_) => {}
        }
        if started.elapsed() >= TELL_AFTER && !std::mem::replace(&mut told, true) {
            output::say(format_args!(
                "{}",
                waiting(group, joined.members().len(), profile.quorum())
            ));
        }
        if give_up.is_some_and(|at| Instant::now() >= at) {
            let waited = started.elapsed().as_secs_f64();
            return Ok(Err(format!("no ring of {group} let this node in within {waited:.1} s")));
        }
        if interrupt.wait(STEP) {
            return Err(CliError::interrupted());
        }
    }
}

/// What is known while no ring has let this node in.
fn waiting(group: &str, others: usize, quorum: Option<usize>) -> String {
    let Some(needed) = quorum else {
        return format!(
            "waiting for the ring of {group}: it lets nobody in while it may not go on"
        );
    };
    let voters = counted(needed, "voter");
    match others {
        0 => format!("waiting for quorum: no other member of {group} is known; it takes {voters}"),
        others => format!(
            "waiting for quorum: {} of {group} known, but its ring lets nobody in yet; it takes \
             {voters}",
            counted(others, "other member")
        ),
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
        Partition::QuorumOf(voters) => format!("--ordered --quorum-of {voters}"),
    }
}

fn partition(text: &str) -> Result<Partition, UnitError> {
    match text {
        "majority" => Ok(Partition::Majority),
        "all" => Ok(Partition::All),
        _ => match text.parse() {
            Ok(least @ 1..=Partition::MAX_AT_LEAST) => Ok(Partition::AtLeast(least)),
            _ => Err(UnitError {
                cause: format!("'{text}' is no part of a ring"),
                fix: format!(
                    "write majority, all, or a number of members, 1 to {}",
                    Partition::MAX_AT_LEAST
                ),
            }),
        },
    }
}

const STEP: Duration = Duration::from_millis(20);
const TELL_AFTER: Duration = Duration::from_secs(1);
/// A node that is closed waits 3 s for the rings of its groups to let it go.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;
    use carom::rmp::RingView;

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
    fn flag_and_library_take_the_same_numbers_of_members() {
        for least in 0..=u16::MAX {
            let is_flag_valid = partition(&least.to_string()).is_ok();
            assert_eq!(is_flag_valid, Partition::AtLeast(least).validate().is_ok(), "{least}");
        }
        assert_eq!(usize::from(Partition::MAX_AT_LEAST), RingView::MAX_MEMBERS);
    }

    #[test]
    fn a_joiner_is_told_what_is_known_of_the_ring() {
        let alone = waiting("g", 0, Some(2));
        assert_eq!(alone, "waiting for quorum: no other member of g is known; it takes 2 voters");
        let known = waiting("g", 1, Some(2));
        assert!(known.starts_with("waiting for quorum: 1 other member of g known"), "{known}");
        assert!(waiting("g", 3, None).starts_with("waiting for the ring of g"));
    }

    #[test]
    fn a_group_is_ordered_as_soon_as_one_flag_says_so() {
        assert_eq!(OrderedArgs::default().profile(Part::Voter), None);
        let ring = RingArgs { partition: Some(Partition::All), ..RingArgs::default() };
        let args = OrderedArgs { ring, ..OrderedArgs::default() };
        let all = Profile::ordered().partition(Partition::All);
        assert_eq!(args.profile(Part::Voter), Some(all));
        let args = OrderedArgs { no_rejoin: true, ..OrderedArgs::default() };
        assert_eq!(args.profile(Part::Voter), Some(Profile::ordered().rejoin(false)));
    }

    #[test]
    fn a_member_is_a_voter_or_a_client_as_its_verb_or_its_flags_say() {
        let profile = Profile::ordered().quorum_of(3);
        let ring = RingArgs { quorum_of: Some(3), ..RingArgs::default() };
        assert_eq!(ring.profile(Part::Voter), profile);
        assert_eq!(ring.profile(Part::Client), profile.voter(false));
        let voter = RingArgs { voter: true, ..ring.clone() };
        assert_eq!(voter.profile(Part::Client), profile);
        let client = RingArgs { client: true, ..ring };
        assert_eq!(client.profile(Part::Voter), profile.voter(false));
    }
}
