//! One node inside the driver: its sockets, its engines, its queues.

mod commands;
mod events;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use async_channel::Sender as Latch;
use carom_proto::node::Node;
use carom_proto::wire::{Header, Protocol};
use carom_proto::{GroupId, NodeId, Time, Transmit, Wakeup};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};

use crate::address_book::AddressBook;
use crate::clock::Clock;
use crate::hosted_group::{HostedGroup, Progress};
use crate::joiner::Joiner;
use crate::node::Notices;
use crate::outgoing::ReadyList;
use crate::paths::Paths;
use crate::receive::{From, Landing, Receiver};
use crate::routes::{Routes, Surroundings};
use crate::send::{Multicast, Run, Sender};
use crate::sockets::Sockets;
use crate::status::{Notice, Stats, Status};
use crate::waiting::{PendingConfirm, PendingJoin};

/// All that one node needs, in the hands of the driver's thread. A turn drains the sockets before
/// anything else, then lets the timers, the publishers and the engines have their turn, and sends.
pub(crate) struct Host {
    pub(crate) node: Node,
    pub(crate) sockets: Sockets,
    pub(crate) receiver: Receiver,
    pub(crate) sender: Sender,
    pub(crate) routes: Routes,
    pub(crate) paths: Paths,
    pub(crate) book: AddressBook,
    pub(crate) joiner: Joiner,
    pub(crate) seeds: Vec<String>,
    pub(crate) ready: Arc<ReadyList>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) settled: Arc<AtomicBool>,
    pub(crate) settling: Option<Latch<()>>,
    pub(crate) first_status: Status,
    pub(crate) queue_events: usize,
    pub(crate) state: State,
}

/// What changes while a host runs.
#[derive(Debug, Default)]
pub(crate) struct State {
    groups: BTreeMap<GroupId, HostedGroup>,
    /// Groups whose queues have something, to be served in turn.
    active: VecDeque<GroupId>,
    /// Groups whose first message the engine did not take.
    held: Vec<GroupId>,
    joins: Vec<PendingJoin>,
    confirms: Vec<PendingConfirm>,
    /// Counters of groups that were left.
    left: Stats,
    has_met_anyone: bool,
    is_readable: [bool; 2],
    is_writable_awaited: bool,
    /// A command or a writable socket asks for a turn.
    is_called: bool,
    token: usize,
}

impl Host {
    /// Registers the sockets; `token` is the first of two.
    pub(crate) fn attach(
        &mut self,
        now: Time,
        registry: &Registry,
        token: usize,
    ) -> io::Result<()> {
        self.state.token = token;
        self.state.is_called = true;
        let unicast = self.sockets.unicast.raw_fd();
        registry.register(&mut SourceFd(&unicast), Token(token), Interest::READABLE)?;
        if let Some(multicast) = &self.sockets.multicast {
            let fd = multicast.raw_fd();
            registry.register(&mut SourceFd(&fd), Token(token + 1), Interest::READABLE)?;
        }
        // What the membership knows from the start comes out with the first call.
        self.node.handle_timeout(now);
        self.take_events(now);
        Ok(())
    }

    /// A socket can be read or written: the unicast one (0) or the multicast one (1).
    pub(crate) fn on_socket(&mut self, which: usize, is_writable: bool) {
        self.state.is_readable[which] = true;
        self.state.is_called = true;
        if is_writable && which == 0 {
            self.sender.resume(&self.sockets.unicast);
        }
    }

    /// When the next turn is due; `now` if there is something to do already.
    pub(crate) fn due(&self, now: Time) -> Option<Time> {
        let state = &self.state;
        if state.is_readable.contains(&true) || !state.active.is_empty() {
            return Some(now);
        }
        let joins = state.joins.iter().map(|it| it.deadline);
        let waiting = joins.chain(state.confirms.iter().map(|it| it.deadline)).min();
        let engines = Wakeup::earlier(self.node.poll_timeout(), self.paths.poll_timeout());
        waiting.into_iter().chain(engines.map(|it| it.at)).min()
    }

    /// Whether there is something to do at `now`.
    pub(crate) fn has_work(&self, now: Time) -> bool {
        let is_due = self.due(now).is_some_and(|due| due <= now);
        is_due || self.state.is_called || !self.ready.is_empty()
    }

    /// Does whatever there is to do.
    pub(crate) fn turn(&mut self, clock: &Clock, landing: &mut Landing, registry: &Registry) {
        self.state.is_called = false;
        self.receive(landing);
        let now = clock.now();
        self.handle_datagrams(now);
        self.handle_timeouts(now);
        self.publish(now);
        // The application has a message before its sender is told so: confirmed means there.
        self.take_events(now);
        self.transmit();
        self.answer_those_who_wait(now);
        self.transmit();
        self.await_room_to_send(registry);
    }

    fn receive(&mut self, landing: &mut Landing) {
        let mut has_read = false;
        let unicast = (From::Unicast, Some(&self.sockets.unicast));
        let multicast = (From::Multicast, self.sockets.multicast.as_ref());
        for (from, socket) in [unicast, multicast] {
            let is_readable = &mut self.state.is_readable[from as usize];
            let Some(socket) = socket else { continue };
            // The multicast socket is read after every repair, whatever the poll says of it.
            let follows = from == From::Multicast && has_read;
            if !(follows || *is_readable) {
                continue;
            }
            has_read = true;
            match self.receiver.drain(from, socket, landing) {
                Ok(has_more) => *is_readable = has_more,
                Err(error) => {
                    *is_readable = false;
                    let text = format!("a socket cannot be read: {error}");
                    self.notices.add(Notice::plain(text));
                }
            }
        }
    }

    fn handle_datagrams(&mut self, now: Time) {
        while let Some((source, datagram)) = self.receiver.pop() {
            match Header::peek(datagram) {
                Some((Protocol::Path, _)) => self.paths.handle_datagram(now, source, datagram),
                _ => self.node.handle_datagram(now, source, datagram),
            }
        }
    }

    fn handle_timeouts(&mut self, now: Time) {
        if self.node.poll_timeout().is_some_and(|due| due.at <= now) {
            self.node.handle_timeout(now);
        }
        self.paths.handle_timeout(now);
    }

    /// Serves the groups in turn, a share each, up to a limit after which the sockets come first
    /// again.
    fn publish(&mut self, now: Time) {
        let state = &mut self.state;
        self.ready.take(&mut state.active);
        state.active.extend(state.held.drain(..));
        let mut budget = MESSAGES_PER_TURN;
        while budget > 0 {
            let Some(group) = state.active.pop_front() else { break };
            let Some(hosted) = state.groups.get_mut(&group) else { continue };
            let (taken, progress) = hosted.publish(&mut self.node, now, SHARE.min(budget));
            budget -= taken;
            match progress {
                Progress::Empty => {}
                Progress::More => state.active.push_back(group),
                Progress::Held => state.held.push(group),
            }
        }
    }

    /// Sends all that the engines, the membership and the paths have to send.
    pub(crate) fn transmit(&mut self) {
        if self.paths.take_change() {
            self.routes.forget();
        }
        let max_datagrams = self.sockets.unicast.state().max_gso_segments();
        while let Some(Transmit { destination, .. }) = self.next_datagram() {
            if let Some(run) = self.sender.add(destination, max_datagrams) {
                self.send(run);
            }
        }
        if let Some(run) = self.sender.finish() {
            self.send(run);
        }
    }

    fn next_datagram(&mut self) -> Option<Transmit> {
        let out = self.sender.buffer();
        self.node.poll_transmit(out).or_else(|| self.paths.poll_transmit(out))
    }

    fn send(&mut self, run: Run) {
        let around = Surroundings { node: &self.node, paths: &self.paths, book: &self.book };
        let route = self.routes.of(run.destination, &around);
        let sent = self.sender.send(&self.sockets.unicast, run, route);
        if sent == Multicast::Unreachable {
            self.paths.multicast_failed();
            self.routes.forget();
            self.notices.add(Notice {
                text: format!(
                    "multicast leads nowhere on {}: members get unicast copies",
                    self.first_status.interface
                ),
                fix: Some(format!(
                    "allow it in the firewall, or ip route add 224.0.0.0/4 dev {}",
                    self.first_status.interface
                )),
            });
        }
    }

    /// Asks to be told when the unicast socket can be written only while something waits for it:
    /// it can be almost always.
    fn await_room_to_send(&mut self, registry: &Registry) {
        let is_blocked = self.sender.is_blocked();
        if is_blocked == self.state.is_writable_awaited {
            return;
        }
        let write = is_blocked.then_some(Interest::WRITABLE);
        let interest = write.map_or(Interest::READABLE, |write| Interest::READABLE | write);
        let fd = self.sockets.unicast.raw_fd();
        match registry.reregister(&mut SourceFd(&fd), Token(self.state.token), interest) {
            Ok(()) => self.state.is_writable_awaited = is_blocked,
            Err(error) => tracing::warn!("cannot wait for room to send: {error}"),
        }
    }

    fn members_of(&self, group: GroupId) -> &[NodeId] {
        self.node.view(group).map_or(&[], |view| view.members())
    }
}

/// Messages that a group may publish before it is another group's turn: enough to leave together.
const SHARE: usize = 32;
/// Messages that are published before the sockets are drained again.
const MESSAGES_PER_TURN: usize = 256;
