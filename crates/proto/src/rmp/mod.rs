//! Ordered, atomic multicast: RMP, the token ring.
//!
//! # From the paper to the code
//!
//! | paper | here |
//! |---|---|
//! | 3.1 entities | `names`, [`RingView`] |
//! | 3.2, figure 3.2 QoS | [`Qos`], `ring` |
//! | 3.4 hosts without multicast | `reach` |
//! | 4.1, figure 4.1 packet types | [`packet`] |
//! | 4.2 basic delivery: DataList, OrderingQ, token, NACK | `stream`, `log`, `turns`, `repairs` |
//! | 4.3 membership view changes, locks | `joining`, `lists`, `looking`, `locks`, `locking` |
//! | 4.4 fault recovery | `reforming` |
//! | 4.5 multi-RPC | `calls`, `calling`, `answering`, `requests`, `ring::guests` |
//! | 4.6 flow and congestion control, figure 4.2 | `flow`, `sending` |
//!
//! # Deviations from the paper, with their reasons
//!
//! * In a working ring a New List carries the change, not the whole view. A lock then costs one
//!   small packet, regardless of the number of members. Joiners receive the whole view by unicast.
//! * Requests for changes are served in order of arrival. One New List serves several lock
//!   requests. A token site that has messages to order keeps the token for their ACK after such a
//!   list, so that neither kind of work waits for all of the other. A member that waits to join or
//!   to leave keeps the token moving.
//! * At most one change of the members is not yet stable. The majorities of any two views that
//!   members may have therefore intersect. The paper leaves this open.
//! * A member that has accepted the list of a reformation reports it in later votes, and the list
//!   counts until it is refuted. With the paper's two-phase commit alone, a member that
//!   acknowledged two lists in turn could be in the majority of both.
//! * K resilience and majority resilience count only members that have since taken the token. The
//!   source does not count, because it holds its message but not the place of the message.
//! * A request for a lock that is held may wait, in order of arrival. The paper refuses it. A lock
//!   is granted once a majority has received the grant, so that no reformation loses it.
//! * A guest (a caller that is not a member) is a process of the ring, and its packets are ordered
//!   like those of members. It begins a new life where the paper sets the first-packet flag again.
//!   The ring keeps 256 guests. Beyond that, the one ordered longest ago is flushed: an age in the
//!   order is the same at all members, a time is not.
//! * A repeated request keeps its number, so that members deliver it once. The group is notified
//!   that a guest has its reply. The reply itself goes only to the guest, in fragments that it
//!   requests. The next holder of the handler's lock receives the open requests.
//! * Messages that wait for a place when a fault occurs get one before the new list, as far as any
//!   member of the list has them. Views are therefore virtually synchronous at all levels from
//!   source order on.
//! * Own packets leave the window when another member is known to have them. A token site that
//!   orders its own packets has proved nothing. The window stops growing before queues outlast the
//!   timers.
//! * One ACK orders several packets if no sender waits for their places, or if their source sends
//!   more at once. A packet that several members request is retransmitted to all members. A packet
//!   that one member requests is retransmitted to that member.
//! * Two rings of one group that formed in a partition merge when they hear of each other. The
//!   members of the smaller ring leave it. With [`JoinOptions::rejoin`] they join the larger one.
//!
//! # Methods beyond the engine trait
//!
//! Beyond those of [`Engine`], members use [`Rmp::join_with`], [`Rmp::lock`], [`Rmp::try_lock`],
//! [`Rmp::unlock`], [`Rmp::request`] and [`Rmp::reply`]. Their results arrive as [`RingNews`].
//! [`Rmp::look`] queries the rings of a group from outside, and [`Rmp::poll_looked`] returns the
//! result.
//!
//! ```
//! use carom_proto::rmp::{
//!     Config, Handler, LockChange, LockName, Outcome, Partition, RequestOptions, RingNews, Rmp,
//! };
//! use carom_proto::*;
//!
//! let (group, mut now) = (GroupId::of_name("accounts"), Time(1_000_000_000));
//! let settings = GroupSettings::new("accounts", Profile::Ordered(Partition::Majority));
//! let mut alice = Rmp::new(NodeId(1), Config::default(), 42);
//! alice.join(now, group, settings)?;
//! alice.lock(now, group, LockName::of_name("month's end"))?;
//!
//! // No member admits her, so she creates a ring of her own: the lock is hers.
//! let news = loop {
//!     while alice.poll_transmit(&mut Vec::new()).is_some() {}
//!     match alice.poll_event() {
//!         Some(Event::Ring(event)) => match event.news {
//!             RingNews::Lock(news) => break news,
//!             other => println!("{other:?}"),
//!         },
//!         Some(other) => panic!("{other:?}"),
//!         None => {
//!             now = alice.poll_timeout().expect("she asks again").at;
//!             alice.handle_timeout(now);
//!         }
//!     }
//! };
//! assert_eq!(news.name, LockName::of_name("month's end"));
//! assert!(matches!(news.change, LockChange::Granted { .. }));
//! alice.unlock(now, group, news.name)?;
//!
//! // She locks a handler like any other lock. Requests to that handler are then hers to answer.
//! let handler = Handler::new(0).expect("there are six");
//! alice.lock(now, group, handler.lock())?;
//! let options = RequestOptions { handler: Some(handler), ..RequestOptions::default() };
//! let asked = alice.request(now, group, "how much?".into(), options)?;
//! while let Some(event) = alice.poll_event() {
//!     let Event::Ring(event) = event else { continue };
//!     match event.news {
//!         RingNews::Request(request) if request.is_ours => {
//!             alice.reply(now, group, request.id, "42".into())?;
//!         }
//!         RingNews::Answer(answer) => {
//!             assert_eq!(answer.id, asked);
//!             assert!(matches!(answer.outcome, Outcome::Reply { .. }));
//!         }
//!         other => println!("{other:?}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use bytes::Bytes;

use crate::wire::Header;
use crate::{
    Engine, Event, GroupId, GroupSettings, JoinError, NodeId, Origin, Profile, Rng, SendError,
    SendOptions, SeqNo, Time, Timers, Transmit, ViewChange, ViewChangeKind, Wakeup,
};

mod answering;
mod around;
mod calling;
mod calls;
mod config;
mod confirming;
mod counters;
mod delivery;
pub mod flow;
mod group;
mod joining;
mod leaving;
mod list_requests;
mod lists;
mod locking;
mod locks;
mod log;
mod looking;
mod names;
mod news;
mod notices;
mod pace;
pub mod packet;
mod parts;
mod qos;
mod quorum;
mod reach;
mod reforming;
mod repairs;
mod request_numbers;
mod requests;
mod ring;
mod sending;
mod stream;
mod terms;
mod turns;
mod verbs;
mod view;

use self::around::{Around, Timer};
pub use self::calls::{
    Answer, Outcome, ReplyError, Request, RequestError, RequestId, RequestOptions, Seen,
};
pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
pub use self::delivery::ViewEvent;
use self::group::Group;
pub use self::locks::{Handler, LockChange, LockError, LockName, LockNews, Locks};
pub use self::log::{ListChange, ListChangeKind, Round, Run, What};
use self::looking::Looks;
pub use self::looking::{LookError, LookId, LookOptions, Looked, RingSight};
pub use self::names::{Epoch, Place, Process, Timestamp};
pub use self::news::{Removal, RingEvent, RingNews};
use self::packet::{NewList, NonMemberData, Packet};
use self::parts::Parts;
pub use self::qos::Qos;
use self::request_numbers::RequestNumbers;
pub use self::stream::Data;
pub use self::terms::JoinOptions;
use self::terms::Terms;
pub use self::view::{Member, Partition, RingView};
use crate::outbox::Outbox;

/// The RMP engine of one node.
pub struct Rmp {
    id: NodeId,
    origin: Origin,
    config: Config,
    /// Maximum packet size in bytes that the settings allow.
    most_mtu: u16,
    rng: Rng,
    groups: BTreeMap<GroupId, Group>,
    timers: Timers<(GroupId, Timer)>,
    outbox: Outbox,
    events: VecDeque<Event>,
    counters: Counters,
    lives: u64,
    /// Options that [`Engine::join`] uses.
    joining: JoinOptions,
    requests: RequestNumbers,
    parts: Parts,
    looks: Looks,
    /// Groups that have ended and were not reported yet.
    ended: BTreeSet<GroupId>,
}

impl Rmp {
    /// Creates an engine for the node `id`. `seed` is the source of all its randomness.
    ///
    /// # Panics
    /// If `config` is not [valid](Config::validate).
    pub fn new(origin: impl Into<Origin>, config: Config, seed: u64) -> Self {
        let origin = origin.into();
        config.validate().expect("valid settings");
        Self {
            id: origin.node,
            origin,
            most_mtu: config.path_mtu,
            config,
            rng: Rng::new(seed),
            groups: BTreeMap::new(),
            timers: Timers::new(),
            outbox: Outbox::default(),
            events: VecDeque::new(),
            counters: Counters::default(),
            lives: Process::lives_before(origin.incarnation),
            joining: JoinOptions::default(),
            requests: RequestNumbers::new(origin),
            parts: Parts::default(),
            looks: Looks::default(),
            ended: BTreeSet::new(),
        }
    }

    /// Returns the counters, summed over all groups.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns `true` if this node is a member of the group, joins it, or has left it and still
    /// answers.
    pub fn has(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|state| !state.is_of_guest())
    }

    /// Returns `true` if this node calls the group without being a member, or queries its rings. It
    /// counts as a caller until it forgets the group ([`Config::call_forget`]).
    pub fn calls(&self, group: GroupId) -> bool {
        let is_guest = self.groups.get(&group).is_some_and(|state| state.is_of_guest());
        is_guest || self.looks.is_open(group)
    }

    /// Returns the other members that are not known to have everything that this node has sent in
    /// the group.
    pub fn unconfirmed(&self, group: GroupId) -> Vec<NodeId> {
        let Some(state) = self.groups.get(&group) else { return Vec::new() };
        state.ring.as_ref().map_or_else(Vec::new, |ring| match state.sending.unplaced_from() {
            Some(_) => ring.others_before(Timestamp::MAX).collect(),
            None => ring.others_before(state.confirming.last_place).collect(),
        })
    }

    /// Returns the next group that this node no longer has because it left or was removed.
    pub fn poll_ended(&mut self) -> Option<GroupId> {
        self.ended.pop_first()
    }

    /// Drops the group at once. The other members of its ring have to detect it.
    pub fn abandon(&mut self, now: Time, group: GroupId) {
        self.with(now, group, |state, around| {
            state.give_up_calls(around);
            state.is_over = true;
        });
    }

    /// Returns this node's view of the ring of a group; `None` while it is not in a ring.
    pub fn view(&self, group: GroupId) -> Option<&RingView> {
        self.groups.get(&group)?.ring.as_ref().map(|ring| ring.view())
    }

    /// Returns the place in the order of a group up to which this node has everything, delivered or
    /// not. `None` while it is not in a ring.
    pub fn reached(&self, group: GroupId) -> Option<Place> {
        self.groups.get(&group)?.ring.as_ref().map(|ring| ring.reached())
    }

    /// Returns the token holder of a group; `None` while this node is not in a ring.
    pub fn token(&self, group: GroupId) -> Option<Process> {
        self.groups.get(&group)?.ring.as_ref().map(|ring| ring.token())
    }

    fn decode(&mut self, datagram: &[u8]) -> Option<(Header, Packet)> {
        let decoded = Header::decode(datagram)
            .and_then(|(header, body)| Ok((header, Packet::decode(&header, body)?)));
        self.counters.malformed += u64::from(decoded.is_err());
        decoded.ok()
    }

    /// Calls `call` with a group and its context. Removes the group if it is over afterwards.
    fn with<T>(
        &mut self,
        now: Time,
        group: GroupId,
        call: impl FnOnce(&mut Group, &mut Around<'_>) -> T,
    ) -> Option<T> {
        let state = self.groups.get_mut(&group)?;
        let mut reach = core::mem::take(&mut state.reach);
        let mut around = Around {
            now,
            node: self.id,
            origin: self.origin,
            group,
            version: state.version(),
            config: &self.config,
            timers: &mut self.timers,
            outbox: &mut self.outbox,
            events: &mut self.events,
            counters: &mut self.counters,
            rng: &mut self.rng,
            lives: &mut self.lives,
            reach: &mut reach,
        };
        let result = call(state, &mut around);
        let is_over = state.is_over;
        if is_over {
            state.abandon_ballot(&mut around);
            state.stop_timers(&mut around);
            // `stop_timers` keeps `Linger`. It must not end a later state of this group: the node
            // may make requests to the group again.
            around.cancel(Timer::Linger);
        }
        state.reach = reach;
        if is_over {
            let was_in = !state.is_of_guest();
            self.groups.remove(&group);
            if was_in {
                self.ended.insert(group);
            }
        }
        Some(result)
    }
}

impl Engine for Rmp {
    fn join(
        &mut self,
        now: Time,
        group: GroupId,
        settings: GroupSettings,
    ) -> Result<(), JoinError> {
        self.join_with(now, group, settings, self.joining)
    }

    fn leave(&mut self, now: Time, group: GroupId) {
        self.with(now, group, Group::leave);
    }

    fn send(
        &mut self,
        now: Time,
        group: GroupId,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let is_in = self.is_in(group);
        let state = self.groups.get(&group).filter(|_| is_in).ok_or(SendError::NotJoined)?;
        let qos = options.qos.unwrap_or_default();
        if !state.terms.allows(qos) {
            return Err(SendError::Qos { asked: qos });
        }
        let limit = match qos {
            Qos::Unreliable => self.unreliable_limit(),
            _ => self.config.message_bytes,
        };
        if payload.len() > limit {
            return Err(SendError::TooLarge { bytes: payload.len(), limit });
        }
        let full = state.sending.full_with(payload.len(), self.config.queue_bytes);
        if let Some(waiting_bytes) = full {
            return Err(SendError::QueueFull { waiting_bytes });
        }
        let sent = self.with(now, group, |state, around| state.send(around, qos, payload));
        sent.ok_or(SendError::NotJoined)
    }

    /// A repeated call before the confirmation replaces it: the confirmation then covers everything
    /// sent until the last call.
    fn confirm(&mut self, now: Time, group: GroupId) {
        if self.is_in(group) {
            self.with(now, group, Group::confirm);
        }
    }

    fn handle_datagram(&mut self, now: Time, datagram: &[u8]) -> Option<NodeId> {
        let (header, mut packet) = self.decode(datagram)?;
        let sender = header.sender;
        if sender == self.id {
            return None;
        }
        self.forward(&header, datagram);
        if matches!(packet, Packet::NonMemberData(NonMemberData::Data { .. })) {
            self.copy_of_guest(header.group, datagram);
        }
        if let Packet::Part(part) = packet {
            let Some(whole) = self.parts.take(sender, part) else { return Some(sender) };
            let (inner, of_parts) = self.decode(&whole)?;
            if (inner.sender, inner.group) != (sender, header.group) {
                self.counters.malformed += 1;
                return None;
            }
            packet = of_parts;
        }
        if let Packet::NewList(NewList::Whole(snapshot)) = &packet
            && !self.on_whole_list(sender, header.group, snapshot)
        {
            return Some(sender);
        }
        self.with(now, header.group, |state, cx| match state.may_say(sender, &packet) {
            true => state.on_packet(cx, sender, packet),
            false => cx.counters.foreign += 1,
        });
        Some(sender)
    }

    fn handle_view(&mut self, now: Time, change: &ViewChange) {
        let ViewChange { node, kind, .. } = *change;
        self.with(now, change.group, |state, around| match kind {
            ViewChangeKind::Joined => state.on_neighbour(around, node),
            ViewChangeKind::Left | ViewChangeKind::Failed => state.on_neighbour_gone(around, node),
        });
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some((group, timer)) = self.timers.pop_due(now) {
            self.with(now, group, |state, around| state.on_timer(around, timer));
        }
        self.look_again(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.outbox.pop(out)
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let rings = self.timers.next_due().map(|at| Wakeup { at, reason: "token ring" });
        let looks = self.looks.due().map(|at| Wakeup { at, reason: "query a ring" });
        Wakeup::earlier(rings, looks)
    }

    fn set_path_mtu(&mut self, bytes: u16) {
        self.config.path_mtu = bytes.min(self.most_mtu).max(config::LEAST_MTU as u16);
    }

    fn payload_limit(&self, _profile: Profile) -> usize {
        self.config.message_bytes
    }

    fn held_bytes(&self) -> usize {
        let rings = self.groups.values().filter_map(|state| state.ring.as_ref());
        let waiting = self.groups.values().map(|state| state.sending.waiting_bytes());
        let calls = self.groups.values();
        let calls = calls.map(|it| it.calling.held_bytes() + it.answering.held_bytes());
        let of_rings: usize = rings.map(|ring| ring.held_bytes()).sum();
        of_rings + waiting.sum::<usize>() + calls.sum::<usize>()
    }

    fn stats(&self) -> Vec<(&'static str, u64)> {
        self.counters.by_name().collect()
    }

    fn check(&self) {
        self.groups.values().for_each(Group::check);
    }
}
