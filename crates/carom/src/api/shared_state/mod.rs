//! Ordered groups whose members share a state. New members receive it as of the view that admits
//! them.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use carom_proto::ring::{Epoch, Place, Process, Qos, RingNews, Timestamp, ViewEvent};
use carom_proto::{Event, Message, NodeId, SendOptions};

use super::group::Group;
use super::publish::Published;
use crate::shared::error::PublishError;

/// An ordered group whose members share a state that follows from the messages.
///
/// Every member applies the same messages in the same order, so that all have the same state.
///
/// A member that joins receives the state from a member that has it, as of the view that admits it
/// or of a later place. Messages ordered after that place are kept until the state has arrived. A
/// transfer continues across view changes, unless its giver is gone: then another member gives the
/// state again. The application only has to act on what [`SharedState::recv`] returns, in order:
///
/// | returned | action of the application |
/// |---|---|
/// | [`StateEvent::Message`] | applies the message to its state |
/// | [`StateEvent::Give`] | calls [`SharedState::give`] with its current state |
/// | [`StateEvent::Take`] | replaces its state with this one |
/// | [`StateEvent::Forget`] | discards its state: this node was removed from the ring |
/// | [`StateEvent::NoHolder`] | waits or leaves: no member has the state |
/// | [`StateEvent::NotGiven`] | joins again if it needs the state: this node has left the group |
///
/// The state exists from when one member [founds](SharedState::founding) it. All other members
/// join, including those that return. A member that finds no holder receives
/// [`StateEvent::NoHolder`], waits, and does not found another state. All members must use the
/// group through this type, because it prefixes each message with its kind.
pub struct SharedState {
    group: Group,
    own: NodeId,
    sharing: Mutex<Sharing>,
}

/// Action that the application has to take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StateEvent {
    /// Message to apply to the state.
    Message(Message),
    /// Request to give the current state to the members that lack it; see [`SharedState::give`].
    Give,
    /// State that replaces the current one.
    Take(Bytes),
    /// Request to discard the state, after this node was removed from the ring.
    Forget,
    /// No member of the view has the state, because its holders are gone. All members receive this
    /// at the same place in the order. This member waits for one that has the state.
    NoHolder,
    /// No member gave this member the state before it exceeded its limit of kept messages
    /// ([`SharedState::keeping`]), and it has left the group. A member that joins again is admitted
    /// by a new view, and receives the state as of that view.
    NotGiven {
        /// Number of messages that were kept.
        messages: usize,
        /// Size of the kept messages in bytes.
        bytes: usize,
    },
    /// Any other event of the group.
    Event(Event),
}

/// Knowledge of the members that have the state. It is the same at all holders at the same place in
/// the order.
#[derive(Debug, Default)]
struct Sharing {
    has_state: bool,
    /// `true` if this member founds the state once it is in a ring.
    is_founder: bool,
    /// `true` if it was never in a view with another member, so that no other member has the state.
    is_alone: bool,
    holders: BTreeSet<Process>,
    /// Members of the view that have reported in it that they lack the state.
    lacking: BTreeSet<NodeId>,
    /// `true` if this member lacks the state and has yet to report it.
    must_report: bool,
    /// Ring of the view, and the view's place.
    view: Option<Place>,
    members: Vec<Process>,
    /// Transfer in progress, at the members that have the state.
    transfer: Option<Transfer>,
    /// Place of the incoming state, number of its pieces received so far, and their bytes.
    pieces: Option<(Place, u32, BytesMut)>,
    /// Messages ordered since the first cut, kept until the state has arrived.
    kept: VecDeque<Message>,
    /// Places at which a transfer may have begun since this member waits.
    cuts: VecDeque<Cut>,
    /// Size of the kept messages in bytes.
    kept_bytes: usize,
    /// Maximum of `kept_bytes`.
    limit_bytes: usize,
    /// `true` after more was ordered than could be kept: the group has ended here.
    is_over: bool,
    /// `true` if the group was left because of that.
    is_left: bool,
    /// Actions that the application has not yet received.
    actions: VecDeque<StateEvent>,
}

/// A state in transfer to the members that lack it.
#[derive(Clone, Debug)]
struct Transfer {
    giver: Process,
    /// Place of the state: a view, or the last piece of the previous transfer.
    place: Place,
    /// Members at the start of the transfer. They have the state at its end.
    members: Vec<Process>,
}

/// A place as of which the state may be given.
#[derive(Clone, Debug)]
struct Cut {
    place: Place,
    /// Number of kept messages before this place.
    kept: usize,
    members: Vec<Process>,
}

/// Kind of a message: its first byte.
const APPLICATION: u8 = 0;
const PIECE: u8 = 1;
const LAST_PIECE: u8 = 2;
/// Report that the sender lacks the state in this view.
const LACKS: u8 = 3;
/// Maximum number of cuts while this member waits for the state.
const MAX_CUTS: usize = 4096;
/// Bytes before a piece of the state: its kind, its place and its number.
const PIECE_HEAD: usize = 1 + 4 + 8 + 8 + 8 + 4;

impl SharedState {
    /// Founds the group's state here, empty, once this node is in the ring. Do this once in the
    /// life of the state.
    pub fn founding(group: Group) -> Self {
        Self::new(group, true)
    }

    /// Joins the group, whose state the other members give to this node.
    pub fn joining(group: Group) -> Self {
        Self::new(group, false)
    }

    fn new(group: Group, is_founder: bool) -> Self {
        let own = group.handle().node.state.id();
        let sharing = Sharing {
            is_founder,
            is_alone: is_founder,
            limit_bytes: MAX_KEPT_BYTES,
            ..Sharing::default()
        };
        let sharing = Mutex::new(sharing);
        Self { group, own, sharing }
    }

    /// Sets the maximum size of the messages that this member keeps while it waits for the state,
    /// in bytes. Default: 256 MiB.
    ///
    /// The size includes the overhead of keeping each message. Beyond it [`StateEvent::NotGiven`]
    /// is returned. Raise it if more than that can be ordered during a transfer.
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Self {
        self.sharing().limit_bytes = bytes;
        self
    }

    /// Returns the group, for its locks, members and requests. Publish and receive messages through
    /// this type instead.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns `true` if this member has the state.
    pub fn has_state(&self) -> bool {
        self.sharing().has_state
    }

    /// Publishes a message that all members apply; see
    /// [`Group::publish_with`](crate::Group::publish_with).
    ///
    /// A weaker quality of service than total order is raised to it, because other messages would
    /// reach the members at different places in the order.
    ///
    /// # Errors
    /// See [`Group::publish_with`](crate::Group::publish_with). The size limit is one
    /// byte less.
    pub async fn publish(
        &self,
        payload: &[u8],
        options: impl Into<SendOptions>,
    ) -> Result<Published, PublishError> {
        let mut message = BytesMut::with_capacity(1 + payload.len());
        message.put_u8(APPLICATION);
        message.put_slice(payload);
        let mut options: SendOptions = options.into();
        options.qos = options.qos.map(|qos| qos.max(Qos::TotallyOrdered));
        self.group.publish_with(message.freeze(), options).await
    }

    /// Gives the state to the members that lack it.
    ///
    /// Call it after [`StateEvent::Give`] and before the next [`SharedState::recv`].
    ///
    /// # Errors
    /// The group is closed.
    pub async fn give(&self, state: &[u8]) -> Result<(), PublishError> {
        let Some(place) = self.sharing().given_as_of(self.own) else { return Ok(()) };
        let room = self.group.payload_limit() - PIECE_HEAD;
        let mut pieces = state.chunks(room).peekable();
        for number in 0.. {
            let piece = pieces.next().unwrap_or_default();
            let kind = if pieces.peek().is_some() { PIECE } else { LAST_PIECE };
            drop(self.group.publish(put_before(kind, place, number, piece)).await?);
            if kind == LAST_PIECE {
                break;
            }
        }
        Ok(())
    }

    /// Returns the next action of the application; `None` once the group is
    /// closed.
    pub async fn recv(&self) -> Option<StateEvent> {
        loop {
            let report = self.sharing().report();
            if let Some(report) = report {
                drop(self.group.publish(report).await.ok()?);
            }
            if let Some(action) = self.sharing().actions.pop_front() {
                return Some(action);
            }
            let event = self.group.recv().await?;
            let mut sharing = self.sharing();
            sharing.take(event, self.own);
            if sharing.is_over && !std::mem::replace(&mut sharing.is_left, true) {
                self.group.handle().leave();
            }
        }
    }

    fn sharing(&self) -> MutexGuard<'_, Sharing> {
        self.sharing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedState").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Sharing {
    fn take(&mut self, event: Event, own: NodeId) {
        match event {
            _ if self.is_over => {}
            Event::Message(message) => self.on_message(message, own),
            Event::Ring(ring) => {
                match &ring.news {
                    RingNews::View(view) => self.on_view(view, own),
                    RingNews::Removed { .. } => self.on_removed(),
                    _ => {}
                }
                self.actions.push_back(StateEvent::Event(Event::Ring(ring)));
            }
            event => self.actions.push_back(StateEvent::Event(event)),
        }
    }

    fn on_message(&mut self, mut message: Message, own: NodeId) {
        match message.payload.try_get_u8() {
            Ok(APPLICATION) if self.has_state => {
                self.actions.push_back(StateEvent::Message(message))
            }
            Ok(APPLICATION) => self.keep(message),
            Ok(PIECE) => self.on_piece(message.payload, None, own),
            Ok(LAST_PIECE) => self.on_piece(message.payload, message.place, own),
            Ok(LACKS) => self.on_lack(message.sender, message.payload),
            _ => tracing::warn!(sender = %message.sender, "not a message of a shared state"),
        }
    }

    /// Keeps a message until the state has arrived to which it applies.
    fn keep(&mut self, message: Message) {
        if self.cuts.is_empty() {
            return;
        }
        self.kept_bytes += size_of::<Message>() + message.payload.len();
        self.kept.push_back(message);
        if self.kept_bytes > self.limit_bytes {
            self.give_up();
        }
    }

    /// Ends the group here: more was ordered than this member keeps.
    fn give_up(&mut self) {
        let (messages, bytes) = (self.kept.len(), self.kept_bytes);
        *self =
            Self { actions: std::mem::take(&mut self.actions), is_over: true, ..Self::default() };
        self.actions.push_back(StateEvent::NotGiven { messages, bytes });
    }

    /// Handles a piece of the state as of a place. The last piece ends the transfer, at its own
    /// place `end`.
    fn on_piece(&mut self, mut payload: Bytes, end: Option<Place>, own: NodeId) {
        let Some((place, number)) = take_head(&mut payload) else { return };
        if self.has_state {
            let transfer = self.transfer.take_if(|it| end.is_some() && it.place == place);
            if let (Some(Transfer { members, .. }), Some(end)) = (transfer, end) {
                self.on_given(&members, end, own);
            }
            return;
        }
        let Some(known) = self.cuts.iter().position(|cut| cut.place == place) else {
            // The next transfer may begin here.
            return end.map_or((), |end| self.cut(end));
        };
        self.forget_before(known);
        let begun = self.pieces.take().filter(|(begun, ..)| *begun == place);
        let (_, next, mut pieces) = begun.unwrap_or((place, 0, BytesMut::new()));
        if number != next {
            // A giver that was removed has returned in the middle of its pieces.
            return;
        }
        pieces.extend_from_slice(&payload);
        let Some(end) = end else {
            self.pieces = Some((place, next + 1, pieces));
            return;
        };
        (self.has_state, self.must_report) = (true, false);
        self.actions.push_back(StateEvent::Take(pieces.freeze()));
        self.actions.extend(self.kept.drain(..).map(StateEvent::Message));
        self.kept_bytes = 0;
        let cut = self.cuts.pop_front();
        self.cuts.clear();
        self.on_given(&cut.map(|cut| cut.members).unwrap_or_default(), end, own);
    }

    /// Adds a place as of which the state may be given.
    fn cut(&mut self, place: Place) {
        let members = self.members.clone();
        self.cuts.push_back(Cut { place, kept: self.kept.len(), members });
        if self.cuts.len() > MAX_CUTS {
            self.give_up();
        }
    }

    /// Drops the messages before the cut with this number. The incoming state already contains
    /// them.
    fn forget_before(&mut self, number: usize) {
        self.cuts.drain(..number);
        let before = self.cuts.front().map_or(0, |cut| cut.kept);
        for message in self.kept.drain(..before) {
            self.kept_bytes -= size_of::<Message>() + message.payload.len();
        }
        self.cuts.iter_mut().for_each(|cut| cut.kept -= before);
    }

    /// Ends a transfer: all members at its start have the state. Others may have joined since.
    fn on_given(&mut self, members: &[Process], end: Place, own: NodeId) {
        let is_member = |process: &&Process| self.members.contains(process);
        self.holders = members.iter().filter(is_member).copied().collect();
        self.transfer = None;
        self.begin_transfer(end, own);
    }

    /// Begins a transfer if a member lacks the state and none is in progress. All holders of the
    /// state do so at the same place.
    fn begin_transfer(&mut self, place: Place, own: NodeId) {
        let all_have_it = self.members.iter().all(|member| self.holders.contains(member));
        let Some(giver) = self.holders.first().copied() else { return };
        if all_have_it || self.transfer.is_some() {
            return;
        }
        self.transfer = Some(Transfer { giver, place, members: self.members.clone() });
        if giver.node == own {
            self.actions.push_back(StateEvent::Give);
        }
    }

    /// Returns the place of the transfer in progress if this member is its giver.
    fn given_as_of(&self, own: NodeId) -> Option<Place> {
        self.transfer.as_ref().filter(|it| it.giver.node == own).map(|it| it.place)
    }

    /// Returns the message by which this member reports, once in each view, that it lacks the
    /// state.
    fn report(&mut self) -> Option<Bytes> {
        let view = self.view.filter(|_| std::mem::take(&mut self.must_report))?;
        Some(put_before(LACKS, view, 0, &[]))
    }

    /// Handles a report that a member lacks the state. If all members lack it, none can give it.
    fn on_lack(&mut self, sender: NodeId, mut payload: Bytes) {
        let view = take_head(&mut payload).map(|(view, _)| view);
        if self.has_state || view.is_none() || view != self.view {
            return;
        }
        let is_new = self.lacking.insert(sender);
        if is_new && self.members.iter().all(|member| self.lacking.contains(&member.node)) {
            (self.kept, self.kept_bytes, self.pieces) = (VecDeque::new(), 0, None);
            self.cuts.clear();
            self.actions.push_back(StateEvent::NoHolder);
        }
    }

    fn on_view(&mut self, event: &ViewEvent, own: NodeId) {
        let members = [&event.joined, &event.left, &event.failed];
        let is_of_locks = members.into_iter().all(|changed| changed.is_empty());
        if is_of_locks && self.view.is_some_and(|view| view.ring == event.view.epoch) {
            return;
        }
        self.view = Some(event.place);
        self.members = event.view.processes().collect();
        self.is_alone &= self.members.len() == 1;
        self.lacking.clear();
        let Some(this) = self.members.iter().copied().find(|it| it.node == own) else { return };
        if std::mem::take(&mut self.is_founder) {
            self.has_state = true;
            self.holders = BTreeSet::from([this]);
        }
        if !self.has_state {
            self.must_report = true;
            return self.cut(event.place);
        }
        let members = &self.members;
        self.holders.retain(|holder| members.contains(holder));
        // If the giver is gone, another holder gives the state as of this view. A transfer without
        // a waiting member is over: its giver is requested again for members that join later.
        let waits = |it: &Process| members.contains(it) && !self.holders.contains(it);
        self.transfer.take_if(|it| !members.contains(&it.giver) || !it.members.iter().any(waits));
        self.begin_transfer(event.place, own);
    }

    /// Discards the state after this node was removed from the ring, as it is out of date. A
    /// founder whose ring of one merges into a larger one keeps founding the state.
    fn on_removed(&mut self) {
        let (had_state, is_founder) = (self.has_state, self.is_alone);
        let (actions, limit_bytes) = (std::mem::take(&mut self.actions), self.limit_bytes);
        *self = Self { actions, limit_bytes, is_founder, is_alone: is_founder, ..Self::default() };
        if had_state && !is_founder {
            self.actions.push_back(StateEvent::Forget);
        }
    }
}

fn put_before(kind: u8, place: Place, number: u32, piece: &[u8]) -> Bytes {
    let Place { ring, at } = place;
    let mut out = BytesMut::with_capacity(PIECE_HEAD + piece.len());
    out.put_u8(kind);
    out.put_u32(ring.version);
    out.put_u64(ring.creator.node.0);
    out.put_u64(ring.creator.life);
    out.put_u64(at.0);
    out.put_u32(number);
    out.put_slice(piece);
    out.freeze()
}

/// Returns the place of a transfer, and the number of the piece.
fn take_head(from: &mut Bytes) -> Option<(Place, u32)> {
    let version = from.try_get_u32().ok()?;
    let node = NodeId(from.try_get_u64().ok()?);
    let creator = Process { node, life: from.try_get_u64().ok()? };
    let at = Timestamp(from.try_get_u64().ok()?);
    let place = Place { ring: Epoch { version, creator }, at };
    Some((place, from.try_get_u32().ok()?))
}

/// Default of the maximum size of messages kept during a transfer.
const MAX_KEPT_BYTES: usize = 256 << 20;
