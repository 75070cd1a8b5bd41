use carom::{NodeId, Removal, RingNews, SeqNo};
use carom::{Place, Process, RingView, ViewEvent};
use carom_terminal::{counted, output};
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct RingWatch {
    own: NodeId,
    /// `true` if joining and leaving members are reported.
    tells_all: bool,
    pub(crate) views: u64,
    /// Number of times that the ring continued without this node.
    pub(crate) removals: u64,
    pub(crate) is_minority: bool,
    is_forced: bool,
    /// `true` if this node was removed from the ring and does not rejoin.
    pub(crate) is_out: bool,
}

impl RingWatch {
    pub(crate) fn new(own: NodeId) -> Self {
        Self {
            own,
            tells_all: true,
            views: 0,
            removals: 0,
            is_minority: false,
            is_forced: false,
            is_out: false,
        }
    }

    /// Creates a watch that does not report joining and leaving members, for a standard error that
    /// is shared with another program.
    pub(crate) fn quiet(own: NodeId) -> Self {
        Self { tells_all: false, ..Self::new(own) }
    }

    pub(crate) fn tell(&mut self, news: &RingNews) {
        if let Some(words) = self.words(news) {
            output::say(format_args!("{words}"));
        }
    }

    fn words(&mut self, news: &RingNews) -> Option<String> {
        match news {
            RingNews::View(event) => self.on_view(event),
            RingNews::Minority { needed, voters: Some(voters), .. } => {
                self.is_minority = true;
                Some(waiting_for_quorum(*voters, *needed))
            }
            RingNews::ElectorateFull { voters } => Some(format!(
                "not admitted as a voter: the group already has its {}; retrying until one is \
                 removed (a --client need not wait)",
                counted(voters, "voter")
            )),
            RingNews::Minority { members, needed, voters: None } => {
                self.is_minority = true;
                Some(format!(
                    "minority: this partition may not continue: {needed} of {} required; \
                     searching for the others",
                    counted(members, "member")
                ))
            }
            RingNews::Removed { why, unsent, rejoins } => {
                self.removals += 1;
                (self.is_minority, self.is_out) = (false, !rejoins);
                let doubt = unsent.map(|(first, last)| in_doubt(first, last)).unwrap_or_default();
                let then = if *rejoins { "rejoining as a new member" } else { "not rejoining" };
                Some(format!("removed from the ring: {}{doubt}; {then}", because(*why)))
            }
            RingNews::Rejoined { missed: Some(missed) } => {
                let missed = counted(*missed, "place");
                Some(format!("rejoined the ring; missed {missed} of the order"))
            }
            RingNews::Rejoined { missed: None } => {
                Some("rejoined a ring; the number of missed places is unknown".to_owned())
            }
            _ => None,
        }
    }

    fn on_view(&mut self, event: &ViewEvent) -> Option<String> {
        let was_forced = std::mem::replace(&mut self.is_forced, event.view.is_forced);
        let line = self.line_of_view(event);
        if !event.view.is_forced || was_forced {
            return line;
        }
        let voters = event.view.voters().count();
        let all = counted(event.view.electorate().unwrap_or(voters), "voter");
        let forced = format!(
            "warning: an operator has forced the quorum: the ring continues with {voters} of {all}"
        );
        Some(line.map_or(forced.clone(), |line| format!("{forced}\n{line}")))
    }

    fn line_of_view(&mut self, event: &ViewEvent) -> Option<String> {
        let count = event.view.len();
        let members = counted(count, "member");
        let changes = [(&event.joined, "joined"), (&event.left, "left"), (&event.failed, "failed")];
        let changes: Vec<String> = changes
            .into_iter()
            .filter(|(who, _)| !who.is_empty())
            .map(|(who, how)| format!("{} {how}", self.names(who)))
            .collect();
        let was_minority = std::mem::replace(&mut self.is_minority, false);
        if changes.is_empty() {
            return was_minority.then(|| format!("the ring continues: {members}"));
        }
        self.views += 1;
        if !self.tells_all {
            return was_minority.then(|| format!("the ring continues: {members}"));
        }
        let by = self.names(&[event.by]);
        Some(format!("ring: {}, decided by {by}; {members} now", changes.join(", ")))
    }

    fn names(&self, processes: &[Process]) -> String {
        let name = |process: &Process| match process.node == self.own {
            true => "this node".to_owned(),
            false => process.node.to_string(),
        };
        processes.iter().map(name).collect::<Vec<String>>().join(", ")
    }
}

pub(crate) fn object(news: &RingNews) -> Option<Value> {
    match news {
        RingNews::View(event) => {
            let mut object = view(&event.view);
            object["place"] = place(event.place);
            object["event"] = "ring".into();
            object["news"] = "view".into();
            object["joined"] = ids(&event.joined);
            object["left"] = ids(&event.left);
            object["failed"] = ids(&event.failed);
            object["by"] = event.by.node.to_string().into();
            Some(object)
        }
        RingNews::Minority { members, needed, voters } => Some(json!({
            "event": "ring",
            "news": "minority",
            "members": members,
            "needed": needed,
            "voters": voters,
        })),
        RingNews::ElectorateFull { voters } => Some(json!({
            "event": "ring", "news": "electorate-full", "voters": voters,
        })),
        RingNews::Removed { why, unsent, rejoins } => Some(json!({
            "event": "ring",
            "news": "removed",
            "why": match why {
                Removal::Removed => "unreachable",
                Removal::Merged => "merged",
                Removal::TooSlow => "slow",
                _ => "other",
            },
            "in_doubt": unsent.map(|(first, last)| json!({ "first": first.0, "last": last.0 })),
            "rejoins": rejoins,
        })),
        RingNews::Rejoined { missed } => Some(json!({
            "event": "ring", "news": "rejoined", "missed": missed,
        })),
        RingNews::Stable { up_to, members } => Some(json!({
            "event": "ring", "news": "stable", "up_to": place(*up_to), "members": members,
        })),
        _ => None,
    }
}

pub(crate) fn place(place: Place) -> Value {
    let Place { ring, at } = place;
    json!({ "epoch": ring.version, "creator": ring.creator.node.to_string(), "at": at.0 })
}

pub(crate) fn view(view: &RingView) -> Value {
    let members: Vec<Process> = view.processes().collect();
    let locks: Vec<Value> = view
        .locks
        .held()
        .map(|(name, holder)| {
            let waiting: Vec<Process> = view.locks.waiting(name).collect();
            let holder = holder.node.to_string();
            json!({ "lock": name.to_string(), "holder": holder, "waiting": ids(&waiting) })
        })
        .collect();
    json!({
        "epoch": view.epoch.version,
        "creator": view.epoch.creator.node.to_string(),
        "version": view.version,
        "members": ids(&members),
        "needed": needed(view),
        "electorate": view.electorate(),
        "voters": ids(&view.voters().collect::<Vec<Process>>()),
        "forced": view.is_forced,
        "locks": locks,
    })
}

/// Returns the number of voters that the ring needs. Without an electorate, returns the number of
/// members that it needs after a fault.
pub(crate) fn needed(view: &RingView) -> usize {
    view.required_voters().unwrap_or_else(|| view.least())
}

pub(crate) fn waiting_for_quorum(voters: usize, needed: usize) -> String {
    format!("waiting for quorum: {voters} of {needed}")
}

fn ids(processes: &[Process]) -> Value {
    processes.iter().map(|process| process.node.to_string()).collect::<Vec<String>>().into()
}

fn because(why: Removal) -> &'static str {
    match why {
        Removal::Removed => "the others could not reach this node",
        Removal::Merged => "the group has another ring",
        Removal::TooSlow => "the output was read too slowly, and the others stopped waiting",
        _ => "the ring has ended this membership",
    }
}

fn in_doubt(first: SeqNo, last: SeqNo) -> String {
    format!("; this node's messages {first} to {last} are in doubt")
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom::Quorum;
    use carom::{Member, Timestamp};

    fn process(node: u64) -> Process {
        Process { node: NodeId(node), life: 1 }
    }

    fn event(joined: &[u64], failed: &[u64]) -> RingNews {
        let quorum = Quorum::Majority;
        let founder = Member { process: process(1), quorum, is_multicast: true, is_voter: true };
        let view = RingView::founded_by(founder, 0);
        let all = |nodes: &[u64]| nodes.iter().map(|node| process(*node)).collect();
        let (joined, left, failed) = (all(joined), Vec::new(), all(failed));
        let place = Place { ring: view.epoch, at: Timestamp(7) };
        let (by, answered) = (process(1), None);
        let event = ViewEvent { view, place, joined, left, failed, by, answered };
        RingNews::View(Box::new(event))
    }

    #[test]
    fn who_came_who_went_and_who_decided_is_one_line() {
        let mut watch = RingWatch::new(NodeId(1));
        let line = watch.words(&event(&[2], &[3])).expect("it has a text form");
        let expected = "ring: 0000000000000002 joined, 0000000000000003 failed, decided by this \
                        node; 1 member now";
        assert_eq!(line, expected);
        assert_eq!(watch.words(&event(&[], &[])), None);
        assert_eq!(watch.views, 1);
    }

    #[test]
    fn a_minority_is_told_and_so_is_its_end() {
        let mut watch = RingWatch::new(NodeId(1));
        let line = watch.words(&RingNews::Minority { members: 5, needed: 3, voters: None });
        assert!(line.expect("it has a text form").contains("3 of 5"));
        assert!(watch.is_minority);
        let line = watch.words(&event(&[], &[])).expect("it has a text form");
        assert_eq!((line.as_str(), watch.is_minority), ("the ring continues: 1 member", false));
    }

    #[test]
    fn too_few_voters_are_told_by_number() {
        let mut watch = RingWatch::new(NodeId(1));
        let news = RingNews::Minority { members: 3, needed: 2, voters: Some(1) };
        assert_eq!(watch.words(&news).as_deref(), Some("waiting for quorum: 1 of 2"));
        assert!(watch.is_minority);
        let object = object(&news).expect("it has a JSON form");
        assert_eq!((&object["voters"], &object["needed"]), (&json!(1), &json!(2)));
    }

    #[test]
    fn member_that_rejoins_is_told_what_it_missed() {
        let mut watch = RingWatch::new(NodeId(1));
        let news = RingNews::Rejoined { missed: Some(17) };
        let line = watch.words(&news).expect("it has a text form");
        assert!(line.contains("missed 17 places"), "{line}");
        let line = watch.words(&RingNews::Rejoined { missed: Some(1) });
        assert_eq!(line.as_deref(), Some("rejoined the ring; missed 1 place of the order"));
        assert_eq!(object(&news).expect("it has a JSON form")["missed"], 17);
        let news = RingNews::Rejoined { missed: None };
        let line = watch.words(&news).expect("it has a text form");
        assert!(line.contains("unknown"), "{line}");
        assert!(object(&news).expect("it has a JSON form")["missed"].is_null());
    }

    #[test]
    fn who_is_removed_learns_why_what_is_in_doubt_and_what_follows() {
        let mut watch = RingWatch::new(NodeId(1));
        let unsent = Some((SeqNo(3), SeqNo(9)));
        let news = RingNews::Removed { why: Removal::Removed, unsent, rejoins: false };
        let line = watch.words(&news).expect("it has a text form");
        for part in ["could not reach", "3 to 9", "not rejoining"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(watch.is_out && watch.removals == 1);
        let object = object(&news).expect("it has a JSON form");
        assert_eq!(
            (&object["in_doubt"]["first"], &object["in_doubt"]["last"]),
            (&3.into(), &9.into())
        );
    }
}
