//! A node: the handle.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::Receiver;
use carom_proto::NodeId;

use crate::blocking::within;
use crate::builder::Builder;
use crate::command::{Command, NodeCommand};
use crate::driver::Driver;
use crate::error::JoinGroupError;
use crate::group::Group;
use crate::outgoing::ReadyList;
use crate::profile::Profile;
use crate::status::{Notice, Status};

/// A node of the network: its sockets, its place among the other nodes, its groups. A process
/// needs one, however many groups it is in, so that repairs can use all of its traffic. Dropping
/// it closes it.
pub struct Node {
    shared: Arc<NodeShared>,
}

/// What the handles of a node share with one another and with the driver.
pub(crate) struct NodeShared {
    pub(crate) key: usize,
    pub(crate) driver: Driver,
    pub(crate) ready: Arc<ReadyList>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) settled: Arc<AtomicBool>,
    /// Closes when the node has settled, or is closed.
    pub(crate) settling: Receiver<()>,
    /// The status at the start, for when there is nobody left to tell another one.
    pub(crate) first_status: Status,
}

/// The notices of a node so far, each once.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<Vec<Notice>>);

impl Node {
    /// Settings for a new node.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(shared: NodeShared) -> Self {
        Self { shared: Arc::new(shared) }
    }

    /// The node's id: random, and another one whenever the process starts.
    pub fn id(&self) -> NodeId {
        self.shared.first_status.id
    }

    /// Where the others reach this node: its interface's address and its unicast port.
    pub fn endpoint(&self) -> SocketAddr {
        self.shared.first_status.endpoint
    }

    /// Joins the group called `name`. Blocks until the node has found its place among the others,
    /// for two seconds at most, so that settings which contradict those of the group's members
    /// are an error here.
    ///
    /// # Errors
    /// The settings are out of bounds or contradict others; seeds were given and none answered
    /// within three seconds; the node is closed.
    pub fn join(&self, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
        let name = name.to_owned();
        let answer = self.shared.ask(|reply| NodeCommand::Join { name, profile, reply });
        let parts = answer.unwrap_or(Err(JoinGroupError::Closed))?;
        Ok(Group::new(parts, Arc::clone(&self.shared)))
    }

    /// Waits until the node has found its place among the others and knows how it reaches them;
    /// says whether it has.
    pub fn settled(&self, timeout: Duration) -> bool {
        if !self.shared.settled.load(Ordering::SeqCst) {
            // It closes without ever holding anything.
            let _ = within(timeout, self.shared.settling.recv());
        }
        self.shared.settled.load(Ordering::SeqCst)
    }

    /// The node as it is now.
    pub fn status(&self) -> Status {
        let answer = self.shared.ask(|reply| NodeCommand::Status { reply });
        answer.unwrap_or_else(|| self.shared.first_status.clone())
    }

    /// What the user should have read once, in the order in which it came up.
    pub fn notices(&self) -> Vec<Notice> {
        self.shared.notices.all()
    }

    /// Tells the others that this node stops, and stops it. Its groups are closed: whoever waits
    /// on them is woken.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.shared.driver.is_this_thread() {
            // Dropped by a task that the driver itself woke: it cannot wait for itself.
            let (reply, _) = sync_channel(1);
            self.shared.tell(NodeCommand::Close { reply });
        } else {
            self.shared.ask(|reply| NodeCommand::Close { reply });
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl NodeShared {
    /// Asks the driver, and waits for the answer; `None` if the node is closed.
    pub(crate) fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> NodeCommand) -> Option<T> {
        let (reply, answer) = sync_channel(1);
        self.tell(command(reply));
        // A command that nobody answers is dropped, and its reply with it.
        answer.recv().ok()
    }

    /// Tells the driver, if there still is one.
    pub(crate) fn tell(&self, command: NodeCommand) {
        self.driver.command(Command::Node { key: self.key, command });
    }

    pub(crate) fn wake(&self) {
        self.driver.wake();
    }
}

impl Notices {
    pub(crate) fn add(&self, notice: Notice) {
        let mut notices = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if notices.len() < MAX_NOTICES && !notices.contains(&notice) {
            tracing::info!("{}", notice.text);
            notices.push(notice);
        }
    }

    fn all(&self) -> Vec<Notice> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Notices are for reading once; beyond this nobody reads.
const MAX_NOTICES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PublishError;

    #[test]
    fn a_panic_of_the_driver_closes_everything_instead_of_leaving_it_hanging() {
        let node = Node::builder().interface("127.0.0.1").port(0).static_members(Vec::new());
        let node = node.multicast_port(19_999).start().expect("a node");
        let group = node.join("prices", Profile::time_critical()).expect("a group");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| group.recv_blocking());
            node.shared.tell(NodeCommand::Panic);
            assert_eq!(waiting.join().expect("it ends"), None);
        });
        assert_eq!(group.publish("too late"), Err(PublishError::Closed));
        assert!(group.confirm(Duration::MAX).expect_err("closed").closed);
        let again = node.join("others", Profile::time_critical());
        assert!(matches!(again, Err(JoinGroupError::Closed)));
        assert_eq!(node.status().id, node.id());
    }
}
