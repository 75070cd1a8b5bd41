//! Connections between machines: opened in one round trip, ordered and lossless, and delayed when
//! the network loses segments or is partitioned.

use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::{Class, Endpoint};

use super::{Due, LINKED, World};
use crate::HostIx;
use crate::links::{LinkIx, MAX_OPENED, Piece, RECEIVE_BYTES, Side, Standing};
use crate::machine::Machine;

impl<M: Machine> World<M> {
    /// Executes a connection command of the machine on `host`.
    pub(super) fn carry(&mut self, host: HostIx, command: LinkCommand) {
        match command {
            LinkCommand::Open { link, to } => self.open_link(host, link, to),
            LinkCommand::Send { link, bytes } => {
                let Some((ix, side)) = self.links.find(host, link) else { return };
                let limit = self.links.buffer;
                let Some(link) = self.links.get_mut(ix) else { return };
                if link.pipe_mut(side).is_full_with(bytes.len(), limit) {
                    link.pipe_mut(side).clear();
                    self.push(ix, side, Piece::End(LinkEnd::Broken));
                    self.fail_soon(ix, side, LinkEnd::TooSlow);
                } else {
                    self.push(ix, side, Piece::Bytes(bytes));
                }
            }
            LinkCommand::Close { link } => {
                let Some((ix, side)) = self.links.find(host, link) else { return };
                self.push(ix, side, Piece::End(LinkEnd::ByPeer));
                self.links.end(ix, side);
            }
        }
    }

    fn open_link(&mut self, host: HostIx, id: LinkId, to: Endpoint) {
        self.counters.links_asked += 1;
        let has_room = self.links.opened_by(host) < MAX_OPENED;
        let found = HostIx::at(to).filter(|to| to.0 < self.topology().hosts());
        let ix = self.links.add(host, id, found.unwrap_or(host));
        if found.is_none() || !has_room {
            self.counters.links_refused += 1;
            let why = if has_room { LinkEnd::Unreachable } else { LinkEnd::NoRoom };
            return self.fail_soon(ix, Side::Opener, why);
        }
        self.push(ix, Side::Opener, Piece::Open);
    }

    /// Reports the end of a connection to the machine at this end, after the present call.
    fn fail_soon(&mut self, ix: LinkIx, side: Side, why: LinkEnd) {
        let Some(link) = self.links.get_mut(ix) else { return };
        link.end_mut(side).take_in(Piece::End(why));
        self.agenda.add(self.now, Due::Read(ix, side));
    }

    /// Sends a piece from this side of the connection.
    fn push(&mut self, ix: LinkIx, side: Side, piece: Piece) {
        let Some(link) = self.links.get_mut(ix) else { return };
        let (from, to) = (link.host(side), link.host(side.other()));
        let bytes = piece.payload().len() + SEGMENT_BYTES;
        let rng = &mut self.links.rng;
        let latency = self.network.latency(from, to, bytes as u64, rng);
        let slowness = self.hosts[to.0 as usize].slowness;
        // Without a route the latency is zero, and each attempt to deliver fails.
        let at = self.now + latency.unwrap_or_default() + slowness;
        if let Some(link) = self.links.get_mut(ix) {
            link.pipe_mut(side).push(at, piece);
        }
        self.schedule_stream(ix, side);
    }

    fn schedule_stream(&mut self, ix: LinkIx, side: Side) {
        let Some(link) = self.links.get_mut(ix) else { return };
        let pipe = link.pipe_mut(side);
        let Some(at) = pipe.next_at().filter(|_| !pipe.is_due) else { return };
        pipe.is_due = true;
        self.agenda.add(at.max(self.now), Due::Stream(ix, side));
    }

    /// Tries to deliver the pieces of this side that are due.
    pub(super) fn on_stream(&mut self, ix: LinkIx, side: Side) {
        let now = self.now;
        let Some(link) = self.links.get_mut(ix) else { return };
        let (from, to) = (link.host(side), link.host(side.other()));
        let is_full = link.end_mut(side.other()).unread_bytes >= RECEIVE_BYTES;
        let pipe = link.pipe_mut(side);
        pipe.is_due = false;
        if is_full {
            // Delivery resumes when the receiving machine reads.
            return;
        }
        if pipe.next_at().is_none_or(|at| at > now) {
            return self.schedule_stream(ix, side);
        }
        if !self.gets_through(from, to) {
            self.counters.link_stalls += 1;
            return self.on_stall(ix, side);
        }
        if let Some(link) = self.links.get_mut(ix) {
            link.pipe_mut(side).succeed();
        }
        loop {
            let Some(link) = self.links.get_mut(ix) else { return };
            let Some(piece) = link.pipe_mut(side).next_by(now) else { break };
            self.arrive(ix, side.other(), piece);
        }
        self.read_link(ix, side.other());
        self.schedule_stream(ix, side);
    }

    /// Returns `true` if a segment and its acknowledgment would cross the network now.
    fn gets_through(&mut self, from: HostIx, to: HostIx) -> bool {
        let is_cut = self.cuts.between(from, to) || self.cuts.between(to, from);
        let rng = &mut self.links.rng;
        let is_connected = self.network.latency(from, to, 0, rng).is_some();
        let may_be_lost = self.lossy.concerns(Class::Control);
        let host = self.host_mut(to);
        let is_lost = may_be_lost && host.loss.drops_next();
        is_connected && !is_cut && !is_lost && !host.is_dark
    }

    fn on_stall(&mut self, ix: LinkIx, side: Side) {
        let now = self.now;
        let Some(link) = self.links.get_mut(ix) else { return };
        let is_unheard_of = link.is_unheard_of();
        let pipe = link.pipe_mut(side);
        if let Some(again) = pipe.fail(now) {
            pipe.is_due = true;
            return self.agenda.add(again, Due::Stream(ix, side));
        }
        pipe.succeed();
        pipe.clear();
        let why = if is_unheard_of { LinkEnd::Unreachable } else { LinkEnd::Broken };
        if link.end_mut(side).standing == Standing::Gone {
            // This side needs no report. The other side finds out when it sends.
            return;
        }
        link.end_mut(side).take_in(Piece::End(why));
        self.read_link(ix, side);
    }

    /// Handles a piece that reaches the host of this side.
    fn arrive(&mut self, ix: LinkIx, side: Side, piece: Piece) {
        let Some(link) = self.links.get_mut(ix) else { return };
        let host = link.host(side);
        match (link.end_mut(side).standing, &piece) {
            (Standing::Unknown, Piece::Open) => {
                let tenant = self.hosts[host.0 as usize].tenant.as_ref();
                if tenant.is_some_and(|tenant| tenant.machine.listens()) {
                    self.counters.links_opened += 1;
                    self.links.accept(ix);
                    if let Some(link) = self.links.get_mut(ix) {
                        link.end_mut(side).take_in(piece);
                    }
                    self.push(ix, side, Piece::Opened);
                } else {
                    self.counters.links_refused += 1;
                    self.push(ix, side, Piece::End(LinkEnd::Refused));
                }
            }
            (Standing::Known(_), _) => link.end_mut(side).take_in(piece),
            // The connection is closed here. The sender learns it from the reply.
            (_, Piece::Bytes(_)) => {
                link.pipe_mut(side).clear();
                self.push(ix, side, Piece::End(LinkEnd::Broken));
            }
            _ => {}
        }
    }

    /// Passes the machine at this end the pieces that have arrived, unless it is paused.
    pub(super) fn read_link(&mut self, ix: LinkIx, side: Side) {
        let now = self.now;
        while let Some(link) = self.links.get_mut(ix) {
            let host = link.host(side);
            let from = link.host(side.other());
            let Standing::Known(id) = link.end_mut(side).standing else { break };
            if self.hosts[host.0 as usize].is_paused {
                break;
            }
            let Some(piece) = link.end_mut(side).next_unread() else { break };
            self.note(LINKED, host, piece.payload());
            if let Piece::End(why) = &piece {
                let is_normal = matches!(why, LinkEnd::ByPeer | LinkEnd::Refused | LinkEnd::NoRoom);
                self.counters.links_broken += u64::from(!is_normal);
                self.links.end(ix, side);
            }
            let place = self.host_mut(host);
            let local = place.clock.show(now);
            if let Some(tenant) = &mut place.tenant {
                let machine = &mut tenant.machine;
                match &piece {
                    Piece::Open => machine.handle_accepted(local, id, from.endpoint()),
                    Piece::Opened => machine.handle_link(local, id, LinkEvent::Opened),
                    Piece::Bytes(bytes) => {
                        machine.handle_link(local, id, LinkEvent::Received(bytes));
                        self.counters.link_bytes += bytes.len() as u64;
                    }
                    Piece::End(why) => {
                        machine.handle_link(local, id, LinkEvent::Closed { why: *why });
                    }
                }
            }
            self.drain(host);
        }
    }

    /// Reads the connections of `host` after a pause, and resumes delivery to them.
    pub(super) fn read_links_at(&mut self, host: HostIx) {
        for (ix, side) in self.links.at(host) {
            self.read_link(ix, side);
            self.schedule_stream(ix, side.other());
        }
    }

    /// Ends the connections of the machine on `host`, which is gone.
    ///
    /// With probability 1/2 its host closes them in order, after the data already sent. Otherwise
    /// the host is gone too, and the peers find out when they send.
    pub(super) fn break_links_at(&mut self, host: HostIx) {
        let links = self.links.at(host);
        let is_dark = !links.is_empty() && self.links.rng.chance(0.5);
        self.host_mut(host).is_dark = is_dark;
        for (ix, side) in links {
            if is_dark {
                if let Some(link) = self.links.get_mut(ix) {
                    link.pipe_mut(side).clear();
                }
            } else {
                self.push(ix, side, Piece::End(LinkEnd::ByPeer));
            }
            self.links.end(ix, side);
        }
    }
}

/// Headers of Ethernet, IPv4 and TCP, preamble and interframe gap.
const SEGMENT_BYTES: usize = 78;
