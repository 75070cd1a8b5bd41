//! What happened in a run of ordered groups, as the checkers read it.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use carom_proto::rmp::{
    LockChange, LockName, LockNews, Outcome, Process, Qos, RequestId, RingNews, RingView,
    Timestamp, ViewEvent,
};
use carom_proto::{Event, GroupId, Message, NodeId, SeqNo, Time};

/// The account of one run: what was sent, and what each member was told, in its order.
#[derive(Debug, Default)]
pub struct Story {
    pub(super) sent: BTreeMap<u64, Sent>,
    /// The lives that each node had in each group, one after the other.
    pub(super) lives: BTreeMap<(GroupId, NodeId), Vec<Life>>,
    /// Requests by their names.
    pub(super) calls: BTreeMap<(GroupId, RequestId), Call>,
    /// Requests that members were told are theirs to reply to, and have not looked at yet.
    to_reply: VecDeque<(NodeId, GroupId, RequestId, Bytes)>,
    /// How often each node was started.
    starts: BTreeMap<NodeId, u32>,
    /// The starts that died.
    dead: BTreeSet<(NodeId, u32)>,
    /// Who was in which ring, at moments at which all had to be well.
    pub(super) roll_calls: Vec<Vec<Standing>>,
    /// No member was ever cut off, stopped or killed, so that every leave has to end.
    pub(super) are_all_heard: bool,
    /// When everything was put right.
    pub(super) healed: Option<Time>,
    /// The most bytes that an engine was seen to keep, and the limit.
    pub(super) memory: Option<(usize, usize)>,
}

/// A message as it was sent. Its payload begins with its number in the run, as a big-endian u64.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Where.
    pub group: GroupId,
    /// By whom.
    pub sender: NodeId,
    /// In which life of its sender, counted from 0.
    pub life: usize,
    /// Its number among the messages of that life.
    pub seqno: SeqNo,
    /// What was promised of it.
    pub qos: Qos,
    /// When.
    pub at: Time,
    /// What.
    pub payload: Bytes,
}

/// A request, and what became of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Call {
    /// What was asked; `None` if nobody has asked it.
    pub(super) payload: Option<Bytes>,
    /// Whether a handler is to reply.
    pub(super) has_handler: bool,
    /// Which start of the caller it was.
    pub(super) start: u32,
    pub(super) answers: Vec<Outcome>,
}

/// One life of a node in a group: from when it asked to join until it left, died or was removed.
#[derive(Clone, Debug, Default)]
pub struct Life {
    pub(super) begun: Time,
    pub(super) told: Vec<Told>,
    /// Whether it was told that it is in a minority, and of no view since.
    pub(super) is_minority: bool,
    pub(super) end: Option<End>,
}

/// How a life ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Of its own will.
    Left,
    /// With its host.
    Died,
    /// The ring goes on without it; it was told that nobody there knows of these own messages.
    Removed(Option<(SeqNo, SeqNo)>),
}

/// What a member was told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    Message(Heard),
    View(Time, Box<ViewEvent>),
    Lock(LockNews),
}

/// A message as it was delivered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    /// Its number in the run, as its payload says.
    pub(super) number: u64,
    pub(super) sender: NodeId,
    pub(super) at: Time,
    /// Whether it is what was sent so.
    pub(super) is_true: bool,
}

/// A member at a roll call.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The group.
    pub group: GroupId,
    /// The node.
    pub node: NodeId,
    /// Its ring, if it is in one.
    pub view: Option<RingView>,
    /// Whether it joined as a voter.
    pub is_voter: bool,
    /// Whether it was told that its part of that ring may not go on.
    pub is_minority: bool,
}

impl Story {
    /// No member will be cut off, stopped or killed.
    pub fn all_are_heard(&mut self) {
        self.are_all_heard = true;
    }

    /// A node joins a group.
    pub fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        let life = Life { begun: now, ..Life::default() };
        self.lives.entry((group, node)).or_default().push(life);
    }

    /// A node leaves a group. It may be told more until it is out.
    pub fn left(&mut self, node: NodeId, group: GroupId) {
        self.end(group, node, End::Left);
    }

    /// A node makes a request.
    pub fn called(&mut self, group: GroupId, id: RequestId, payload: Bytes, has_handler: bool) {
        let start = self.start_of(id.caller);
        let call = self.calls.entry((group, id)).or_default();
        (call.payload, call.has_handler, call.start) = (Some(payload), has_handler, start);
    }

    /// The next request that a member was told is its to reply to.
    pub fn next_to_reply(&mut self) -> Option<(NodeId, GroupId, RequestId, Bytes)> {
        self.to_reply.pop_front()
    }

    /// Whether the start of the node that made this request died.
    pub(super) fn is_caller_dead(&self, id: RequestId, call: &Call) -> bool {
        self.dead.contains(&(id.caller, call.start))
    }

    /// A node was started.
    pub fn born(&mut self, node: NodeId) {
        *self.starts.entry(node).or_default() += 1;
    }

    /// A node was killed.
    pub fn died(&mut self, node: NodeId) {
        self.dead.insert((node, self.start_of(node)));
        let groups = self.lives.keys().filter(|(_, other)| *other == node);
        let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
        groups.into_iter().for_each(|group| self.end(group, node, End::Died));
    }

    /// A node sent this message.
    pub fn sent(&mut self, number: u64, mut sent: Sent) {
        let lives = self.lives.get(&(sent.group, sent.sender)).map_or(0, Vec::len);
        sent.life = lives.saturating_sub(1);
        self.sent.insert(number, sent);
    }

    /// A node was told something.
    pub fn told(&mut self, now: Time, node: NodeId, event: Event) {
        match event {
            Event::Message(message) => {
                let heard = self.hear(now, &message);
                self.life(message.group, node).told.push(Told::Message(heard));
            }
            Event::Ring(event) => match event.news {
                RingNews::View(view) => {
                    let life = self.life(event.group, node);
                    life.is_minority = false;
                    life.told.push(Told::View(now, view));
                }
                RingNews::Removed { unsent, .. } => {
                    let life = self.life(event.group, node);
                    if life.end.is_none() {
                        life.end = Some(End::Removed(unsent));
                        // It asks to be let in again by itself.
                        self.joined(now, node, event.group);
                    }
                }
                RingNews::Request(request) if request.is_ours => {
                    self.to_reply.push_back((node, event.group, request.id, request.payload));
                }
                RingNews::Request(_) | RingNews::Stable { .. } | RingNews::Rejoined { .. } => {}
                RingNews::Answer(answer) => {
                    let call = self.calls.entry((event.group, answer.id)).or_default();
                    call.answers.push(answer.outcome);
                }
                RingNews::ElectorateFull { .. } => {}
                RingNews::Minority { .. } => self.life(event.group, node).is_minority = true,
                RingNews::Lock(news) => {
                    self.life(event.group, node).told.push(Told::Lock(news));
                }
            },
            _ => {}
        }
    }

    /// Everything is put right from now on.
    pub fn healed(&mut self, now: Time) {
        self.healed = Some(now);
    }

    /// Who is in which ring, now that all must be well.
    pub fn calls_the_roll(&mut self, mut standings: Vec<Standing>) {
        for standing in &mut standings {
            let life = self.lives.get(&(standing.group, standing.node));
            standing.is_minority =
                life.and_then(|lives| lives.last()).is_some_and(|life| life.is_minority);
        }
        self.roll_calls.push(standings);
    }

    /// An engine keeps `bytes`, where it may keep `limit`.
    pub fn keeps(&mut self, bytes: usize, limit: usize) {
        let (most, _) = self.memory.unwrap_or_default();
        self.memory = Some((most.max(bytes), limit));
    }

    /// Whether each member that is alive has been told all that it has sent, as far as it is owed
    /// that.
    pub fn is_all_told(&self) -> bool {
        let mut found = Vec::new();
        super::delivered::check(self, &mut found);
        super::calls::check(self, &mut found);
        found.is_empty()
    }

    fn start_of(&self, node: NodeId) -> u32 {
        self.starts.get(&node).copied().unwrap_or(0)
    }

    fn hear(&self, at: Time, message: &Message) -> Heard {
        let first = message.payload.first_chunk::<8>();
        let number = first.map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
        let is_true = self.sent.get(&number).is_some_and(|sent| {
            let names = (sent.group, sent.sender, sent.seqno);
            names == (message.group, message.sender, message.seqno)
                && sent.payload == message.payload
        });
        Heard { number, sender: message.sender, at, is_true }
    }

    fn life(&mut self, group: GroupId, node: NodeId) -> &mut Life {
        let lives = self.lives.entry((group, node)).or_default();
        if lives.is_empty() {
            lives.push(Life::default());
        }
        lives.last_mut().expect("there is one")
    }

    fn end(&mut self, group: GroupId, node: NodeId, how: End) {
        let life = self.lives.get_mut(&(group, node)).and_then(|lives| lives.last_mut());
        if let Some(life) = life {
            life.end.get_or_insert(how);
        }
    }

    /// All lives, by group.
    pub(super) fn accounts(&self) -> BTreeMap<GroupId, Vec<Account<'_>>> {
        let mut accounts: BTreeMap<GroupId, Vec<Account<'_>>> = BTreeMap::new();
        for ((group, node), lives) in &self.lives {
            for (number, life) in lives.iter().enumerate() {
                let chapters = self.chapters(life);
                let has_died = life.end == Some(End::Died);
                let account = Account { node: *node, number, has_died, chapters };
                accounts.entry(*group).or_default().push(account);
            }
        }
        accounts
    }

    fn chapters<'a>(&'a self, life: &'a Life) -> Vec<Chapter<'a>> {
        let mut chapters: Vec<Chapter<'_>> = Vec::new();
        for told in &life.told {
            match (told, chapters.last_mut()) {
                (Told::View(begun, event), _) => {
                    let begun = *begun;
                    chapters.push(Chapter {
                        begun,
                        event,
                        heard: Vec::new(),
                        granted: Vec::new(),
                        last: None,
                    });
                }
                (Told::Message(heard), Some(chapter)) if heard.is_true => {
                    let sent = &self.sent[&heard.number];
                    if sent.qos > Qos::Unreliable {
                        if chapter.last.is_none_or(|(_, at)| at < heard.at) {
                            chapter.last = Some((chapter.heard.len(), heard.at));
                        }
                        chapter.heard.push((heard.number, sent));
                    }
                }
                (Told::Lock(LockNews { name, change }), Some(chapter)) => {
                    if let LockChange::Granted { fence } = change {
                        chapter.granted.push((*name, *fence));
                    }
                }
                // Other rules look after them.
                (Told::Message(_) | Told::Lock(_), _) => {}
            }
        }
        chapters
    }
}

/// What a member was told in one life, by views.
#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) node: NodeId,
    /// Which of the node's lives it is.
    pub(super) number: usize,
    pub(super) has_died: bool,
    pub(super) chapters: Vec<Chapter<'a>>,
}

/// What a member was told from one view on until the next. Unreliable messages are left out, and
/// such as nobody sent.
#[derive(Debug)]
pub(super) struct Chapter<'a> {
    pub(super) event: &'a ViewEvent,
    /// Messages with their numbers in the run.
    pub(super) heard: Vec<(u64, &'a Sent)>,
    /// Locks that the member was told it holds, with their fences.
    pub(super) granted: Vec<(LockName, Timestamp)>,
    /// When the view came.
    pub(super) begun: Time,
    /// Where what was heard at the last instant begins, and when that was.
    last: Option<(usize, Time)>,
}

impl Chapter<'_> {
    /// Whether nothing was heard later than at the instant at which the view came.
    pub(super) fn is_of_one_instant(&self) -> bool {
        self.last.is_none_or(|(_, at)| at == self.begun)
    }

    /// What was told before this time.
    pub(super) fn heard_before(&self, time: Time) -> &[(u64, &Sent)] {
        match self.last {
            Some((from, at)) if at == time => &self.heard[..from],
            _ => &self.heard,
        }
    }
}

impl Account<'_> {
    /// The member's name in its rings.
    pub(super) fn process(&self) -> Option<Process> {
        self.chapters.first()?.event.view.process_of(self.node)
    }

    /// The member's name in its last view: a member that joins again has another one.
    pub(super) fn last_process(&self) -> Option<Process> {
        self.chapters.last()?.event.view.process_of(self.node)
    }

    /// The chapters of each ring that it was in, one after the other.
    pub(super) fn eras(&self) -> impl Iterator<Item = &[Chapter<'_>]> {
        self.chapters.chunk_by(|one, next| one.event.view.epoch == next.event.view.epoch)
    }
}

impl fmt::Display for Account<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in life {}", self.node, self.number)
    }
}

/// A view by its name.
pub(super) fn name(view: &RingView) -> String {
    format!("view {:?}+{}", view.epoch, view.version)
}
