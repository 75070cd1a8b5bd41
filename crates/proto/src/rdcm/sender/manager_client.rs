//! Client of a stream's multicast manager, which runs in the registry or inside the sender.
//!
//! The sender uses the service as long as it answers. Places do not change until an answer has
//! arrived. The sender uses its own manager when the service is lost, does not answer, or refuses.
//! Each manager begins with epochs above all that were assigned before.

use core::time::Duration;

use super::super::context::Context;
use super::super::manager::messages::{Answer, Command, MAX_JOINING, Refusal, Request};
use super::super::manager::tree::MulticastTree;
use super::super::manager::{LinkTiming, ManagerError, MulticastManager, PlaceChange};
use crate::{GroupId, NodeId, Time};

#[derive(Debug)]
pub(crate) struct ManagerClient {
    group: GroupId,
    at: Location,
    epoch: u32,
    retry_at: Option<Time>,
}

#[derive(Debug)]
enum Location {
    Local(Box<MulticastManager>),
    Service(Opening),
}

/// Location of the multicast manager of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManagedBy {
    /// The manager runs in the registry.
    Service,
    /// The manager runs inside the sender.
    Sender,
}

#[derive(Clone, Debug)]
pub(crate) enum ManagerEvent {
    Reachable,
    Unreachable,
    Answer(Answer),
}

#[derive(Clone, Copy, Debug)]
struct Opening {
    opening: u32,
    number: u32,
    answer_by: Option<Time>,
}

impl ManagerClient {
    pub(super) fn new(cx: &mut Context<'_>) -> Result<Self, ManagerError> {
        let group = cx.group;
        let at = Location::Local(Box::new(local_manager(cx, 0)?));
        let mut client = Self { group, at, epoch: 0, retry_at: None };
        if cx.manager.is_reachable {
            client.use_service(cx, &[]);
        }
        Ok(client)
    }

    pub(crate) fn managed_by(&self) -> ManagedBy {
        match self.at {
            Location::Local(_) => ManagedBy::Sender,
            Location::Service(_) => ManagedBy::Service,
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(&self.at, Location::Service(Opening { answer_by: Some(_), .. }))
    }

    pub(crate) fn tree(&self) -> Option<&MulticastTree> {
        match &self.at {
            Location::Local(manager) => manager.trees.tree(self.group),
            Location::Service(_) => None,
        }
    }

    pub(super) fn use_service(&mut self, cx: &mut Context<'_>, receivers: &[NodeId]) {
        let opening = cx.manager.next_opening();
        self.at = Location::Service(Opening { opening, number: 0, answer_by: None });
        self.retry_at = None;
        let most_children = cx.config.most_children() as u16;
        self.request(cx, Command::Open { above: self.epoch, most_children });
        self.join(cx, receivers);
    }

    pub(super) fn use_local(&mut self, cx: &mut Context<'_>, receivers: &[NodeId]) {
        if let Location::Service(_) = self.at {
            self.request(cx, Command::Close);
        }
        cx.counters.manager_lost += 1;
        match local_manager(cx, self.epoch) {
            Ok(mut manager) => {
                manager.join(&cx.config.network, self.group, receivers);
                self.at = Location::Local(Box::new(manager));
            }
            // This cannot occur: the sender had a place in the same network when the stream began.
            Err(error) => tracing::error!(group = %self.group, %error, "no local manager"),
        }
    }

    fn request(&mut self, cx: &mut Context<'_>, command: Command) {
        let Location::Service(Opening { opening, number, answer_by }) = &mut self.at else {
            return;
        };
        *number = number.wrapping_add(1);
        answer_by.get_or_insert(cx.now + ANSWER_WITHIN);
        cx.counters.manager_asked += 1;
        let (group, opening, number) = (self.group, *opening, *number);
        cx.manager.push(Request { group, opening, number, command });
    }

    pub(super) fn join(&mut self, cx: &mut Context<'_>, nodes: &[NodeId]) {
        match &mut self.at {
            Location::Local(manager) => manager.join(&cx.config.network, self.group, nodes),
            Location::Service(_) => {
                for nodes in nodes.chunks(MAX_JOINING) {
                    let nodes = nodes.iter().map(|node| cx.manager.with_address(*node)).collect();
                    self.request(cx, Command::Join(nodes));
                }
            }
        }
    }

    pub(super) fn leave(&mut self, cx: &mut Context<'_>, node: NodeId) {
        match &mut self.at {
            Location::Local(manager) => manager.leave(&cx.config.network, self.group, node),
            Location::Service(_) => self.request(cx, Command::Leave(node)),
        }
    }

    /// Reports a cut. Returns `true` if links are now assumed dead. The service answers later.
    pub(super) fn on_cut(&mut self, cx: &mut Context<'_>, ring: u32, successor: NodeId) -> bool {
        match &mut self.at {
            Location::Local(manager) => manager.report(cx.now, self.group, ring, successor) > 0,
            Location::Service(_) => {
                self.request(cx, Command::Cut { ring, successor });
                false
            }
        }
    }

    pub(crate) fn close(&mut self, cx: &mut Context<'_>) {
        self.request(cx, Command::Close);
    }

    pub(super) fn poll(&mut self) -> Vec<PlaceChange> {
        let Location::Local(manager) = &mut self.at else { return Vec::new() };
        let changes: Vec<PlaceChange> = core::iter::from_fn(|| manager.poll()).collect();
        self.record_epochs(&changes);
        changes
    }

    fn record_epochs(&mut self, changes: &[PlaceChange]) {
        let epochs = changes.iter().filter_map(|it| it.place.as_ref()).map(|place| place.epoch);
        self.epoch = epochs.fold(self.epoch, u32::max);
    }

    /// Processes an answer of the service. Returns `None` for an answer to another opening.
    pub(super) fn on_answer(
        &mut self,
        answer: Answer,
    ) -> Option<Result<Vec<PlaceChange>, Refusal>> {
        let Location::Service(opening) = &mut self.at else { return None };
        if opening.opening != answer.opening {
            return None;
        }
        if opening.number == answer.number {
            opening.answer_by = None;
        }
        self.record_epochs(answer.result.as_deref().unwrap_or(&[]));
        Some(answer.result)
    }

    pub(super) fn retry_later(&mut self, now: Time) {
        self.retry_at = Some(now + RETRY_AFTER);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<ManagedBy> {
        match &mut self.at {
            Location::Local(manager) => {
                manager.trees.handle_timeout(now);
                let is_due = self.retry_at.is_some_and(|at| at <= now);
                is_due.then(|| {
                    self.retry_at = None;
                    ManagedBy::Service
                })
            }
            Location::Service(opening) => {
                opening.answer_by.is_some_and(|at| at <= now).then_some(ManagedBy::Sender)
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Time {
        let due = match &self.at {
            Location::Local(manager) => {
                let times = [manager.trees.poll_timeout(), self.retry_at];
                times.into_iter().flatten().min()
            }
            Location::Service(opening) => opening.answer_by,
        };
        due.unwrap_or(Time::MAX)
    }
}

fn local_manager(cx: &mut Context<'_>, above: u32) -> Result<MulticastManager, ManagerError> {
    let timing =
        LinkTiming { retry_after: cx.config.retry_link_after, settle: cx.config.cut_after * 2 };
    let network = &cx.config.network;
    let seed = cx.rng.next_u64();
    let mut manager = MulticastManager::new(network, cx.config.most_children(), timing, seed);
    manager.open(network, cx.group, cx.node, above)?;
    Ok(manager)
}

/// Time to wait for an answer. It is shorter than the time to take the first places.
const ANSWER_WITHIN: Duration = Duration::from_millis(300);
const RETRY_AFTER: Duration = Duration::from_secs(10);

#[cfg(test)]
#[path = "manager_client_tests.rs"]
mod tests;
