//! Access to the multicast manager in a control process.

use super::super::frame::{Frame, MANAGER_PARTITION};
use super::Server;
use crate::membership::link::LinkId;
use crate::rdcm::manager::messages::{Answer, Command, Refusal, Request};
use crate::rdcm::manager::service::ManagerService;
use crate::{NodeId, Time};

impl Server {
    /// Returns the multicast manager, if this process knows the network.
    pub fn manager(&self) -> Option<&ManagerService> {
        self.manager.as_ref()
    }

    /// Passes a request of a node to the manager.
    pub(super) fn on_manage(&mut self, now: Time, link: LinkId, request: &[u8]) {
        let Some(member) = self.sessions.member_on(link) else { return };
        let is_here = self.is_owned(MANAGER_PARTITION);
        match self.manager.as_mut().filter(|_| is_here) {
            Some(manager) => manager.handle(now, member.node, member.endpoint, request),
            None => return self.refuse_to_manage(link, request),
        }
        self.send_managed();
    }

    /// Refuses a request, because the manager is at another process or does not exist.
    fn refuse_to_manage(&mut self, link: LinkId, request: &[u8]) {
        let Ok(Request { group, opening, number, command }) = Request::decode(request) else {
            self.counters.manage_malformed += 1;
            return;
        };
        if command != Command::Close {
            let result = Err(Refusal::NoManager);
            let answer = Answer { group, opening, number, result };
            self.outbox.send(link, &Frame::Managed(answer.encode()));
        }
    }

    /// Sends the manager's answers to the nodes that requested them.
    fn send_managed(&mut self) {
        let Some(manager) = &mut self.manager else { return };
        while let Some((node, answer)) = manager.poll_answer() {
            let session = self.sessions.nodes.get(&node);
            if let Some(link) = session.and_then(|session| session.link) {
                self.outbox.send(link, &Frame::Managed(answer));
            }
        }
    }

    /// Removes the state of a node that has ended, or whose connection has.
    pub(super) fn forget_managed(&mut self, node: NodeId) {
        if let Some(manager) = &mut self.manager {
            manager.forget(node);
        }
    }

    pub(super) fn give_up_manager(&mut self, partition: u16) {
        if partition == MANAGER_PARTITION
            && let Some(manager) = &mut self.manager
        {
            manager.give_up();
            self.send_managed();
        }
    }

    pub(super) fn time_manager(&mut self, now: Time) {
        if let Some(manager) = &mut self.manager {
            manager.handle_timeout(now);
        }
    }
}
