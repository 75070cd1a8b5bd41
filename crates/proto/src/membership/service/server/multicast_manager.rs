use super::context::Context;
use super::sessions::Sessions;
use crate::Rng;
use crate::membership::link::LinkId;
use crate::membership::service::protocol::frame::{Frame, Member};
use crate::rdcm::Network;
use crate::rdcm::manager::LinkState;
use crate::rdcm::manager::messages::{Answer, Command, Refusal, Request};
use crate::rdcm::manager::service::{LinkReportError, ManagerService};

#[derive(Debug)]
pub(super) struct MulticastManager {
    pub(super) service: Option<ManagerService>,
}

impl MulticastManager {
    pub(super) fn new(network: Option<Network>, installs_trees: bool, rng: &mut Rng) -> Self {
        let mut service = network.map(|network| ManagerService::new(network, rng.next_u64()));
        if let Some(service) = service.as_mut().filter(|_| installs_trees) {
            service.install_trees();
        }
        Self { service }
    }

    pub(super) fn report_link(
        &mut self,
        cx: &mut Context,
        sessions: &Sessions,
        ends: [&str; 2],
        state: LinkState,
    ) -> Option<Result<usize, LinkReportError>> {
        let manager = self.service.as_mut()?;
        let reported = manager.report_link(cx.now, ends, state);
        self.send_answers(cx, sessions);
        Some(reported)
    }

    pub(super) fn on_request(
        &mut self,
        cx: &mut Context,
        sessions: &Sessions,
        here: bool,
        (link, member): (LinkId, Member),
        request: &[u8],
    ) {
        if let Some(manager) = self.service.as_mut().filter(|_| here) {
            manager.handle(cx.now, member.node, member.endpoint, request);
            self.send_answers(cx, sessions);
        } else {
            refuse(cx, link, request);
        }
    }

    pub(super) fn give_up(&mut self, cx: &mut Context, sessions: &Sessions) {
        if let Some(manager) = &mut self.service {
            manager.give_up();
        }
        self.send_answers(cx, sessions);
    }

    fn send_answers(&mut self, cx: &mut Context, sessions: &Sessions) {
        let Some(manager) = &mut self.service else { return };
        while let Some((node, answer)) = manager.poll_answer() {
            if let Some(link) = sessions.link(node) {
                cx.outbox.send(link, &Frame::Managed(answer));
            }
        }
    }
}

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
