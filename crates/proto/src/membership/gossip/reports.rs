use alloc::collections::BTreeMap;

use super::context::{Context, Timer};
use super::identity::Identity;
use super::paths::Paths;
use super::peers::Peers;
use crate::{NodeId, ViewChangeKind};

#[derive(Default)]
pub(super) struct Reports(BTreeMap<NodeId, Report>);

#[derive(Clone, Copy, Debug)]
pub(super) struct Report {
    pub(super) identity: Identity,
    pub(super) kind: ViewChangeKind,
    queries_left: u32,
}

const QUERIES: u32 = 4;

impl Reports {
    pub(super) fn add(&mut self, cx: &mut Context, identity: Identity, kind: ViewChangeKind) {
        let report = self.0.entry(identity.node).or_insert_with(|| {
            cx.timers.set(Timer::Report(identity.node), cx.now);
            Report { identity, kind, queries_left: QUERIES }
        });
        if kind == ViewChangeKind::Left {
            report.kind = kind;
        }
    }

    pub(super) fn refute(&mut self, cx: &mut Context, sender: NodeId) {
        if self.0.remove(&sender).is_some() {
            cx.timers.cancel(Timer::Report(sender));
            cx.counters.reports_refuted += 1;
        }
    }

    pub(super) fn on_timeout(
        &mut self,
        cx: &mut Context,
        peers: &Peers,
        paths: &Paths,
        (me, node): (Identity, NodeId),
    ) -> Option<Report> {
        let report = self.0.get_mut(&node)?;
        let Some(left) = report.queries_left.checked_sub(1) else { return self.0.remove(&node) };
        report.queries_left = left;
        if let Some(known) = peers.identity(node) {
            paths.send_query(cx, me, known.endpoint);
        }
        cx.timers.set(Timer::Report(node), cx.now + cx.config.challenge_period());
        None
    }

    pub(super) fn cancel(&mut self, cx: &mut Context, node: NodeId) {
        self.0.remove(&node);
        cx.timers.cancel(Timer::Report(node));
    }
}
