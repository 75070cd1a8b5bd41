//! The multicast manager in a registry process, and its requests and answers.

use super::context::Context;
use super::sessions::Sessions;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::{Frame, Member};
use crate::rdcm::Network;
use crate::rdcm::manager::messages::{Answer, Command, Refusal, Request};
use crate::rdcm::manager::service::ManagerService;
use crate::{NodeId, Rng, Time};

#[derive(Debug)]
pub(super) struct MulticastManager(Option<ManagerService>);

impl MulticastManager {
    pub(super) fn new(network: Option<Network>, rng: &mut Rng) -> Self {
        Self(network.map(|network| ManagerService::new(network, rng.next_u64())))
    }

    pub(super) fn service(&self) -> Option<&ManagerService> {
        self.0.as_ref()
    }

    /// Passes a request of a node to the manager. Refuses it if the manager is not `here`, but at
    /// another process.
    pub(super) fn on_request(
        &mut self,
        cx: &mut Context,
        sessions: &Sessions,
        here: bool,
        (link, member): (LinkId, Member),
        request: &[u8],
    ) {
        if let Some(manager) = self.0.as_mut().filter(|_| here) {
            manager.handle(cx.now, member.node, member.endpoint, request);
            self.send_answers(cx, sessions);
        } else {
            refuse(cx, link, request);
        }
    }

    /// Removes the state of a node that has ended, or whose connection has.
    pub(super) fn forget(&mut self, node: NodeId) {
        if let Some(manager) = &mut self.0 {
            manager.forget(node);
        }
    }

    /// Ends all requests, because another process runs the manager from now on.
    pub(super) fn give_up(&mut self, cx: &mut Context, sessions: &Sessions) {
        if let Some(manager) = &mut self.0 {
            manager.give_up();
        }
        self.send_answers(cx, sessions);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if let Some(manager) = &mut self.0 {
            manager.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.0.as_ref().and_then(ManagerService::poll_timeout)
    }

    pub(super) fn stats(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().flat_map(|manager| manager.counters().by_name())
    }

    fn send_answers(&mut self, cx: &mut Context, sessions: &Sessions) {
        let Some(manager) = &mut self.0 else { return };
        while let Some((node, answer)) = manager.poll_answer() {
            if let Some(link) = sessions.link(node) {
                cx.outbox.send(link, &Frame::Managed(answer));
            }
        }
    }
}

/// Refuses a request, because the manager is at another process or does not exist.
fn refuse(cx: &mut Context, link: LinkId, request: &[u8]) {
    let Ok(Request { group, opening, number, command }) = Request::decode(request) else {
        cx.counters.manage_malformed += 1;
        return;
    };
    if command != Command::Close {
        let result = Err(Refusal::NoManager);
        let answer = Answer { group, opening, number, result };
        cx.outbox.send(link, &Frame::Managed(answer.encode()));
    }
}
