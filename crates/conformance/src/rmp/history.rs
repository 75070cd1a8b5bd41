use core::fmt;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use carom_proto::ring::{
    LockChange, LockName, LockNews, Outcome, Process, Qos, RequestId, RingNews, RingView,
    Timestamp, ViewEvent,
};
use carom_proto::{Event, GroupId, Message, NodeId, SeqNo, Time};

use crate::harness::Record;
use crate::memory::MemoryUse;

/// The record of one run, with the messages sent, and the events of each member in order of time.
#[derive(Debug, Default)]
pub struct History {
    pub(super) sent: BTreeMap<u64, Sent>,
    pub(super) lives: BTreeMap<(GroupId, NodeId), Vec<Life>>,
    pub(super) requests: BTreeMap<(GroupId, RequestId), Request>,
    /// Requests without a reply: the member that must reply, the group, the id and the payload.
    pub(super) to_reply: VecDeque<(NodeId, GroupId, RequestId, Bytes)>,
    starts: BTreeMap<NodeId, u32>,
    dead: BTreeSet<(NodeId, u32)>,
    pub(super) final_states: Vec<Vec<FinalState>>,
    /// `true` if no step can silence a member, and leaves have time. They must then all complete.
    pub(super) are_all_heard: bool,
    pub(super) healed: Option<Time>,
    /// Memory use of all engines.
    pub memory: MemoryUse,
    /// Sums of the counters of all engines that were alive at the end.
    pub totals: BTreeMap<&'static str, u64>,
}

/// A message that was sent. Its payload begins with its number in the run, as a big-endian `u64`.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Group of the message.
    pub group: GroupId,
    /// Sender of the message.
    pub sender: NodeId,
    /// Life of the sender, counted from 0.
    pub life: usize,
    /// Sequence number of the message in that life.
    pub seqno: SeqNo,
    /// Quality of service of the message.
    pub qos: Qos,
    /// Time of sending.
    pub at: Time,
    /// Payload of the message.
    pub payload: Bytes,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// `None` if no node has made the request.
    pub(super) payload: Option<Bytes>,
    pub(super) has_handler: bool,
    pub(super) start: u32,
    pub(super) answers: Vec<Outcome>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) begun: Time,
    pub(super) events: Vec<Observed>,
    /// `true` if the member was notified that it is in a minority, and has received no view since.
    pub(super) is_minority: bool,
    pub(super) end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Died,
    /// The ring removed the member, which does not know the outcome of these messages.
    Removed(Option<(SeqNo, SeqNo)>),
}

#[derive(Clone, Debug)]
pub(super) enum Observed {
    Message(Heard),
    View(Time, Box<ViewEvent>),
    Lock(LockNews),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) number: u64,
    pub(super) sender: NodeId,
    pub(super) at: Time,
    pub(super) is_true: bool,
}

/// The state of a member when the rings are checked.
#[derive(Clone, Debug)]
pub struct FinalState {
    /// Group of the member.
    pub group: GroupId,
    /// Node of the member.
    pub node: NodeId,
    /// Ring of the member, or `None` if it is in no ring.
    pub view: Option<RingView>,
    /// `true` if the member joined as a voter.
    pub is_voter: bool,
    /// `true` if the member was notified that its part of the ring may not continue.
    pub is_minority: bool,
}

impl History {
    /// Records a request that a node makes.
    pub fn requested(&mut self, group: GroupId, id: RequestId, payload: Bytes, has_handler: bool) {
        let start = self.start_of(id.caller);
        let call = self.requests.entry((group, id)).or_default();
        (call.payload, call.has_handler, call.start) = (Some(payload), has_handler, start);
    }

    pub(super) fn is_caller_dead(&self, id: RequestId, request: &Request) -> bool {
        self.dead.contains(&(id.caller, request.start))
    }

    /// Records a message that a node sent.
    pub fn sent(&mut self, number: u64, mut sent: Sent) {
        let lives = self.lives.get(&(sent.group, sent.sender)).map_or(0, Vec::len);
        sent.life = lives.saturating_sub(1);
        self.sent.insert(number, sent);
    }

    /// Records the end of all faults.
    pub fn healed(&mut self, now: Time) {
        self.healed = Some(now);
    }

    /// Records the rings of all members at a time when the group must have recovered.
    pub fn note_states(&mut self, mut states: Vec<FinalState>) {
        for state in &mut states {
            let life = self.lives.get(&(state.group, state.node));
            state.is_minority =
                life.and_then(|lives| lives.last()).is_some_and(|life| life.is_minority);
        }
        self.final_states.push(states);
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
        lives.last_mut().expect("a member has a life")
    }

    fn end(&mut self, group: GroupId, node: NodeId, how: End) {
        let life = self.lives.get_mut(&(group, node)).and_then(|lives| lives.last_mut());
        if let Some(life) = life {
            life.end.get_or_insert(how);
        }
    }

    pub(super) fn accounts(&self) -> BTreeMap<GroupId, Vec<Account<'_>>> {
        let mut accounts: BTreeMap<GroupId, Vec<Account<'_>>> = BTreeMap::new();
        for ((group, node), lives) in &self.lives {
            for (number, life) in lives.iter().enumerate() {
                let periods = self.periods(life);
                let has_died = life.end == Some(End::Died);
                let account = Account { node: *node, number, has_died, periods };
                accounts.entry(*group).or_default().push(account);
            }
        }
        accounts
    }

    fn periods<'a>(&'a self, life: &'a Life) -> Vec<Period<'a>> {
        let mut periods: Vec<Period<'_>> = Vec::new();
        for observed in &life.events {
            match (observed, periods.last_mut()) {
                (Observed::View(begun, event), _) => {
                    let begun = *begun;
                    periods.push(Period {
                        begun,
                        event,
                        heard: Vec::new(),
                        granted: Vec::new(),
                        last: None,
                    });
                }
                (Observed::Message(heard), Some(period)) if heard.is_true => {
                    let sent = &self.sent[&heard.number];
                    if sent.qos > Qos::Unreliable {
                        if period.last.is_none_or(|(_, at)| at < heard.at) {
                            period.last = Some((period.heard.len(), heard.at));
                        }
                        period.heard.push((heard.number, sent));
                    }
                }
                (Observed::Lock(LockNews { name, change }), Some(period)) => {
                    if let LockChange::Granted { fence } = change {
                        period.granted.push((*name, *fence));
                    }
                }
                (Observed::Message(_) | Observed::Lock(_), _) => {}
            }
        }
        periods
    }
}

impl Record for History {
    fn started(&mut self, node: NodeId) {
        *self.starts.entry(node).or_default() += 1;
    }

    fn died(&mut self, _now: Time, node: NodeId) {
        self.dead.insert((node, self.start_of(node)));
        let groups = self.lives.keys().filter(|(_, other)| *other == node);
        let groups: Vec<GroupId> = groups.map(|(group, _)| *group).collect();
        groups.into_iter().for_each(|group| self.end(group, node, End::Died));
    }

    fn joined(&mut self, now: Time, node: NodeId, group: GroupId) {
        let life = Life { begun: now, ..Life::default() };
        self.lives.entry((group, node)).or_default().push(life);
    }

    fn left(&mut self, _now: Time, node: NodeId, group: GroupId) {
        self.end(group, node, End::Left);
    }

    fn event(&mut self, now: Time, node: NodeId, event: Event) {
        match event {
            Event::Message(message) => {
                let heard = self.hear(now, &message);
                self.life(message.group, node).events.push(Observed::Message(heard));
            }
            Event::Ring(event) => match event.news {
                RingNews::View(view) => {
                    let life = self.life(event.group, node);
                    life.is_minority = false;
                    life.events.push(Observed::View(now, view));
                }
                RingNews::Removed { unsent, .. } => {
                    let life = self.life(event.group, node);
                    if life.end.is_none() {
                        life.end = Some(End::Removed(unsent));
                        // The member requests to join again by itself.
                        self.joined(now, node, event.group);
                    }
                }
                RingNews::Request(request) if request.is_ours => {
                    self.to_reply.push_back((node, event.group, request.id, request.payload));
                }
                RingNews::Answer(answer) => {
                    let call = self.requests.entry((event.group, answer.id)).or_default();
                    call.answers.push(answer.outcome);
                }
                RingNews::Minority { .. } => self.life(event.group, node).is_minority = true,
                RingNews::Lock(news) => {
                    self.life(event.group, node).events.push(Observed::Lock(news));
                }
                _ => {}
            },
            _ => {}
        }
    }
}

#[derive(Debug)]
pub(super) struct Account<'a> {
    pub(super) node: NodeId,
    pub(super) number: usize,
    pub(super) has_died: bool,
    pub(super) periods: Vec<Period<'a>>,
}

/// The events of a member from one view to the next, except unreliable or unsent messages.
#[derive(Debug)]
pub(super) struct Period<'a> {
    pub(super) event: &'a ViewEvent,
    pub(super) heard: Vec<(u64, &'a Sent)>,
    pub(super) granted: Vec<(LockName, Timestamp)>,
    pub(super) begun: Time,
    /// Index of the first message of the last instant, and that instant.
    last: Option<(usize, Time)>,
}

impl Period<'_> {
    pub(super) fn is_of_one_instant(&self) -> bool {
        self.last.is_none_or(|(_, at)| at == self.begun)
    }

    /// Returns the messages delivered before `time`, which must not be before the last message.
    pub(super) fn heard_before(&self, time: Time) -> &[(u64, &Sent)] {
        match self.last {
            Some((from, at)) if at == time => &self.heard[..from],
            _ => &self.heard,
        }
    }
}

impl Account<'_> {
    pub(super) fn process(&self) -> Option<Process> {
        self.periods.first()?.event.view.process_of(self.node)
    }

    /// Returns the member's process in its last view. A member that rejoins gets another process.
    pub(super) fn last_process(&self) -> Option<Process> {
        self.periods.last()?.event.view.process_of(self.node)
    }

    pub(super) fn eras(&self) -> impl Iterator<Item = &[Period<'_>]> {
        self.periods.chunk_by(|one, next| one.event.view.epoch == next.event.view.epoch)
    }
}

impl fmt::Display for Account<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in life {}", self.node, self.number)
    }
}

pub(super) fn name(view: &RingView) -> String {
    format!("view {:?}+{}", view.epoch, view.version)
}
