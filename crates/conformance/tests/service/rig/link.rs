//! Connections from nodes to registry processes: they open, carry frames in order, and end.

use std::time::Duration;

use carom_proto::Time;
use carom_proto::membership::link::{LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::{Frame, FrameReader};

use super::{Happening, Process, Rig, endpoint};

pub(super) struct Link {
    pub(super) node: usize,
    pub(super) process: usize,
    pub(super) at_node: LinkId,
    /// `None` until it is accepted.
    pub(super) at_process: Option<LinkId>,
    pub(super) is_open: bool,
    pub(super) to_node: FrameReader,
    pub(super) last_arrivals: [Time; 2],
}

impl Rig {
    pub(super) fn connect(&mut self, link: usize) {
        let process = self.links[link].process;
        let from = endpoint(self.links[link].node);
        let Process { server, accepted, .. } = &mut self.processes[process];
        let Some(server) = server else {
            self.links[link].is_open = false;
            return self.schedule(link, 1, Happening::EndAtNode(link, LinkEnd::Refused));
        };
        *accepted += 1;
        let accepted = LinkId(*accepted);
        server.handle_accepted(self.now, accepted, from);
        self.links[link].at_process = Some(accepted);
        self.schedule(link, 1, Happening::Opened(link));
        self.drain_process(process);
    }

    pub(super) fn at_process(&mut self, link: usize, event: LinkEvent<'_>) {
        let Link { process, at_process, is_open, .. } = self.links[link];
        let is_end = matches!(event, LinkEvent::Closed { .. });
        let Some(server) = self.processes[process].server.as_mut().filter(|_| is_open || is_end)
        else {
            return;
        };
        let Some(at_process) = at_process else { return };
        self.links[link].is_open &= !is_end;
        server.handle_link(self.now, at_process, event);
        self.drain_process(process);
    }

    /// Asserts that an acknowledged join is in the store.
    pub(super) fn look_at(&mut self, link: usize, bytes: &[u8]) {
        let Link { node, to_node, .. } = &mut self.links[link];
        to_node.push(bytes);
        while let Some(frame) = to_node.next_frame().expect("a process sends frames") {
            if let Frame::Joined { group, .. } = frame {
                let node = self.nodes[*node].id;
                let is_stored = self.store.was_member(group, node);
                assert!(is_stored, "{node:?} was told of a join that is not stored");
            }
        }
    }

    pub(super) fn link_of(&self, node: usize, at_node: LinkId) -> Option<usize> {
        let mut links = self.links.iter();
        links.rposition(|link| link.node == node && link.at_node == at_node)
    }

    /// Schedules an event after those sent before in the same direction: 0 to the process, 1 to the
    /// node.
    pub(super) fn schedule(&mut self, link: usize, direction: usize, happening: Happening) {
        let delay = Duration::from_micros(50 + self.rng.below(300) as u64);
        let last = &mut self.links[link].last_arrivals[direction];
        let at = (*last).max(self.now + delay);
        *last = at;
        self.push(at, happening);
    }
}
