mod fragmentation;
mod heartbeats;
mod own_stream;

use bytes::Bytes;

use super::config::Config;
use super::context::{Context, TimerKey};
use super::index::GroupIx;
use super::packet::symbol::{Fragment, Symbol};
use crate::{Confirmed, Event, NodeId, SendError, SendOptions, SeqNo, Slow};
use fragmentation::{Fragmenter, QueuedMessage};

pub(super) use own_stream::{OwnStream, Position};

#[derive(Debug)]
pub(super) struct Sender {
    streams: Vec<Option<OwnStream>>,
    queue: Fragmenter,
}

impl Sender {
    pub(super) fn new(pace_bytes_per_second: u64) -> Self {
        Self { streams: Vec::new(), queue: Fragmenter::new(pace_bytes_per_second) }
    }

    pub(super) fn join(&mut self, ix: GroupIx, stream: OwnStream) {
        let groups = ix.0 as usize + 1;
        if self.streams.len() < groups {
            self.streams.resize_with(groups, || None);
        }
        self.streams[ix.0 as usize] = Some(stream);
    }

    pub(super) fn leave(&mut self, cx: &mut Context, ix: GroupIx) -> OwnStream {
        cx.counters.messages_unsent += self.queue.forget(ix) as u64;
        cx.timers.cancel(TimerKey::Heartbeat(ix));
        cx.timers.cancel(TimerKey::Joiners(ix));
        cx.timers.cancel(TimerKey::Patience(ix));
        self.streams[ix.0 as usize].take().expect("a group is left only once")
    }

    pub(super) fn unconfirmed(&self, ix: GroupIx) -> Vec<NodeId> {
        let own = self.get(ix);
        own.unconfirmed(own.accepted_to).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        self.queue.bytes
    }

    pub(super) fn check(&self) {
        self.queue.check();
        self.streams.iter().flatten().for_each(OwnStream::check);
    }

    pub(super) fn on_view_change(&mut self, ix: GroupIx, node: NodeId, has_joined: bool) {
        let own = self.get_mut(ix);
        if has_joined { own.add_member(node) } else { own.remove_member(node) }
    }

    pub(super) fn check_window(&mut self, cx: &mut Context, ix: GroupIx) -> Result<(), SendError> {
        let Some((by, behind)) = self.get_mut(ix).held_back_by(cx.config.window) else {
            return Ok(());
        };
        self.on_held_back(cx, ix);
        Err(SendError::HeldBack { by, behind })
    }

    pub(super) fn must_queue(&self, cx: &Context, ix: GroupIx, bytes: usize) -> bool {
        self.queue.holds(ix) || bytes > cx.config.packet_limit(cx.groups.get(ix).rate)
    }

    pub(super) fn enqueue(
        &mut self,
        cx: &Context,
        ix: GroupIx,
        payload: Bytes,
        options: SendOptions,
    ) -> Result<SeqNo, SendError> {
        let waiting_bytes = self.queue.bytes;
        if waiting_bytes > 0 && waiting_bytes + payload.len() > cx.config.queue_bytes {
            return Err(SendError::QueueFull { waiting_bytes });
        }
        let rate = cx.groups.get(ix).rate;
        let fragment = (payload.len() > cx.config.packet_limit(rate)).then(|| Fragment {
            index: 0,
            fragment_bytes: cx.config.fragment_bytes(rate),
            message_bytes: payload.len() as u32,
        });
        let (accepted_at, deadline) = (cx.now, options.deadline);
        let message = QueuedMessage { payload, accepted_at, deadline, fragment };
        let first = self.get_mut(ix).accept(message.packets());
        let first = first.ok_or(SendError::QueueFull { waiting_bytes })?;
        self.queue.push(ix, message);
        Ok(first)
    }

    pub(super) fn next_packet(&mut self, cx: &mut Context) -> Option<(GroupIx, Symbol)> {
        while let Some(ix) = self.queue.first_turn() {
            if let Some(at) = self.queue.paced_until(cx.now) {
                cx.timers.set(TimerKey::Pace, at);
                return None;
            }
            let window = self.window(&cx.config, ix);
            if self.get_mut(ix).held_back_by(window).is_none() {
                let packet = self.queue.pop(cx.now, &mut cx.arena);
                let is_fragment = |(_, symbol): &(_, Symbol)| symbol.fragment().is_some();
                cx.counters.pieces_sent += u64::from(packet.as_ref().is_some_and(is_fragment));
                return packet;
            }
            self.queue.hold_back_first();
            self.on_held_back(cx, ix);
        }
        None
    }

    /// Assigns the next number. Returns it, and `true` if the packet must request acknowledgments.
    pub(super) fn number_packet(&mut self, config: &Config, ix: GroupIx) -> (SeqNo, bool) {
        let window = self.window(config, ix);
        let own = self.get_mut(ix);
        let confirm = own.requests_acks(window);
        (own.take_number(), confirm)
    }

    pub(super) fn on_ack(
        &mut self,
        cx: &Context,
        ix: GroupIx,
        from: NodeId,
        (settled_to, lost): (SeqNo, u32),
    ) {
        let window = self.window(&cx.config, ix);
        self.get_mut(ix).on_ack(from, settled_to, lost, window);
    }

    pub(super) fn confirm(&mut self, cx: &mut Context, ix: GroupIx) {
        self.get_mut(ix).request_confirmation();
        if !self.report_confirmation(cx, ix) {
            self.on_heartbeat_due(cx, ix);
        }
    }

    /// Reports the requested confirmation if it is complete. Returns `true` if it was reported.
    pub(super) fn report_confirmation(&mut self, cx: &mut Context, ix: GroupIx) -> bool {
        let own = self.get_mut(ix);
        let Some(confirmation) = own.take_confirmation() else { return false };
        let up_to = confirmation.up_to;
        let (sent_since, is_held_back) = (own.next > up_to, own.is_held_back());
        cx.events.push_back(Event::Confirmed(Confirmed {
            group: cx.groups.get(ix).id,
            up_to: up_to.seqno().minus(1),
            members: confirmation.members,
            incomplete: confirmation.incomplete,
        }));
        // Members that hold back the sender are still queried for acknowledgments.
        if !is_held_back {
            cx.timers.cancel(TimerKey::Heartbeat(ix));
            if sent_since {
                self.restart_heartbeats(cx, ix);
            }
        }
        true
    }

    pub(super) fn on_patience_ended(&mut self, cx: &mut Context, ix: GroupIx) {
        let window = self.window(&cx.config, ix);
        let group = cx.groups.get(ix).id;
        for (node, behind) in self.get_mut(ix).give_up_waiting(window) {
            cx.events.push_back(Event::Slow(Slow { group, node, behind }));
        }
    }

    /// Resumes a group that no member holds back any longer. Returns `true` if it was resumed.
    pub(super) fn resume(&mut self, cx: &mut Context, ix: GroupIx) -> bool {
        let window = self.window(&cx.config, ix);
        let is_free = self.get_mut(ix).release(window);
        if is_free {
            cx.timers.cancel(TimerKey::Patience(ix));
            self.restart_heartbeats(cx, ix);
            self.queue.resume(ix);
        }
        is_free
    }

    fn on_held_back(&mut self, cx: &mut Context, ix: GroupIx) {
        if self.get_mut(ix).hold_back(cx.now) {
            cx.timers.set(TimerKey::Patience(ix), cx.now + cx.config.patience);
            self.on_heartbeat_due(cx, ix);
        }
    }

    fn window(&self, config: &Config, ix: GroupIx) -> u32 {
        let Config { window, flight, .. } = *config;
        if self.queue.holds(ix) { window.min(flight) } else { window }
    }

    fn get(&self, ix: GroupIx) -> &OwnStream {
        self.streams[ix.0 as usize].as_ref().expect("an index does not outlive its group")
    }

    fn get_mut(&mut self, ix: GroupIx) -> &mut OwnStream {
        self.streams[ix.0 as usize].as_mut().expect("an index does not outlive its group")
    }
}
