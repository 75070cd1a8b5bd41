//! The handle of a node.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use carom_proto::{NodeId, Time};

use crate::alarms::{Sleep, before};
use crate::blocking::within;
use crate::builder::Builder;
use crate::command::NodeCommand;
use crate::error::JoinGroupError;
use crate::group::{Group, GroupParts};
use crate::home::Home;
use crate::outgoing::ReadyList;
use crate::profile::Profile;
use crate::status::{Notice, Status};

/// A node: one running instance of Carom, with its own sockets and its groups.
///
/// One node per process is enough for any number of groups, and allows repairs to use all of its
/// traffic. Dropping the node closes it.
pub struct Node {
    shared: Arc<NodeShared>,
}

/// State that the handles of a node share with each other and with the driver.
pub(crate) struct NodeShared {
    pub(crate) home: Arc<Home>,
    pub(crate) parts: NodeParts,
}

/// Parts of a node that its host leaves with the handles.
pub(crate) struct NodeParts {
    pub(crate) ready: Arc<ReadyList>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) settled: Arc<AtomicBool>,
    pub(crate) endpoint: Arc<CurrentEndpoint>,
    /// `true` while the membership service is unreachable.
    pub(crate) away: Arc<AtomicBool>,
    /// Closes when the node has settled or is closed.
    pub(crate) settling: Receiver<()>,
    /// Status at the start, returned when the driver no longer runs.
    pub(crate) first_status: Status,
}

/// Current endpoint of a node, which can change.
#[derive(Debug)]
pub(crate) struct CurrentEndpoint(Mutex<SocketAddr>);

#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Told>);

#[derive(Debug, Default)]
struct Told {
    latest: VecDeque<Notice>,
    /// Number of earlier notices that are no longer kept.
    forgotten: usize,
}

impl Node {
    /// Returns the default settings of a new node.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(shared: NodeShared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// Returns the node's id: random for each start, unless set with [`Builder::node_id`].
    pub fn id(&self) -> NodeId {
        self.shared.parts.first_status.id
    }

    /// Returns the current endpoint of the node: the address of its interface, and its unicast
    /// port.
    pub fn endpoint(&self) -> SocketAddr {
        self.shared.parts.endpoint.get()
    }

    /// Returns the time of the node's clock.
    ///
    /// On real sockets it counts nanoseconds since the Unix epoch and never steps back. In a
    /// simulated world it is the world's time.
    pub fn now(&self) -> Time {
        self.shared.home.now()
    }

    /// Waits for `span` of the node's clock, on any async runtime.
    ///
    /// In a simulated world this takes no real time. It ends early only if the node's driver has
    /// stopped.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.shared.sleep(span)
    }

    /// Joins the group called `name`.
    ///
    /// Blocks for at most two seconds until the node has settled, so that settings that conflict
    /// with those of the group's members are reported here. With a membership service
    /// ([`Builder::control`]) it blocks until the service has confirmed the join. For an ordered
    /// group it blocks for at most two seconds until the ring has formed; a ring that waits for its
    /// quorum forms later.
    ///
    /// # Errors
    /// The settings are out of bounds or conflict with those of the group; seeds were given and
    /// none answered within three seconds; the membership service has answered none of this node's
    /// joins for five seconds; the node is closed.
    ///
    /// # Panics
    /// On a simulated node: see [`Node::join_async`].
    #[track_caller]
    pub fn join(&self, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
        self.shared.home.must_not_block("Node::join", "join_async");
        let answer = self.ask_to_join(name, profile);
        self.joined(answer.recv_blocking().unwrap_or(Err(JoinGroupError::Closed)))
    }

    /// Like [`Node::join`], but on any async runtime. If the future is dropped before it completes,
    /// the group is left again.
    ///
    /// # Errors
    /// See [`Node::join`].
    pub async fn join_async(&self, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
        let joining = Joining { answer: self.ask_to_join(name, profile), shared: &self.shared };
        self.joined(joining.answer.recv().await.unwrap_or(Err(JoinGroupError::Closed)))
    }

    /// Waits until the node has settled, and returns `true` if it has.
    ///
    /// A node has settled when it has learned what its contacts know, or has found that it is the
    /// first node, and when it knows how it reaches the other nodes.
    ///
    /// # Panics
    /// On a simulated node: see [`Node::settled_async`].
    #[track_caller]
    pub fn settled(&self, timeout: Duration) -> bool {
        self.shared.home.must_not_block("Node::settled", "settled_async");
        if !self.is_settled() {
            // The channel never carries a value. It only closes.
            let _ = within(timeout, self.shared.parts.settling.recv());
        }
        self.is_settled()
    }

    /// Like [`Node::settled`], but on any async runtime.
    pub async fn settled_async(&self, timeout: Duration) -> bool {
        if !self.is_settled() {
            let settling = self.shared.parts.settling.recv();
            let _ = before(self.shared.sleep(timeout), settling).await;
        }
        self.is_settled()
    }

    /// Returns a snapshot of the node's state and counters.
    ///
    /// # Panics
    /// On a simulated node: see [`Node::status_async`].
    #[track_caller]
    pub fn status(&self) -> Status {
        self.shared.home.must_not_block("Node::status", "status_async");
        let answer = self.shared.ask(|reply| NodeCommand::Status { reply });
        answer.recv_blocking().unwrap_or_else(|_| self.last_status())
    }

    /// Like [`Node::status`], but on any async runtime.
    pub async fn status_async(&self) -> Status {
        let answer = self.shared.ask(|reply| NodeCommand::Status { reply });
        answer.recv().await.unwrap_or_else(|_| self.last_status())
    }

    /// Returns the latest 256 notices for the user, oldest first. A notice that repeats the one
    /// before it is stored once.
    pub fn notices(&self) -> Vec<Notice> {
        self.notices_since(0).0
    }

    /// Like [`Node::notices`], but skips the first `known` of all notices ever reported.
    ///
    /// Also returns the total number of notices so far, to be passed to the next call. A call
    /// without new notices is cheap.
    pub fn notices_since(&self, known: usize) -> (Vec<Notice>, usize) {
        self.shared.parts.notices.since(known)
    }

    /// Returns `true` if the membership service ([`Builder::control`]) has been unreachable for
    /// about 3 s.
    ///
    /// The node continues with the members that it knew last; nodes that join or fail meanwhile are
    /// not noticed. It becomes `false` again when the views match those of the service. It is
    /// always `false` without a service.
    pub fn is_away(&self) -> bool {
        self.shared.parts.away.load(Ordering::SeqCst)
    }

    /// Closes the node and notifies the other nodes.
    ///
    /// Its groups are closed, which wakes all tasks that wait on them. Blocks for at most 3 s while
    /// members confirm what was sent and rings release the node.
    pub fn close(self) {
        drop(self);
    }

    pub(crate) fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> NodeCommand) -> Receiver<T> {
        self.shared.ask(command)
    }

    pub(crate) fn tell(&self, command: NodeCommand) {
        self.shared.home.tell(command);
    }

    #[track_caller]
    pub(crate) fn must_not_block(&self, call: &str, instead: &str) {
        self.shared.home.must_not_block(call, instead);
    }

    fn is_settled(&self) -> bool {
        self.shared.parts.settled.load(Ordering::SeqCst)
    }

    /// Returns the status of a node whose driver has stopped.
    fn last_status(&self) -> Status {
        Status { endpoint: self.endpoint(), ..self.shared.parts.first_status.clone() }
    }

    fn ask_to_join(
        &self,
        name: &str,
        profile: Profile,
    ) -> Receiver<Result<GroupParts, JoinGroupError>> {
        let name = name.to_owned();
        self.shared.ask(|reply| NodeCommand::Join { name, profile, reply })
    }

    fn joined(&self, answer: Result<GroupParts, JoinGroupError>) -> Result<Group, JoinGroupError> {
        Ok(Group::new(answer?, Arc::clone(&self.shared)))
    }
}

impl Drop for Node {
    /// Waits until the node is gone, unless it cannot make progress while this thread waits.
    fn drop(&mut self) {
        let gone = self.shared.ask(|reply| NodeCommand::Close { reply });
        if self.shared.home.moves_without_caller() {
            let _ = gone.recv_blocking();
        }
    }
}

/// A pending join of a task. Without it, a join whose task gives up would leave the node in the
/// group.
struct Joining<'a> {
    answer: Receiver<Result<GroupParts, JoinGroupError>>,
    shared: &'a NodeShared,
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        // From here on the host finds the channel closed, and leaves the group itself.
        self.answer.close();
        if let Ok(Ok(parts)) = self.answer.try_recv() {
            self.shared.home.tell(NodeCommand::Leave { shared: parts.shared });
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl NodeShared {
    pub(crate) fn new(home: Home, parts: NodeParts) -> Self {
        Self { home: Arc::new(home), parts }
    }

    /// Sends a command to the node. If the node is closed, the returned channel is closed without a
    /// reply.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> NodeCommand) -> Receiver<T> {
        let (reply, answer) = async_channel::bounded(1);
        self.home.tell(command(reply));
        answer
    }

    pub(crate) fn sleep(&self, span: Duration) -> Sleep {
        Sleep::new(Arc::clone(&self.home), self.home.now() + span)
    }
}

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.latest.back() == Some(&notice) {
            return;
        }
        tracing::info!("{}", notice.text);
        if told.latest.len() == MAX_NOTICES {
            told.latest.pop_front();
            told.forgotten += 1;
        }
        told.latest.push_back(notice);
    }

    fn since(&self, known: usize) -> (Vec<Notice>, usize) {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let others = told.latest.iter().skip(known.saturating_sub(told.forgotten));
        (others.cloned().collect(), told.forgotten + told.latest.len())
    }
}

impl CurrentEndpoint {
    pub(crate) fn new(endpoint: SocketAddr) -> Self {
        Self(Mutex::new(endpoint))
    }

    pub(crate) fn set(&self, endpoint: SocketAddr) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = endpoint;
    }

    pub(crate) fn get(&self) -> SocketAddr {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Maximum number of notices that are kept.
const MAX_NOTICES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{NotSafe, PublishError};
    use std::task::{Context, Waker};

    #[test]
    fn panic_of_the_driver_closes_all_handles_instead_of_hanging() {
        let node = Node::builder().interface("127.0.0.1").port(0).static_members(Vec::new());
        let node = node.multicast_port(19_999).start().expect("a node");
        let group = node.join("prices", Profile::time_critical()).expect("a group");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| group.recv_blocking());
            let sleeping = scope.spawn(|| within(Duration::MAX, node.sleep(Duration::MAX)));
            node.shared.home.tell(NodeCommand::Panic);
            assert_eq!(sleeping.join().expect("it ends"), Some(()));
            assert_eq!(waiting.join().expect("it ends"), None);
        });
        // The thread closes the queues of its groups one after another.
        while group.publish("too late").is_ok() {}
        assert_eq!(group.publish("too late").err(), Some(PublishError::Closed));
        assert_eq!(group.confirm(Duration::MAX), Err(NotSafe::Closed));
        let again = node.join("others", Profile::time_critical());
        assert!(matches!(again, Err(JoinGroupError::Closed)));
        assert_eq!(node.status().id, node.id());
    }

    #[test]
    fn notices_keep_each_event_and_collapse_only_repeats() {
        let notices = Notices::default();
        let tell = |text: &str| notices.add(Notice::plain(text));
        let texts = |known| -> Vec<String> {
            notices.since(known).0.into_iter().map(|it| it.text).collect()
        };
        ["A to B", "A to B", "B to A", "A to B"].into_iter().for_each(tell);
        assert_eq!(texts(0), ["A to B", "B to A", "A to B"]);
        assert_eq!(texts(2), ["A to B"]);
        (0..2 * MAX_NOTICES).for_each(|number| tell(&format!("{number}")));
        assert_eq!(texts(0).len(), MAX_NOTICES);
        let all = notices.since(0).1;
        assert_eq!(all, 3 + 2 * MAX_NOTICES);
        assert_eq!(texts(all), [""; 0]);
        tell("the group is closed");
        assert_eq!(texts(all), ["the group is closed"]);
    }

    #[test]
    fn alarm_of_a_dropped_sleep_is_removed() {
        let node = Node::builder().interface("127.0.0.1").port(0).static_members(Vec::new());
        let node = node.multicast_port(19_998).start().expect("a node");
        let alarms = node.shared.home.alarms();
        let span = |secs| Duration::from_secs(secs);
        let mut sleeps = vec![Box::pin(node.sleep(span(3600))), Box::pin(node.sleep(span(1800)))];
        for sleep in &mut sleeps {
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let later = node.now() + span(1800);
        assert!(alarms.next().expect("two alarms") <= later);
        drop(sleeps.pop());
        assert!(alarms.next().expect("one alarm") > later);
        drop(sleeps.pop());
        assert_eq!(alarms.next(), None);
    }
}
