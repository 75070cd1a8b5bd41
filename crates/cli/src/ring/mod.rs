//! Ordered groups: their flags, and joining a ring.

mod force;
mod limit;
pub(crate) mod news;
pub(crate) mod verb;

use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Event, Profile, Quorum, RingStatus};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, counted, output};

use crate::{node, quorum, waiting};
pub(crate) use limit::Limit;
pub(crate) use news::RingWatch;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct OrderedArgs {
    /// Make the group an ordered one: all members receive the same messages in the same order
    #[arg(long)]
    ordered: bool,
    #[command(flatten)]
    pub(crate) ring: RingArgs,
    /// Exit after removal from the ring, instead of rejoining it as a new member; implies --ordered
    #[arg(long)]
    no_rejoin: bool,
}

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct RingArgs {
    /// Members that a partition of the ring needs to continue after a fault, the same at all
    /// members: majority, all, or N (every partition of at least N members) [default: majority]
    #[arg(long, value_name = "QUORUM", value_parser = quorum::parse, allow_hyphen_values = true)]
    quorum: Option<Quorum>,
    /// Number of voters in the group, the same at all members. Nothing is ordered, acknowledged, or
    /// locked while fewer than a majority of them are in the ring, even at startup
    #[arg(long, value_name = "N", conflicts_with = "quorum", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(Quorum::MAX_ELECTORATE)))]
    quorum_of: Option<u16>,
    /// Count this member among the voters of --quorum-of [default: sub and serve are voters]
    #[arg(long, requires = "quorum_of", conflicts_with = "client")]
    voter: bool,
    /// Do not count this member among the voters of --quorum-of [default: pub and lock are clients]
    #[arg(long, requires = "quorum_of")]
    client: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The member stays in the ring, and counts toward the quorum.
    Voter,
    /// The member joins temporarily, and does not count toward the quorum.
    Client,
}

impl OrderedArgs {
    pub(crate) fn profile(&self, part: Part) -> Option<Profile> {
        let has_quorum = self.ring.quorum.is_some() || self.ring.quorum_of.is_some();
        let is_ordered = self.ordered || has_quorum || self.no_rejoin;
        is_ordered.then(|| self.ordered_profile(part))
    }

    pub(crate) fn ordered_profile(&self, part: Part) -> Profile {
        self.ring.profile(part).rejoin(!self.no_rejoin)
    }

    pub(crate) fn has_majorities(&self) -> bool {
        !matches!(self.ring.quorum, Some(Quorum::AtLeast(_)))
    }
}

impl RingArgs {
    pub(crate) fn profile(&self, part: Part) -> Profile {
        let quorum = match self.quorum_of {
            Some(voters) => Quorum::QuorumOf(voters),
            None => self.quorum.unwrap_or(Quorum::Majority),
        };
        let is_voter = self.voter || (part == Part::Voter && !self.client);
        Profile::ordered().quorum(quorum).voter(is_voter)
    }

    pub(crate) fn warn(&self, what: &str) {
        if self.quorum_of.is_none() {
            output::say(format_args!(
                "warning: {what}: machines that start separately do not know of each other; \
                       pass --quorum-of N to all members"
            ));
        }
    }
}

/// Like [`interrupt::listen`], but gives a node more time to leave its rings.
pub(crate) fn listen() -> Result<&'static Interrupt, CliError> {
    interrupt::listen_with(LEAVE_WITHIN)
}

/// Joins `group` as an ordered group, and waits until its ring has admitted this node.
pub(crate) fn join(
    node: &Node,
    group: &str,
    profile: Profile,
    interrupt: &Interrupt,
) -> Result<Group, CliError> {
    let joined = join_within(node, group, profile, interrupt, Limit::new(None))?;
    joined.map_err(|why| CliError::new(why, "start more members of the group"))
}

/// Like [`join`], but within `limit`. Returns the reason if no ring has admitted this node.
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
                waiting(group, joined.members().len(), profile.required_voters())
            ));
        }
        if give_up.is_some_and(|at| Instant::now() >= at) {
            let waited = started.elapsed().as_secs_f64();
            return Ok(Err(format!("no ring of {group} admitted this node within {waited:.1} s")));
        }
        if interrupt.wait(STEP) {
            return Err(CliError::interrupted());
        }
    }
}

fn waiting(group: &str, others: usize, quorum: Option<usize>) -> String {
    let Some(needed) = quorum else {
        return format!(
            "waiting for the ring of {group}: it admits no members while it may not continue"
        );
    };
    let voters = counted(needed, "voter");
    match others {
        0 => format!("waiting for quorum: no other member of {group} is known; {voters} required"),
        others => format!(
            "waiting for quorum: {} of {group} known, but its ring admits no members yet; {voters} \
             required",
            counted(others, "other member")
        ),
    }
}

pub(crate) fn look(
    node: &Node,
    group: &str,
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<RingStatus>, CliError> {
    let query = node.as_async().query(group, patience);
    let rings = waiting::until(query, || interrupt.is_asked());
    let rings = rings.ok_or_else(CliError::interrupted)?;
    rings.map_err(|error| CliError::new(error.to_string(), error.fix()))
}

/// Discards messages, because a member that does not receive them delays the other members. Reports
/// changes of the ring. Returns `false` if the group is closed.
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

const STEP: Duration = Duration::from_millis(20);
const TELL_AFTER: Duration = Duration::from_secs(1);
/// Grace period after Ctrl-C. A node that closes waits up to 3 s for its rings to release it.
const LEAVE_WITHIN: Duration = Duration::from_secs(4);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_joiner_is_told_what_is_known_of_the_ring() {
        let alone = waiting("g", 0, Some(2));
        assert_eq!(alone, "waiting for quorum: no other member of g is known; 2 voters required");
        let known = waiting("g", 1, Some(2));
        assert!(known.starts_with("waiting for quorum: 1 other member of g known"), "{known}");
        assert!(waiting("g", 3, None).starts_with("waiting for the ring of g"));
    }

    #[test]
    fn a_group_is_ordered_as_soon_as_one_flag_says_so() {
        assert_eq!(OrderedArgs::default().profile(Part::Voter), None);
        let ring = RingArgs { quorum: Some(Quorum::All), ..RingArgs::default() };
        let args = OrderedArgs { ring, ..OrderedArgs::default() };
        let all = Profile::ordered().quorum(Quorum::All);
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
