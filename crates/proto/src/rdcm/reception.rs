//! The receiver of a stream: arriving packets, repairs for its successors, and reports (sections
//! 3.3 and 3.5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use self::children::Child;
use self::former::Formers;
use self::relaying::Relaying;
use super::acks::Acks;
use super::around::{Around, seqno};
use super::assembly::{Assembly, Whole};
use super::config::{Config, Congestion, MAX_MESSAGE_BYTES};
use super::congestion::Bic;
use super::epochs;
use super::packet::{DataPacket, Packet, Place, Way};
use super::successor::Patience;
use super::tolerance::Tolerance;
use super::window::{Arrival, Kept, RepairWindow};
use crate::{Event, How, LossCause, Message, NodeId, Time};

mod asking;
mod children;
mod ending;
mod former;
mod relaying;
mod telling;

/// A receiver of one stream.
#[derive(Debug)]
pub(super) struct Reception {
    pub(super) sender: NodeId,
    /// When a packet of the sender itself last arrived.
    pub(super) sender_heard_at: Time,
    place: Place,
    /// Predecessors of earlier places.
    formers: Formers,
    window: RepairWindow,
    assembly: Assembly,
    /// First packet after a gap in the stream, perhaps in the middle of a message. Packets between
    /// this one and the next message are lost.
    resumed_at: Option<u64>,
    /// Overlay children of this receiver, except for itself.
    children: BTreeMap<NodeId, Child>,
    /// `None` if the rate does not follow losses.
    bic: Option<Bic>,
    tolerance: Tolerance,
    /// Number after the last packet that arrived through the tree for the first time.
    tree_next: u64,
    /// Number after the last packet that is known to have been sent.
    known_to: u64,
    /// Like `known_to`, but according to the sender itself.
    sender_to: u64,
    by_tree: u64,
    by_repair: u64,
    /// Acknowledgments in the leaf ring, of the packets that are here: to the predecessor and to
    /// the parent.
    acks: Acks,
    parent_acks: Acks,
    /// Acknowledgments in the proxy ring, of the packets that the branch has.
    branch_acks: Acks,
    /// Number up to which the losses of the branch were reported.
    branch_told_to: u64,
    /// End of the stream in the last announcement.
    announced_to: u64,
    report_at: Time,
    /// First missing packet in the last report to the sender.
    reported_next: u64,
    /// Since when the first missing packet is the same, or when it was requested.
    stuck_since: Time,
    /// First missing packet at the last check for progress.
    progress: u64,
    /// Number after the last packet requested from the sender, while the sender responds.
    asked_to: Option<u64>,
    watch_at: Time,
    /// Packets to pass on along the tree.
    relaying: Relaying,
    /// `true` while the application accepts nothing.
    is_held: bool,
    /// End of the time for which receivers repair for each other after the sender is gone.
    ends_at: Option<Time>,
    /// When the sender, which was gone, became a member again. Its stream may have ended.
    sender_back_at: Option<Time>,
}

impl Reception {
    pub(super) fn new(around: &mut Around<'_>, sender: NodeId, place: Place) -> Self {
        let (now, config, first) = (around.now, around.config, place.first);
        let mut reception = Self {
            sender,
            sender_heard_at: now,
            window: RepairWindow::new(first, config.window_packets, config.patience()),
            assembly: Assembly::default(),
            resumed_at: None,
            children: BTreeMap::new(),
            bic: new_bic(config),
            tolerance: Tolerance::new(config.tolerated_loss),
            tree_next: first,
            known_to: first,
            sender_to: first,
            by_tree: 0,
            by_repair: 0,
            acks: Acks::default(),
            parent_acks: Acks::default(),
            branch_acks: Acks::default(),
            branch_told_to: 0,
            announced_to: first,
            report_at: now,
            reported_next: 0,
            stuck_since: now,
            progress: first,
            asked_to: None,
            watch_at: now + config.watch_every(),
            relaying: Relaying::default(),
            is_held: false,
            ends_at: None,
            sender_back_at: None,
            formers: Formers::default(),
            place,
        };
        reception.take_seats(around);
        reception
    }

    /// Handles a place that was sent by the sender.
    pub(super) fn on_place(&mut self, around: &mut Around<'_>, place: Place) {
        // The sender does not know yet that this place is taken.
        self.report_at = around.now;
        if !epochs::are_near(place.epoch, self.place.epoch) {
            // The place is forged, or this node has missed many places. The report shows the sender
            // which one it has.
            around.counters.implausible += 1;
            return;
        }
        if !epochs::is_after(place.epoch, self.place.epoch) {
            return;
        }
        let next = self.window.own().next();
        if place.first > next {
            self.begin_anew(around, place.first);
        }
        let before = core::mem::replace(&mut self.place, place);
        self.leave_seats(around, &before);
        self.take_seats(around);
    }

    /// Continues with packet `first`, after the others have continued without this receiver.
    fn begin_anew(&mut self, around: &mut Around<'_>, first: u64) {
        around.lose(self.sender, self.undelivered(), first, LossCause::TooFarBehind);
        let config = around.config;
        self.window = RepairWindow::new(first, config.window_packets, config.patience());
        self.assembly = Assembly::default();
        self.resumed_at = Some(first);
        self.bic = new_bic(config);
        self.tolerance.on_answer();
        self.tree_next = self.tree_next.max(first);
        self.known_to = self.known_to.max(first);
        self.branch_told_to = 0;
        self.progress = first;
        self.asked_to = None;
        self.stuck_since = around.now;
    }

    fn take_seats(&mut self, around: &mut Around<'_>) {
        around.counters.places_taken += 1;
        let (now, node) = (around.now, around.node);
        let successors = self.place.seats().map(|seat| (seat.ring, seat.successor));
        let successors: Vec<(u32, NodeId)> = successors.filter(|it| it.1 != node).collect();
        let children = &self.place.children;
        let others: BTreeSet<NodeId> = children.iter().copied().filter(|it| *it != node).collect();
        if !self.children.keys().eq(&others) {
            // Packets that only a former child had do not count for the branch.
            self.window.forget_branch();
        }
        self.children.retain(|child, _| others.contains(child));
        let limit = self.known_to + initial_window(around.config);
        for child in others {
            self.children.entry(child).or_insert(Child {
                known_to: 0,
                limit,
                heard_at: now,
                is_silent: false,
            });
        }
        let has_children = !self.children.is_empty();
        let (epoch, linger) = (self.place.epoch, around.config.linger_at_ring());
        self.window.serve(now, epoch, &successors, has_children, linger);
        self.branch_acks = Acks::default();
        self.branch_told_to = 0;
        self.tell_at_once(now);
    }

    pub(super) fn on_data(&mut self, around: &mut Around<'_>, from: NodeId, data: DataPacket) {
        let DataPacket { number, piece, way, is_relayed } = data;
        if number >= self.window.end() {
            // No sender exceeds the window of a receiver, unless it has evicted the receiver. It
            // then sends it an announcement with the epoch of its place. Other claims are not
            // trusted.
            around.counters.data_beyond += 1;
            return;
        }
        let is_from_sender = way != Way::Repair && !is_relayed;
        if is_from_sender {
            self.sender_to = self.sender_to.max(number + 1);
        }
        let is_news = number >= self.known_to;
        let is_first_time = matches!(way, Way::Tree { .. });
        if let Way::Tree { doublings } = way {
            self.on_tree(around, number, 2 << doublings);
        } else {
            around.counters.repairs_received += u64::from(way == Way::Repair);
        }
        self.known_to = self.known_to.max(number + 1);
        let by = if way == Way::Repair { Some(from) } else { None };
        if way == Way::Repair {
            self.window.on_repair_from(from, number);
            self.formers.on_repair(around.now, from, number, &self.place);
        }
        let kept = Kept { piece: piece.clone(), repaired_by: by };
        let arrival = self.window.on_packet(around.now, number, kept);
        if way != Way::Repair {
            self.relay(around, arrival, DataPacket { number, piece, way, is_relayed: true });
        }
        if arrival == Arrival::New && is_relayed {
            // A relayed packet was sent by the sender recently.
            self.sender_heard_at = around.now;
        }
        match arrival {
            Arrival::Beyond => return,
            Arrival::Known => {
                around.counters.repairs_useless += u64::from(!is_first_time);
                if !is_first_time {
                    // The node that sent it is not aware that it is here.
                    self.tell_soon(around);
                }
                return;
            }
            Arrival::New => {}
        }
        match way {
            Way::Tree { .. } => {
                self.by_tree += 1;
                self.tell_soon(around);
            }
            Way::Again | Way::Repair => {
                self.by_repair += 1;
                self.tell_repaired(around);
                self.pass_on(around, number, is_news);
            }
        }
        self.on_progress(around);
    }

    /// Handles a packet of the tree that was sent with fewer than `under_way` packets in flight.
    /// The packets between it and the previous one are lost on the tree.
    fn on_tree(&mut self, around: &mut Around<'_>, number: u64, under_way: u32) {
        around.counters.data_received += 1;
        let Some(gap) = number.checked_sub(self.tree_next) else { return };
        if gap > 0 {
            self.tell_gap(around.now);
        }
        if let Some(bic) = &mut self.bic {
            if self.tolerance.on_arrival(gap) && bic.on_loss(self.tree_next, number, under_way) {
                self.tolerance.on_answer();
            }
            bic.on_arrival(under_way);
        }
        self.tree_next = number + 1;
    }

    /// Passes a repair on at once.
    fn pass_on(&mut self, around: &mut Around<'_>, number: u64, is_news: bool) {
        for node in self.window.pass_on(around.now, number, is_news) {
            around.counters.repairs_passed_on += 1;
            self.repair(around, node, number);
        }
    }

    fn repair(&mut self, around: &mut Around<'_>, to: NodeId, number: u64) {
        let Some(kept) = self.window.packet(number) else { return };
        let piece = kept.piece.clone();
        let data = DataPacket { number, piece, way: Way::Repair, is_relayed: false };
        around.counters.repairs_sent += 1;
        around.unicast(to, &Packet::Data(data));
    }

    /// Delivers messages and updates the timers, after the window may have progressed.
    fn on_progress(&mut self, around: &mut Around<'_>) {
        let next = self.window.own().next();
        if next > self.progress {
            self.progress = next;
            self.stuck_since = around.now;
        }
        self.deliver(around);
        if next < self.known_to {
            return;
        }
        self.asked_to = None;
        if next == self.announced_to && self.reported_next < next {
            // Everything has arrived, and the sender may be waiting for this report, perhaps from
            // many receivers. The jitter spreads their reports.
            let jitter = around.rng.fraction() * f64::from(self.place.receivers.min(10_000));
            let soon = around.now + Duration::from_micros(jitter as u64 * 100);
            self.report_at = self.report_at.min(soon);
        }
    }

    fn deliver(&mut self, around: &mut Around<'_>) {
        while !self.is_held
            && let number = self.window.taken_to()
            && let Some(kept) = self.window.take()
        {
            if kept.piece.is_first
                && let Some(from) = self.resumed_at.take()
            {
                around.lose(self.sender, from, number, LossCause::TooFarBehind);
            }
            if let Some(whole) = self.assembly.push(number, kept, MAX_MESSAGE_BYTES) {
                self.hand_out(around, whole);
            }
        }
    }

    fn hand_out(&self, around: &mut Around<'_>, whole: Whole) {
        let Whole { first, payload, repaired_by } = whole;
        around.counters.delivered += 1;
        around.counters.bytes_delivered += payload.len() as u64;
        around.events.push_back(Event::Message(Message {
            group: around.group,
            sender: self.sender,
            seqno: seqno(first),
            payload,
            how: repaired_by.map_or(How::Direct, How::Retransmitted),
            age: None,
            missing_for: Duration::ZERO,
            place: None,
        }));
    }

    /// Sets whether the application accepts nothing at the moment.
    pub(super) fn hold(&mut self, around: &mut Around<'_>, is_held: bool) {
        self.is_held = is_held;
        self.deliver(around);
        self.tell_at_once(around.now);
    }

    /// Handles an announcement of the stream's end.
    pub(super) fn on_announce(&mut self, around: &mut Around<'_>, epoch: u32, end: u64) {
        let is_told_here = epochs::are_near(epoch, self.place.epoch) && epoch != epochs::NONE;
        let end = if is_told_here { end } else { end.min(self.window.end()) };
        self.sender_to = self.sender_to.max(end);
        self.known_to = self.known_to.max(end);
        self.announced_to = self.known_to;
        if self.window.own().next() < self.known_to {
            self.tell_at_once(around.now);
        } else {
            self.tell_soon(around);
            self.on_progress(around);
        }
    }

    pub(super) fn handle_timeout(&mut self, around: &mut Around<'_>) {
        let now = around.now;
        self.window.handle_timeout(now);
        self.send_repairs(around);
        self.acknowledge(around);
        if self.ends_at.is_none() {
            if self.report_at <= now {
                self.report(around);
            }
            if self.ask_at(around.config).is_some_and(|at| at <= now) {
                self.ask(around);
            }
        }
        if self.watch_at <= now {
            self.make_up_for_stop(now);
            self.watch_at = now + around.config.watch_every();
            self.watch(around);
            self.look_for_silent(now, around.config);
        }
    }

    fn send_repairs(&mut self, around: &mut Around<'_>) {
        while let Some((node, number)) = self.window.poll_repair(around.now) {
            self.repair(around, node, number);
        }
    }

    /// Returns the first packet of the first message that was not delivered.
    pub(super) fn undelivered(&self) -> u64 {
        self.assembly.begun_at().or(self.resumed_at).unwrap_or(self.window.taken_to())
    }

    /// Resumes a stream that was over here. All packets before its place were delivered or reported
    /// as lost.
    pub(super) fn resume(&mut self) {
        self.resumed_at = Some(self.place.first);
    }

    /// Returns when [`Reception::handle_timeout`] is to be called.
    pub(super) fn poll_timeout(&mut self, config: &Config) -> Time {
        let mut due = self.watch_at.min(self.over_at(config));
        if self.ends_at.is_none() {
            due = due.min(self.report_at);
            due = due.min(self.ask_at(config).unwrap_or(Time::MAX));
        }
        let acks = [self.acks.due(), self.parent_acks.due(), self.branch_acks.due()];
        let times = [self.window.next_repair(), self.window.poll_timeout()];
        acks.into_iter().chain(times).flatten().fold(due, Time::min)
    }

    /// Returns the bytes of kept packets, of the incomplete message, and of packets to relay.
    pub(super) fn held_bytes(&self) -> usize {
        self.window.kept_bytes() + self.assembly.held_bytes() + self.relaying.held_bytes()
    }

    /// Returns the number of packets that arrived through the tree, and as repairs.
    pub(super) fn arrived(&self) -> (u64, u64) {
        (self.by_tree, self.by_repair)
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    pub(super) fn check(&self) {
        self.window.check();
        assert!(self.window.own().end() <= self.known_to, "a packet came that is not known of");
        assert!(self.tree_next <= self.known_to, "the tree is further than what is known of");
    }
}

impl Config {
    /// Returns the times for which a receiver waits for its successors.
    pub(super) fn patience(&self) -> Patience {
        Patience {
            detect_after: self.detect_after,
            silent_after: self.detect_after + SILENT_DELAYS * self.ack_delay,
            resend_after: self.resend_after,
            under_way: self.repairs_under_way,
        }
    }

    /// Returns the interval between a receiver's checks of its successors.
    fn watch_every(&self) -> Duration {
        self.cut_after.min(self.gone_after) / 4
    }

    /// Returns the time for which a former successor is served.
    fn linger_at_ring(&self) -> Duration {
        self.cut_after
    }
}

fn new_bic(config: &Config) -> Option<Bic> {
    match config.congestion {
        Congestion::Bic { initial } => Some(Bic::new(initial, config.window_packets)),
        Congestion::Room => None,
    }
}

/// Returns the number of packets that are expected of a stream before any of them arrives.
pub(super) fn initial_window(config: &Config) -> u64 {
    match config.congestion {
        Congestion::Bic { initial } => initial.into(),
        Congestion::Room => config.window_packets.into(),
    }
}

/// Maximum delay of an acknowledgment that may still arrive, as a multiple of `ack_delay`.
const SILENT_DELAYS: u32 = 4;
