//! Ordered groups whose members share a state: new members are given it at the view that lets them
//! in.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use carom_proto::rmp::{Epoch, Process, Qos, RingNews, RingView, ViewEvent};
use carom_proto::{Event, Message, NodeId, SendOptions};

use crate::command::NodeCommand;
use crate::error::PublishError;
use crate::group::Group;
use crate::published::Published;

/// An ordered group whose members share a state that follows from the messages: every member
/// applies the same messages in the same order, so all have the same.
///
/// A member that joins is given the state by one that has it, as it is at the view that lets the
/// member in; what is ordered after that view is kept until the state is there. So the application
/// has to do what [`SharedState::recv`] says, in order, and nothing else:
///
/// | it says | the application |
/// |---|---|
/// | [`Shared::Message`] | applies the message to its state |
/// | [`Shared::Give`] | calls [`SharedState::give`] with its state as it is now |
/// | [`Shared::Take`] | makes this its state |
/// | [`Shared::Forget`] | has no state any more: the others have gone on without this node |
/// | [`Shared::NotGiven`] | joins again if it wants the state: this is the end of the group here |
///
/// The state exists since one member [founded](SharedState::founding) it. All others join, those
/// that come back too: one that finds nobody waits, and does not begin another state. All members
/// must use the group in this way: it writes before each message what it is.
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
    view: Option<ViewName>,
    members: Vec<Process>,
    /// Pieces of the state that is on its way.
    pieces: BytesMut,
    /// What was ordered since the view, while the state is on its way.
    since: VecDeque<Message>,
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

/// A view's name, the same for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ViewName {
    epoch: u32,
    creator: Process,
    version: u32,
}

/// What a message is; it stands before all else in it.
const APPLICATION: u8 = 0;
const PIECE: u8 = 1;
const LAST_PIECE: u8 = 2;
/// Bytes before a piece of the state: what it is, and the view.
const PIECE_HEAD: usize = 1 + 4 + 8 + 4 + 4;

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
    /// [`SharedState::recv`]. If others failed to or a view has changed meanwhile it is asked for
    /// again.
    ///
    /// # Errors
    /// The group is closed.
    pub async fn give(&self, state: &[u8]) -> Result<(), PublishError> {
        let Some(view) = self.sharing().view else { return Ok(()) };
        let room = self.group.payload_limit() - PIECE_HEAD;
        let mut pieces = state.chunks(room).peekable();
        loop {
            let piece = pieces.next().unwrap_or_default();
            let kind = if pieces.peek().is_some() { PIECE } else { LAST_PIECE };
            drop(self.group.publish_async(view.put_before(kind, piece)).await?);
            if kind == LAST_PIECE {
                return Ok(());
            }
        }
    }

    /// What the application has to do next; `None` once the group is closed. On any async runtime.
    pub async fn recv(&self) -> Option<Shared> {
        loop {
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
            Event::Message(message) => self.on_message(message),
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

    fn on_message(&mut self, mut message: Message) {
        match message.payload.try_get_u8() {
            Ok(APPLICATION) if self.has_state => self.told.push_back(Shared::Message(message)),
            Ok(APPLICATION) if self.view.is_some() => self.keep(message),
            Ok(kind @ (PIECE | LAST_PIECE)) => self.on_piece(kind == LAST_PIECE, message.payload),
            _ => tracing::warn!(sender = %message.sender, "not a message of a shared state"),
        }
    }

    /// Keeps a message until the state is there that it follows.
    fn keep(&mut self, message: Message) {
        self.since_bytes += size_of::<Message>() + message.payload.len();
        self.since.push_back(message);
        if self.since_bytes <= self.limit_bytes {
            return;
        }
        let (messages, bytes) = (self.since.len(), self.since_bytes);
        *self = Self { told: std::mem::take(&mut self.told), is_over: true, ..Self::default() };
        self.told.push_back(Shared::NotGiven { messages, bytes });
    }

    /// A piece of the state as of a view; one that is over does not count, another is on its way.
    fn on_piece(&mut self, is_last: bool, mut payload: Bytes) {
        if ViewName::take_from(&mut payload).is_none_or(|view| Some(view) != self.view) {
            return;
        }
        if !self.has_state {
            self.pieces.extend_from_slice(&payload);
        }
        if !is_last {
            return;
        }
        // From here on all members of the view have it.
        self.holders = self.members.iter().copied().collect();
        if !std::mem::replace(&mut self.has_state, true) {
            self.told.push_back(Shared::Take(std::mem::take(&mut self.pieces).freeze()));
            self.told.extend(self.since.drain(..).map(Shared::Message));
            self.since_bytes = 0;
        }
    }

    fn on_view(&mut self, event: &ViewEvent, own: NodeId) {
        let members = [&event.joined, &event.left, &event.failed];
        let is_of_locks = members.into_iter().all(|changed| changed.is_empty());
        if is_of_locks && self.view.is_some_and(|view| view.is_in(event.view.epoch)) {
            // The members are the same, and the state under way is as of the view before.
            return;
        }
        self.view = Some(ViewName::of(&event.view));
        self.members = event.view.processes().collect();
        self.is_alone &= self.members.len() == 1;
        // What was ordered before is a part of the state that is as of this view.
        (self.since, self.since_bytes) = (VecDeque::new(), 0);
        self.pieces.clear();
        let Some(this) = self.members.iter().copied().find(|it| it.node == own) else { return };
        if std::mem::take(&mut self.is_founder) {
            self.has_state = true;
            self.holders = BTreeSet::from([this]);
        }
        if !self.has_state {
            return;
        }
        let members = &self.members;
        self.holders.retain(|holder| members.contains(holder));
        let all_have_it = members.iter().all(|member| self.holders.contains(member));
        if !all_have_it && self.holders.first() == Some(&this) {
            self.told.push_back(Shared::Give);
        }
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

impl ViewName {
    /// Whether this is a view of that ring.
    fn is_in(self, epoch: Epoch) -> bool {
        (self.epoch, self.creator) == (epoch.version, epoch.creator)
    }

    fn of(view: &RingView) -> Self {
        let RingView { epoch, version, .. } = view;
        Self { epoch: epoch.version, creator: epoch.creator, version: *version }
    }

    fn put_before(self, kind: u8, piece: &[u8]) -> Bytes {
        let mut out = BytesMut::with_capacity(PIECE_HEAD + piece.len());
        out.put_u8(kind);
        out.put_u32(self.epoch);
        out.put_u64(self.creator.node.0);
        out.put_u32(self.creator.life);
        out.put_u32(self.version);
        out.put_slice(piece);
        out.freeze()
    }

    fn take_from(from: &mut Bytes) -> Option<Self> {
        let epoch = from.try_get_u32().ok()?;
        let node = NodeId(from.try_get_u64().ok()?);
        let creator = Process { node, life: from.try_get_u32().ok()? };
        Some(Self { epoch, creator, version: from.try_get_u32().ok()? })
    }
}

/// Bytes of messages that are kept while the state is on its way.
const SINCE_BYTES: usize = 256 << 20;
