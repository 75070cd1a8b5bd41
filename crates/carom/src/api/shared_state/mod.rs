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

/// An ordered group whose members share a state that is determined by the group's messages.
///
/// A member that joins receives the state from a member that has it. This state is as of the view
/// that admits the new member, or of a later place in the order. Messages ordered after that place
/// are kept until the state has arrived. A transfer continues across view changes. If the member
/// that sends the state fails, another holder sends it again. The application must take the actions
/// that [`SharedState::recv`] returns, one after another; see [`StateEvent`].
///
/// Exactly one member creates the state with [`SharedState::founding`]. All other members call
/// [`SharedState::joining`], including those that return. A member that finds no holder receives
/// [`StateEvent::NoHolder`], and must not create another state. All members must use the group
/// through this type, because it prefixes each message with its kind.
pub struct SharedState {
    group: Group,
    own: NodeId,
    sharing: Mutex<Sharing>,
}

/// An action that the application must take.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum StateEvent {
    /// The application must apply this message to its state.
    Message(Message),
    /// The application must send its current state to the members that lack it; see
    /// [`SharedState::give`].
    Give,
    /// The application must replace its state with this one.
    Take(Bytes),
    /// The application must discard its state, because this node was removed from the ring.
    Forget,
    /// No member of the ring has the state. This member waits for one that has it.
    NoHolder,
    /// No member sent the state before the limit of kept messages ([`SharedState::keeping`]) was
    /// exceeded, or the view had changed too often. This member has left the group. To receive the
    /// state, join again.
    NotGiven {
        /// Number of messages that were kept.
        messages: usize,
        /// Size of the kept messages, in bytes, including their overhead.
        bytes: usize,
    },
    /// Any other event of the group.
    Event(Event),
}

/// The holders of the state, as known to this member. All holders agree at each place in the order.
#[derive(Debug, Default)]
struct Sharing {
    has_state: bool,
    is_founder: bool,
    /// `true` if this member is a founder that has never shared a view with another member, so that
    /// no other member has the state.
    is_alone: bool,
    holders: BTreeSet<Process>,
    /// Members of the current view that have reported in it that they lack the state.
    lacking: BTreeSet<NodeId>,
    must_report: bool,
    view: Option<Place>,
    members: Vec<Process>,
    transfer: Option<Transfer>,
    /// Place of the incoming state, the number of pieces received so far, and their contents.
    pieces: Option<(Place, u32, BytesMut)>,
    kept: VecDeque<Message>,
    cuts: VecDeque<Cut>,
    kept_bytes: usize,
    limit_bytes: usize,
    is_over: bool,
    is_left: bool,
    actions: VecDeque<StateEvent>,
}

#[derive(Clone, Debug)]
struct Transfer {
    giver: Process,
    /// Place of the state: a view, or the last piece of the previous transfer.
    place: Place,
    /// Members at the start of the transfer. They have the state at its end.
    members: Vec<Process>,
}

#[derive(Clone, Debug)]
struct Cut {
    place: Place,
    kept: usize,
    members: Vec<Process>,
}

const APPLICATION: u8 = 0;
const PIECE: u8 = 1;
const LAST_PIECE: u8 = 2;
const LACKS: u8 = 3;
const MAX_CUTS: usize = 4096;
const PIECE_HEAD: usize = 1 + 4 + 8 + 8 + 8 + 4;

impl SharedState {
    /// Uses the application's present state as the group's state, once this node is in the ring.
    /// Call this at only one member, and only once.
    pub fn founding(group: Group) -> Self {
        Self::new(group, true)
    }

    /// Shares the state that the group already has. Another member sends it to this node.
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

    /// Sets the maximum size, in bytes, of the messages that this member keeps while it waits for
    /// the state, including their overhead. Default: 256 MiB. See [`StateEvent::NotGiven`].
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Self {
        self.sharing().limit_bytes = bytes;
        self
    }

    /// Returns the group, for its locks, members and requests. Do not publish or receive messages
    /// with it.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns `true` if this member has the state.
    pub fn has_state(&self) -> bool {
        self.sharing().has_state
    }

    /// Publishes a message that all members apply.
    ///
    /// A quality of service below total order is raised to total order: with a weaker one, members
    /// would deliver the message at different places in the order.
    ///
    /// # Errors
    /// See [`Group::publish_with`](crate::Group::publish_with). The size limit is one byte lower.
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

    /// Sends the state to the members that lack it.
    ///
    /// Call this method after [`StateEvent::Give`] and before the next [`SharedState::recv`].
    ///
    /// # Errors
    /// Returns an error if the group is closed.
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

    /// Returns the next action that the application must take, or `None` once the group is closed.
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
            _ => tracing::warn!(sender = %message.sender, "ignored an unknown kind of message"),
        }
    }

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

    fn give_up(&mut self) {
        let (messages, bytes) = (self.kept.len(), self.kept_bytes);
        *self =
            Self { actions: std::mem::take(&mut self.actions), is_over: true, ..Self::default() };
        self.actions.push_back(StateEvent::NotGiven { messages, bytes });
    }

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
            return end.map_or((), |end| self.cut(end));
        };
        self.forget_before(known);
        let begun = self.pieces.take().filter(|(begun, ..)| *begun == place);
        let (_, next, mut pieces) = begun.unwrap_or((place, 0, BytesMut::new()));
        if number != next {
            // The giver was removed and has returned in the middle of its transfer.
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

    fn cut(&mut self, place: Place) {
        let members = self.members.clone();
        self.cuts.push_back(Cut { place, kept: self.kept.len(), members });
        if self.cuts.len() > MAX_CUTS {
            self.give_up();
        }
    }

    fn forget_before(&mut self, number: usize) {
        self.cuts.drain(..number);
        let before = self.cuts.front().map_or(0, |cut| cut.kept);
        for message in self.kept.drain(..before) {
            self.kept_bytes -= size_of::<Message>() + message.payload.len();
        }
        self.cuts.iter_mut().for_each(|cut| cut.kept -= before);
    }

    /// Ends a transfer. Members that lack the state may have joined since its start.
    fn on_given(&mut self, members: &[Process], end: Place, own: NodeId) {
        let is_member = |process: &&Process| self.members.contains(process);
        self.holders = members.iter().filter(is_member).copied().collect();
        self.transfer = None;
        self.begin_transfer(end, own);
    }

    /// Begins a transfer if a member lacks the state. All holders begin it at the same place in the
    /// order.
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

    fn given_as_of(&self, own: NodeId) -> Option<Place> {
        self.transfer.as_ref().filter(|it| it.giver.node == own).map(|it| it.place)
    }

    fn report(&mut self) -> Option<Bytes> {
        let view = self.view.filter(|_| std::mem::take(&mut self.must_report))?;
        Some(put_before(LACKS, view, 0, &[]))
    }

    /// Processes a member's report. If all members lack the state, none can give it.
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
        // If the giver is gone, another holder gives the state as of this view. A transfer that no
        // member waits for has ended: its giver receives a new request for members that join later.
        let waits = |it: &Process| members.contains(it) && !self.holders.contains(it);
        self.transfer.take_if(|it| !members.contains(&it.giver) || !it.members.iter().any(waits));
        self.begin_transfer(event.place, own);
    }

    /// Resets this member. A founder that was always alone remains a founder.
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

fn take_head(from: &mut Bytes) -> Option<(Place, u32)> {
    let version = from.try_get_u32().ok()?;
    let node = NodeId(from.try_get_u64().ok()?);
    let creator = Process { node, life: from.try_get_u64().ok()? };
    let at = Timestamp(from.try_get_u64().ok()?);
    let place = Place { ring: Epoch { version, creator }, at };
    Some((place, from.try_get_u32().ok()?))
}

const MAX_KEPT_BYTES: usize = 256 << 20;
