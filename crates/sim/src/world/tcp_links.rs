//! Connections between machines. They are opened in one round trip, ordered and lossless. When the
//! network loses segments or is partitioned, they are delayed, and break after a while.

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkId};
use carom_proto::{Class, Endpoint, Rng};

use super::context::{Context, Due, Kind};
use super::hosts::Hosts;
use crate::connections::{
    ConnectionIx, Connections, EndState, MAX_OPENED, RECEIVE_BYTES, Segment, Side,
};
use crate::ids::HostIx;
use crate::machine::Machine;
use crate::network::Network;

pub(super) struct TcpLinks {
    connections: Connections,
    buffer: usize,
    rng: Rng,
}

pub(super) struct Environment<'a, M> {
    pub(super) cx: &'a mut Context,
    pub(super) network: &'a mut Network,
    pub(super) hosts: &'a mut Hosts<M>,
}

pub(super) struct Arrived {
    pub(super) host: HostIx,
    pub(super) link: LinkId,
    pub(super) from: HostIx,
    pub(super) segment: Segment,
}

impl TcpLinks {
    pub(super) fn new(buffer: usize, seed: u64) -> Self {
        Self { connections: Connections::default(), buffer, rng: Rng::new(seed) }
    }

    pub(super) fn execute<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        host: HostIx,
        command: LinkCommand,
    ) {
        match command {
            LinkCommand::Open { link, to } => self.open(env, host, link, to),
            LinkCommand::Send { link, bytes } => {
                let Some((ix, side)) = self.connections.find(host, link) else { return };
                let Some(link) = self.connections.get_mut(ix) else { return };
                if link.pipe_mut(side).is_full_with(bytes.len(), self.buffer) {
                    link.pipe_mut(side).clear();
                    self.push(env, ix, side, Segment::End(LinkEnd::Broken));
                    self.fail_soon(env.cx, ix, side, LinkEnd::TooSlow);
                } else {
                    self.push(env, ix, side, Segment::Bytes(bytes));
                }
            }
            LinkCommand::Close { link } => {
                let Some((ix, side)) = self.connections.find(host, link) else { return };
                self.push(env, ix, side, Segment::End(LinkEnd::ByPeer));
                self.connections.end(ix, side);
            }
        }
    }

    fn open<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        host: HostIx,
        id: LinkId,
        to: Endpoint,
    ) {
        env.cx.counters.links_asked += 1;
        let has_room = self.connections.opened_by(host) < MAX_OPENED;
        let found = HostIx::at(to).filter(|to| env.hosts.has(*to));
        let ix = self.connections.add(host, id, found.unwrap_or(host));
        if found.is_none() || !has_room {
            env.cx.counters.links_refused += 1;
            let why = if has_room { LinkEnd::Unreachable } else { LinkEnd::NoRoom };
            return self.fail_soon(env.cx, ix, Side::Opener, why);
        }
        self.push(env, ix, Side::Opener, Segment::Open);
    }

    /// Reports the end of a connection to the machine at this end, after the current call.
    fn fail_soon(&mut self, cx: &mut Context, ix: ConnectionIx, side: Side, why: LinkEnd) {
        let Some(link) = self.connections.get_mut(ix) else { return };
        link.end_mut(side).receive(Segment::End(why));
        cx.schedule(cx.now, Due::Read(ix, side));
    }

    fn push<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        ix: ConnectionIx,
        side: Side,
        segment: Segment,
    ) {
        let Some(link) = self.connections.get_mut(ix) else { return };
        let (from, to) = (link.host(side), link.host(side.other()));
        let bytes = segment.payload().len() + SEGMENT_BYTES;
        let latency = env.network.latency(from, to, bytes as u64, &mut self.rng);
        let slowness = env.hosts[to].slowness;
        // Without a route the latency is zero, and each attempt to deliver fails.
        let at = env.cx.now + latency.unwrap_or_default() + slowness;
        link.pipe_mut(side).push(at, segment);
        self.schedule(env.cx, ix, side);
    }

    pub(super) fn schedule(&mut self, cx: &mut Context, ix: ConnectionIx, side: Side) {
        let Some(link) = self.connections.get_mut(ix) else { return };
        let pipe = link.pipe_mut(side);
        let Some(at) = pipe.next_at().filter(|_| !pipe.is_due) else { return };
        pipe.is_due = true;
        cx.schedule(at.max(cx.now), Due::Stream(ix, side));
    }

    /// Delivers the due segments of this side. Returns the side that can read, if there is one.
    pub(super) fn deliver<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        ix: ConnectionIx,
        side: Side,
    ) -> Option<Side> {
        let now = env.cx.now;
        let link = self.connections.get_mut(ix)?;
        let (from, to) = (link.host(side), link.host(side.other()));
        let is_full = link.end_mut(side.other()).unread_bytes >= RECEIVE_BYTES;
        let pipe = link.pipe_mut(side);
        pipe.is_due = false;
        if is_full {
            // Delivery resumes when the receiving machine reads.
            return None;
        }
        if pipe.next_at().is_none_or(|at| at > now) {
            self.schedule(env.cx, ix, side);
            return None;
        }
        if !self.gets_through(env, from, to) {
            env.cx.counters.link_stalls += 1;
            return self.on_stall(env.cx, ix, side);
        }
        if let Some(link) = self.connections.get_mut(ix) {
            link.pipe_mut(side).succeed();
        }
        while let Some(link) = self.connections.get_mut(ix) {
            let Some(segment) = link.pipe_mut(side).next_by(now) else { break };
            self.on_segment(env, ix, side.other(), segment);
        }
        Some(side.other())
    }

    fn gets_through<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        from: HostIx,
        to: HostIx,
    ) -> bool {
        let Environment { cx, network, hosts } = env;
        let is_cut = cx.cuts.between(from, to) || cx.cuts.between(to, from);
        let is_connected = network.latency(from, to, 0, &mut self.rng).is_some();
        let host = &mut hosts[to];
        let is_lost = cx.may_lose(Class::Control) && host.loss.drops_next();
        is_connected && !is_cut && !is_lost && !host.is_dark
    }

    fn on_stall(&mut self, cx: &mut Context, ix: ConnectionIx, side: Side) -> Option<Side> {
        let link = self.connections.get_mut(ix)?;
        let is_unheard_of = link.is_unheard_of();
        let pipe = link.pipe_mut(side);
        if let Some(again) = pipe.fail(cx.now) {
            pipe.is_due = true;
            cx.schedule(again, Due::Stream(ix, side));
            return None;
        }
        pipe.succeed();
        pipe.clear();
        let why = if is_unheard_of { LinkEnd::Unreachable } else { LinkEnd::Broken };
        if link.end_mut(side).state == EndState::Gone {
            // This side needs no report. The other side learns of it when it sends.
            return None;
        }
        link.end_mut(side).receive(Segment::End(why));
        Some(side)
    }

    fn on_segment<M: Machine>(
        &mut self,
        env: &mut Environment<'_, M>,
        ix: ConnectionIx,
        side: Side,
        segment: Segment,
    ) {
        let Some(link) = self.connections.get_mut(ix) else { return };
        let host = link.host(side);
        match (link.end_mut(side).state, &segment) {
            (EndState::Unknown, Segment::Open) => {
                let tenant = env.hosts[host].tenant.as_ref();
                if tenant.is_some_and(|tenant| tenant.machine.listens()) {
                    env.cx.counters.links_opened += 1;
                    self.connections.accept(ix);
                    if let Some(link) = self.connections.get_mut(ix) {
                        link.end_mut(side).receive(segment);
                    }
                    self.push(env, ix, side, Segment::Opened);
                } else {
                    env.cx.counters.links_refused += 1;
                    self.push(env, ix, side, Segment::End(LinkEnd::Refused));
                }
            }
            (EndState::Known(_), _) => link.end_mut(side).receive(segment),
            // The connection is closed at this end. The sender learns of it from the reply.
            (_, Segment::Bytes(_)) => {
                link.pipe_mut(side).clear();
                self.push(env, ix, side, Segment::End(LinkEnd::Broken));
            }
            _ => {}
        }
    }

    pub(super) fn read<M>(
        &mut self,
        cx: &mut Context,
        hosts: &Hosts<M>,
        ix: ConnectionIx,
        side: Side,
    ) -> Option<Arrived> {
        let connection = self.connections.get_mut(ix)?;
        let (host, from) = (connection.host(side), connection.host(side.other()));
        let EndState::Known(link) = connection.end_mut(side).state else { return None };
        if hosts[host].is_paused {
            return None;
        }
        let segment = connection.end_mut(side).next_unread()?;
        cx.note(Kind::Linked, host, segment.payload());
        cx.counters.link_bytes += segment.payload().len() as u64;
        if let Segment::End(why) = &segment {
            let is_normal = matches!(why, LinkEnd::ByPeer | LinkEnd::Refused | LinkEnd::NoRoom);
            cx.counters.links_broken += u64::from(!is_normal);
            self.connections.end(ix, side);
        }
        Some(Arrived { host, link, from, segment })
    }

    pub(super) fn at(&self, host: HostIx) -> Vec<(ConnectionIx, Side)> {
        self.connections.at(host)
    }

    /// Ends the connections of the removed machine on `host`.
    ///
    /// With probability 1/2, the host closes them in order, after the data already sent. Otherwise,
    /// the host is down too, and a peer learns that its connection has ended only when it sends.
    pub(super) fn break_at<M: Machine>(&mut self, env: &mut Environment<'_, M>, host: HostIx) {
        let links = self.connections.at(host);
        let is_dark = !links.is_empty() && self.rng.chance(0.5);
        env.hosts[host].is_dark = is_dark;
        for (ix, side) in links {
            if is_dark {
                if let Some(link) = self.connections.get_mut(ix) {
                    link.pipe_mut(side).clear();
                }
            } else {
                self.push(env, ix, side, Segment::End(LinkEnd::ByPeer));
            }
            self.connections.end(ix, side);
        }
    }
}

/// Size of the Ethernet, IPv4 and TCP headers, the preamble and the interframe gap.
const SEGMENT_BYTES: usize = 78;
