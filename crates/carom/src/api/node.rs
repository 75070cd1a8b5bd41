use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use async_channel::Receiver;
use carom_proto::{NodeId, Time};

use super::group::Group;
use super::handle::NodeHandle;
use crate::shared::commands::NodeCommand;
use crate::shared::error::JoinGroupError;
use crate::shared::group::GroupParts;
use crate::shared::notices::Notice;
use crate::shared::profile::Profile;
use crate::shared::sleep::before;
use crate::shared::status::Status;

/// A node: one running instance of Carom, with its own sockets and its groups.
///
/// One node per process is enough for any number of groups, and lets repairs cover all traffic of
/// the process. Dropping the node closes it and, outside a simulated world, blocks the thread until
/// it is closed. In async code, await [`Node::close`] instead.
pub struct Node {
    handle: NodeHandle,
    is_closed: bool,
}

impl Node {
    pub(crate) fn new(handle: NodeHandle) -> Self {
        Self { handle, is_closed: false }
    }

    pub(crate) fn handle(&self) -> &NodeHandle {
        &self.handle
    }

    /// Returns the node's id, which is random at each start unless it is set with
    /// [`Builder::node_id`](crate::Builder::node_id).
    pub fn id(&self) -> NodeId {
        self.handle.state.id()
    }

    /// Returns the node's current address and unicast port.
    pub fn endpoint(&self) -> SocketAddr {
        self.handle.state.endpoint()
    }

    /// Returns the time of the node's clock, in nanoseconds since the Unix epoch, or the time of
    /// the simulated world. This time never steps back.
    pub fn now(&self) -> Time {
        self.handle.driver.now()
    }

    /// Waits for the duration `span` by the node's clock. The wait ends early only if the node's
    /// driver has stopped.
    pub fn sleep(&self, span: Duration) -> impl Future<Output = ()> + Send + use<> {
        self.handle.sleep(span)
    }

    /// Joins the group `name`.
    ///
    /// Waits for at most two seconds, or three with seeds, until the node has settled, so that
    /// conflicts with the group's members are reported, and until the ring of an ordered group has
    /// formed. A ring that lacks its quorum forms after the call has returned. With a registry, the
    /// call first waits for the registry's confirmation. Dropping the future leaves the group.
    ///
    /// # Errors
    /// Returns an error if the settings are invalid or conflict with those of the group or of the
    /// node, the node has already joined the group, seeds were given but no other node was found
    /// within three seconds, the registry has not answered for five seconds, or the node is closed.
    pub async fn join(&self, name: &str, profile: Profile) -> Result<Group, JoinGroupError> {
        let name = name.to_owned();
        let answer = self.handle.call(|reply| NodeCommand::Join { name, profile, reply });
        let join = PendingJoin { answer, node: &self.handle };
        let parts = join.answer.recv().await.unwrap_or(Err(JoinGroupError::Closed))?;
        Ok(Group::new(parts, self.handle.clone()))
    }

    /// Waits for at most `timeout` until the node has settled, and returns `true` if it has.
    ///
    /// A settled node has learned what its contacts know, or is the first node, and knows its
    /// paths.
    pub async fn settled(&self, timeout: Duration) -> bool {
        if !self.handle.state.is_settled() {
            before(self.handle.sleep(timeout), self.handle.state.settling()).await;
        }
        self.handle.state.is_settled()
    }

    /// Returns a snapshot of the node's state and counters.
    pub async fn status(&self) -> Status {
        let answer = self.handle.call(|reply| NodeCommand::Status { reply });
        answer.recv().await.unwrap_or_else(|_| self.handle.state.first_status())
    }

    /// Returns the latest 256 notices, oldest first, without consecutive duplicates.
    pub fn notices(&self) -> Vec<Notice> {
        self.notices_since(0).0
    }

    /// Like [`Node::notices`], but skips the first `known` of all notices ever reported.
    ///
    /// Also returns the number of all notices ever reported, to be passed to the next call.
    pub fn notices_since(&self, known: usize) -> (Vec<Notice>, usize) {
        self.handle.state.notices.since(known)
    }

    /// Returns `true` if the registry has been unreachable for about 3 s.
    ///
    /// In the meantime, nodes that join or fail go unnoticed. The result becomes `false` again once
    /// the views match those of the registry. It is always `false` without a registry.
    pub fn is_away(&self) -> bool {
        self.handle.state.is_away()
    }

    /// Closes the node and notifies the other nodes.
    ///
    /// All groups are closed, which wakes all waiting tasks. The call waits for at most 3 s while
    /// members confirm the messages of this node and rings release it.
    pub async fn close(mut self) {
        let gone = self.request_close();
        let _ = gone.recv().await;
    }

    fn request_close(&mut self) -> Receiver<()> {
        self.is_closed = true;
        self.handle.call(|reply| NodeCommand::Close { reply })
    }
}

impl Drop for Node {
    /// Closes the node. Waits until it is closed, unless this thread drives the node.
    fn drop(&mut self) {
        if !self.is_closed {
            let gone = self.request_close();
            if self.handle.driver.runs_without_caller() {
                let _ = gone.recv_blocking();
            }
        }
    }
}

/// A guard that leaves the group if the task that joins it gives up.
struct PendingJoin<'a> {
    answer: Receiver<Result<GroupParts, JoinGroupError>>,
    node: &'a NodeHandle,
}

impl Drop for PendingJoin<'_> {
    fn drop(&mut self) {
        // From here on, the runtime finds the channel closed, and leaves the group itself.
        self.answer.close();
        if let Ok(Ok(parts)) = self.answer.try_recv() {
            let shared = parts.shared;
            self.node.call(|reply| NodeCommand::Leave { shared, reply });
        }
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("id", &self.id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::block_on::block_on;
    use crate::shared::error::{ConfirmError, PublishError};
    use std::task::{Context, Waker};

    #[test]
    fn panic_of_the_driver_closes_all_handles_instead_of_hanging() {
        let node = Node::builder().interface("127.0.0.1").port(0).static_members(Vec::new());
        let node = node.multicast_port(19_999).start().expect("a node");
        let group = block_on(node.join("prices", Profile::time_critical())).expect("a group");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| block_on(group.recv()));
            let sleeping = scope.spawn(|| block_on(node.sleep(Duration::MAX)));
            node.handle.driver.send(NodeCommand::Panic);
            sleeping.join().expect("it ends");
            assert_eq!(waiting.join().expect("it ends"), None);
        });
        // The thread closes the queues of its groups one after another.
        while block_on(group.publish("too late")).is_ok() {}
        assert_eq!(block_on(group.publish("too late")).err(), Some(PublishError::Closed));
        assert_eq!(block_on(group.confirm(Duration::MAX)), Err(ConfirmError::Closed));
        let again = block_on(node.join("others", Profile::time_critical()));
        assert!(matches!(again, Err(JoinGroupError::Closed)));
        assert_eq!(block_on(node.status()).id, node.id());
    }

    #[test]
    fn timer_that_no_task_waits_for_any_more_is_removed() {
        let node = Node::builder().interface("127.0.0.1").port(0).static_members(Vec::new());
        let node = node.multicast_port(19_998).start().expect("a node");
        let timers = node.handle.driver.timers();
        let span = |secs| Duration::from_secs(secs);
        let mut sleeps = vec![Box::pin(node.sleep(span(3600))), Box::pin(node.sleep(span(1800)))];
        for sleep in &mut sleeps {
            assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        let later = node.now() + span(1800);
        assert!(timers.next().expect("two timers") <= later);
        drop(sleeps.pop());
        assert!(timers.next().expect("one timer") > later);
        drop(sleeps.pop());
        assert_eq!(timers.next(), None);
    }
}
