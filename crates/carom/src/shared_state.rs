//! Ordered groups whose members share a state: new members are given it at the view that lets them
//! in.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use carom_proto::rmp::{Epoch, Place, Process, Qos, RingNews, Timestamp, ViewEvent};
use carom_proto::{Event, Message, NodeId, SendOptions};

use crate::command::NodeCommand;
use crate::error::PublishError;
use crate::group::Group;
use crate::published::Published;

/// An ordered group whose members share a state that follows from the messages: every member
/// applies the same messages in the same order, so all have the same.
///
/// A member that joins is given the state by one that has it, as of the view that lets the member
/// in or a later place; what is ordered after that place is kept until the state is there. A
/// transfer continues when the view changes, unless its giver is gone: then another one gives the
/// state anew. So the application has to do what [`SharedState::recv`] says, in order, and nothing
/// else:
///
/// | it says | the application |
/// |---|---|
/// | [`Shared::Message`] | applies the message to its state |
/// | [`Shared::Give`] | calls [`SharedState::give`] with its state as it is now |
/// | [`Shared::Take`] | makes this its state |
/// | [`Shared::Forget`] | has no state any more: the others have gone on without this node |
/// | [`Shared::NoHolder`] | waits for a member that has the state, or leaves: no member has it |
/// | [`Shared::NotGiven`] | joins again if it wants the state: this is the end of the group here |
///
/// The state exists since one member [founded](SharedState::founding) it. All others join, those
/// that come back too: one that finds nobody receives [`Shared::NoHolder`], waits, and does not
/// begin another state. All members must use the group in this way: it writes before each message
/// what it is.
pub struct SharedState {
    group: Group,
    own: NodeId,
    sharing: Mutex<Sharing>,
}

/// What the application has to do.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Shared {
    /// Apply this to the state.
    Message(Message),
    /// Give the state as it is now to those who lack it.
    Give,
    /// This is the state.
    Take(Bytes),
    /// There is no state here any more.
    Forget,
    /// No member of the view has the state: those that had it are gone. All members receive this
    /// at the same place in the order. This member waits for one that has the state.
    NoHolder,
    /// Nobody gave this member the state, while more was ordered than it keeps
    /// ([`SharedState::keeping`]): it has left the group. Who joins again is let in by a new view,
    /// as of which the state is given anew.
    NotGiven {
        /// Messages that were kept.
        messages: usize,
        /// Bytes of theirs.
        bytes: usize,
    },
    /// Anything else that happened in the group.
    Event(Event),
}

/// Who has the state: at the same place in the order the same at all who have it.
#[derive(Debug, Default)]
struct Sharing {
    has_state: bool,
    /// The state is this member's to begin with once it is in a ring.
    is_founder: bool,
    /// It was never in a view with anybody else, so nobody else has the state.
    is_alone: bool,
    holders: BTreeSet<Process>,
    /// Members of the view that have said that they lack the state, with it or since.
    lacking: BTreeSet<NodeId>,
    /// This member lacks the state and is to say so.
    must_report: bool,
    /// The ring of the view, and its place.
    view: Option<Place>,
    members: Vec<Process>,
    /// The transfer that is in progress, at those that have the state.
    transfer: Option<Transfer>,
    /// The pieces that have come of the state as of this place, and how many.
    pieces: Option<(Place, u32, BytesMut)>,
    /// What was ordered since the first of the cuts, while the state is on its way.
    since: VecDeque<Message>,
    /// Where a transfer may have begun since this member waits.
    cuts: VecDeque<Cut>,
    /// Bytes of that.
    since_bytes: usize,
    /// How many there may be.
    limit_bytes: usize,
    /// More was ordered than could be kept: this is the end.
    is_over: bool,
    /// The group was left for that.
    is_left: bool,
    /// What the application is to be told.
    told: VecDeque<Shared>,
}

/// A state on its way to those who lack it.
#[derive(Clone, Debug)]
struct Transfer {
    giver: Process,
    /// The state is as of this place, of a view or of the last piece of the transfer before.
    place: Place,
    /// All members when it began: they have the state at its end.
    members: Vec<Process>,
}

/// A place as of which the state may be given.
#[derive(Clone, Debug)]
struct Cut {
    place: Place,
    /// How many of the kept messages come before it.
    kept: usize,
    members: Vec<Process>,
}

/// What a message is; it stands before all else in it.
const APPLICATION: u8 = 0;
const PIECE: u8 = 1;
const LAST_PIECE: u8 = 2;
/// The sender lacks the state in this view.
const LACKS: u8 = 3;
/// Places as of which the state may come while this member waits for it.
const MAX_CUTS: usize = 4096;
/// Bytes before a piece of the state: what it is, the place, and its number.
const PIECE_HEAD: usize = 1 + 4 + 8 + 8 + 8 + 4;

impl SharedState {
    /// The group's state begins here, empty, once this node is in the ring. To be done once in the
    /// state's life.
    pub fn founding(group: Group) -> Self {
        Self::new(group, true)
    }

    /// The others give this node the state.
    pub fn joining(group: Group) -> Self {
        Self::new(group, false)
    }

    fn new(group: Group, is_founder: bool) -> Self {
        let own = group.node_id();
        let sharing = Sharing {
            is_founder,
            is_alone: is_founder,
            limit_bytes: SINCE_BYTES,
            ..Sharing::default()
        };
        let sharing = Mutex::new(sharing);
        Self { group, own, sharing }
    }

    /// While this member waits for the state it keeps messages of so many bytes at most, each with
    /// what it takes to keep it; then [`Shared::NotGiven`]. Default 256 MiB.
    #[must_use]
    pub fn keeping(self, bytes: usize) -> Self {
        self.sharing().limit_bytes = bytes;
        self
    }

    /// The group, for its locks, members and requests. Messages are published and received here.
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Whether this member has the state.
    pub fn has_state(&self) -> bool {
        self.sharing().has_state
    }

    /// Publishes a message that all members apply; see
    /// [`Group::publish_with_async`](crate::Group::publish_with_async). It is totally ordered at
    /// least, whatever less is asked for: other messages come at different places to members.
    ///
    /// # Errors
    /// As there; one byte less fits.
    pub async fn publish(
        &self,
        payload: &[u8],
        options: impl Into<SendOptions>,
    ) -> Result<Published<'_>, PublishError> {
        let mut message = BytesMut::with_capacity(1 + payload.len());
        message.put_u8(APPLICATION);
        message.put_slice(payload);
        let mut options: SendOptions = options.into();
        options.qos = options.qos.map(|qos| qos.max(Qos::TotallyOrdered));
        self.group.publish_with_async(message.freeze(), options).await
    }

    /// Gives the state to those who lack it, after [`Shared::Give`] and before the next
    /// [`SharedState::recv`].
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
            drop(self.group.publish_async(put_before(kind, place, number, piece)).await?);
            if kind == LAST_PIECE {
                break;
            }
        }
        Ok(())
    }

    /// What the application has to do next; `None` once the group is closed. On any async runtime.
    pub async fn recv(&self) -> Option<Shared> {
        loop {
            let report = self.sharing().report();
            if let Some(report) = report {
                drop(self.group.publish_async(report).await.ok()?);
            }
            if let Some(told) = self.sharing().told.pop_front() {
                return Some(told);
            }
            let event = self.group.recv().await?;
            let mut sharing = self.sharing();
            sharing.take(event, self.own);
            if sharing.is_over && !std::mem::replace(&mut sharing.is_left, true) {
                let shared = Arc::clone(self.group.shared());
                self.group.tell(NodeCommand::Leave { shared });
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
    /// Takes in what happened in the group.
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
                self.told.push_back(Shared::Event(Event::Ring(ring)));
            }
            event => self.told.push_back(Shared::Event(event)),
        }
    }

    fn on_message(&mut self, mut message: Message, own: NodeId) {
        match message.payload.try_get_u8() {
            Ok(APPLICATION) if self.has_state => self.told.push_back(Shared::Message(message)),
            Ok(APPLICATION) => self.keep(message),
            Ok(PIECE) => self.on_piece(message.payload, None, own),
            Ok(LAST_PIECE) => self.on_piece(message.payload, message.place, own),
            Ok(LACKS) => self.on_lack(message.sender, message.payload),
            _ => tracing::warn!(sender = %message.sender, "not a message of a shared state"),
        }
    }

    /// Keeps a message until the state is there that it follows.
    fn keep(&mut self, message: Message) {
        if self.cuts.is_empty() {
            return;
        }
        self.since_bytes += size_of::<Message>() + message.payload.len();
        self.since.push_back(message);
        if self.since_bytes > self.limit_bytes {
            self.give_up();
        }
    }

    /// More was ordered than this member keeps: this is the end of the group here.
    fn give_up(&mut self) {
        let (messages, bytes) = (self.since.len(), self.since_bytes);
        *self = Self { told: std::mem::take(&mut self.told), is_over: true, ..Self::default() };
        self.told.push_back(Shared::NotGiven { messages, bytes });
    }

    /// A piece of the state as of a place; the last one ends the transfer at a place of its own.
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
            // A giver that was removed has come back in the midst of its pieces.
            return;
        }
        pieces.extend_from_slice(&payload);
        let Some(end) = end else {
            self.pieces = Some((place, next + 1, pieces));
            return;
        };
        (self.has_state, self.must_report) = (true, false);
        self.told.push_back(Shared::Take(pieces.freeze()));
        self.told.extend(self.since.drain(..).map(Shared::Message));
        self.since_bytes = 0;
        let cut = self.cuts.pop_front();
        self.cuts.clear();
        self.on_given(&cut.map(|cut| cut.members).unwrap_or_default(), end, own);
    }

    /// The state may be given as of this place.
    fn cut(&mut self, place: Place) {
        let members = self.members.clone();
        self.cuts.push_back(Cut { place, kept: self.since.len(), members });
        if self.cuts.len() > MAX_CUTS {
            self.give_up();
        }
    }

    /// The state that comes is as of the cut of this number: what was ordered before it is a part
    /// of it.
    fn forget_before(&mut self, number: usize) {
        self.cuts.drain(..number);
        let before = self.cuts.front().map_or(0, |cut| cut.kept);
        for message in self.since.drain(..before) {
            self.since_bytes -= size_of::<Message>() + message.payload.len();
        }
        self.cuts.iter_mut().for_each(|cut| cut.kept -= before);
    }

    /// All who were members when the transfer began have the state. Others may have joined since.
    fn on_given(&mut self, members: &[Process], end: Place, own: NodeId) {
        let is_member = |process: &&Process| self.members.contains(process);
        self.holders = members.iter().filter(is_member).copied().collect();
        self.transfer = None;
        self.begin_transfer(end, own);
    }

    /// Begins a transfer if a member lacks the state and none is in progress. All who have the
    /// state do so at the same place.
    fn begin_transfer(&mut self, place: Place, own: NodeId) {
        let all_have_it = self.members.iter().all(|member| self.holders.contains(member));
        let Some(giver) = self.holders.first().copied() else { return };
        if all_have_it || self.transfer.is_some() {
            return;
        }
        self.transfer = Some(Transfer { giver, place, members: self.members.clone() });
        if giver.node == own {
            self.told.push_back(Shared::Give);
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

    /// A member lacks the state. When all of them do, nobody can give it.
    fn on_lack(&mut self, sender: NodeId, mut payload: Bytes) {
        let view = take_head(&mut payload).map(|(view, _)| view);
        if self.has_state || view.is_none() || view != self.view {
            return;
        }
        let is_new = self.lacking.insert(sender);
        if is_new && self.members.iter().all(|member| self.lacking.contains(&member.node)) {
            (self.since, self.since_bytes, self.pieces) = (VecDeque::new(), 0, None);
            self.cuts.clear();
            self.told.push_back(Shared::NoHolder);
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
        // A giver that is gone is followed by another one, which gives the state as of this view. A
        // transfer to nobody is over: its giver is asked anew for whoever comes later.
        let waits = |it: &Process| members.contains(it) && !self.holders.contains(it);
        self.transfer.take_if(|it| !members.contains(&it.giver) || !it.members.iter().any(waits));
        self.begin_transfer(event.place, own);
    }

    /// The others went on without this node: what it has is out of date. But a founder whose ring
    /// of one gives way to a larger one brings the state along.
    fn on_removed(&mut self) {
        let (had_state, is_founder) = (self.has_state, self.is_alone);
        let (told, limit_bytes) = (std::mem::take(&mut self.told), self.limit_bytes);
        *self = Self { told, limit_bytes, is_founder, is_alone: is_founder, ..Self::default() };
        if had_state && !is_founder {
            self.told.push_back(Shared::Forget);
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

/// The place of a transfer, and the number of the piece.
fn take_head(from: &mut Bytes) -> Option<(Place, u32)> {
    let version = from.try_get_u32().ok()?;
    let node = NodeId(from.try_get_u64().ok()?);
    let creator = Process { node, life: from.try_get_u64().ok()? };
    let at = Timestamp(from.try_get_u64().ok()?);
    let place = Place { ring: Epoch { version, creator }, at };
    Some((place, from.try_get_u32().ok()?))
}

/// Bytes of messages that are kept while the state is on its way.
const SINCE_BYTES: usize = 256 << 20;
