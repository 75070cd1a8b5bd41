use core::ops::{Index, IndexMut};
use std::collections::BTreeMap;

use carom_proto::{Class, Destination, NodeId};

use super::context::{Context, Due};
use crate::host::{Host, Tenant};
use crate::ids::HostIx;
use crate::machine::Machine;
use crate::tree::Goal;

pub(super) struct Hosts<M> {
    all: Vec<Host<M>>,
    nodes: BTreeMap<NodeId, HostIx>,
}

impl<M: Machine> Hosts<M> {
    pub(super) fn new(all: Vec<Host<M>>) -> Self {
        Self { all, nodes: BTreeMap::new() }
    }

    pub(super) fn get_mut(&mut self, host: HostIx) -> Option<&mut Host<M>> {
        self.all.get_mut(host.0 as usize)
    }

    pub(super) fn has(&self, host: HostIx) -> bool {
        (host.0 as usize) < self.all.len()
    }

    pub(super) fn goal(&self, destination: &Destination) -> Option<Goal> {
        match destination {
            Destination::Group(group) | Destination::Tree(group, _) => Some(Goal::Group(*group)),
            Destination::Node(node) => self.nodes.get(node).copied().map(Goal::Host),
            Destination::Endpoint(endpoint) => {
                HostIx::at(*endpoint).filter(|host| self.has(*host)).map(Goal::Host)
            }
            Destination::Lan => Some(Goal::Everyone),
        }
    }

    /// Places a machine on a host without a machine.
    ///
    /// # Panics
    /// Panics if another machine has this id.
    pub(super) fn place(&mut self, ix: HostIx, id: NodeId, machine: M) {
        let earlier = self.nodes.insert(id, ix);
        assert!(earlier.is_none(), "node {id} already runs on {earlier:?}");
        let host = &mut self[ix];
        host.incarnation += 1;
        host.is_dark = false;
        host.tenant = Some(Tenant { id, machine });
    }

    pub(super) fn remove(&mut self, ix: HostIx) -> Option<Tenant<M>> {
        let tenant = self[ix].tenant.take()?;
        self.nodes.remove(&tenant.id);
        Some(tenant)
    }

    /// Returns and counts the reason why the host does not receive a datagram, if there is one.
    pub(super) fn refusal(
        &mut self,
        cx: &mut Context,
        source: HostIx,
        class: Class,
        ix: HostIx,
    ) -> Option<&'static str> {
        let host = &mut self[ix];
        if cx.cuts.between(source, ix) {
            cx.counters.cut_off += 1;
            Some("partitioned")
        } else if host.tenant.is_none() {
            cx.counters.nobody_there += 1;
            Some("no node on the host")
        } else if cx.may_lose(class) && host.loss.drops_next() {
            cx.counters.lost_at_host += 1;
            Some("lost at the host")
        } else {
            None
        }
    }

    pub(super) fn serve_next(&mut self, cx: &mut Context, ix: HostIx) {
        let host = &mut self[ix];
        if let Some(done) = host.begin_service(cx.now) {
            cx.schedule(done, Due::Service(ix, host.incarnation));
        }
    }

    pub(super) fn schedule_wake(&mut self, cx: &mut Context, ix: HostIx) {
        if let Some(at) = self[ix].next_wake(cx.now) {
            cx.schedule(at, Due::Wake(ix));
        }
    }
}

impl<M> Index<HostIx> for Hosts<M> {
    type Output = Host<M>;

    fn index(&self, host: HostIx) -> &Host<M> {
        &self.all[host.0 as usize]
    }
}

impl<M> IndexMut<HostIx> for Hosts<M> {
    fn index_mut(&mut self, host: HostIx) -> &mut Host<M> {
        &mut self.all[host.0 as usize]
    }
}
