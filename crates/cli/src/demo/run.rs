use std::time::{Duration, Instant};

use carom::{Event, PublishError};
use carom_proto::Rng;
use carom_terminal::interrupt::Interrupt;

use super::args::Args;
use super::figures::{Delays, Figures};
use super::ledger::{Label, Ledger};
use super::plan::Plan;
use super::report::{DelayMs, Recovered, Report, lost_and_outstanding};
use super::table::{LiveTable, Totals};
use super::world::World;

/// A run of the demo. One thread both publishes and receives, which leaves a CPU for the driver.
pub(crate) struct Run<'a> {
    args: &'a Args,
    plan: &'a Plan,
    world: &'a World,
    interrupt: &'a Interrupt,
    payload: usize,
    rng: Rng,
    started: Instant,
    sending_for: Duration,
    senders: Vec<Sender>,
    ledgers: Vec<Vec<Ledger>>,
    sent: u64,
    figures: Figures,
    recovery_of_second: Delays,
    table: Option<LiveTable>,
}

struct Sender {
    sent: u64,
    counters: Vec<u32>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        args: &'a Args,
        plan: &'a Plan,
        world: &'a World,
        payload: usize,
        interrupt: &'a Interrupt,
    ) -> Self {
        let started = Instant::now();
        let sender = |groups: &Vec<usize>| Sender { sent: 0, counters: vec![0; groups.len()] };
        let ledgers = |groups: &Vec<usize>| groups.iter().map(|_| Ledger::default()).collect();
        Self {
            args,
            plan,
            world,
            interrupt,
            payload,
            rng: plan.rng.clone().fork(1),
            started,
            sending_for: Duration::ZERO,
            senders: plan.groups_of.iter().map(sender).collect(),
            ledgers: plan.groups_of.iter().map(ledgers).collect(),
            sent: 0,
            figures: Figures::default(),
            recovery_of_second: Delays::default(),
            table: (!args.json).then(|| LiveTable::begin(started)),
        }
    }

    /// Publishes for `--seconds`. Then receives until no message is outstanding or no more arrive.
    pub(crate) fn until_the_end(&mut self) {
        while self.started.elapsed() < self.args.seconds && !self.interrupt.is_asked() {
            self.publish_what_is_due();
            self.receive();
            self.draw();
            self.interrupt.wait(TICK);
        }
        if !self.interrupt.is_asked() {
            self.publish_what_is_due();
        }
        self.sending_for = self.started.elapsed();
        self.wait_for_the_rest();
        let (totals, p99) = (self.totals(), self.p99_of_second());
        if let Some(table) = &mut self.table {
            table.end(totals, p99);
        }
    }

    pub(crate) fn report(&self) -> Report {
        let (figures, work) = (&self.figures, self.world.work());
        let interrupted = self.interrupt.is_asked();
        let (lost, outstanding) = lost_and_outstanding(figures, interrupted);
        Report {
            nodes: self.args.nodes,
            groups: self.args.groups,
            sent: self.sent,
            expected: figures.expected,
            delivered: figures.delivered,
            duplicates: figures.duplicates,
            corrupted: figures.corrupted,
            lost,
            outstanding,
            losses_injected: work.net.losses_injected,
            recovered: Recovered::of(figures, work.lateral.overtaken),
            recovery_ms: DelayMs::of(&figures.recovery),
            delivery_ms: DelayMs::with_tail(&figures.delivery),
            overhead: work.lateral.overhead(),
            xors_per_packet: work.lateral.xors_per_packet(),
            path: self.world.path(),
            seconds: self.sending_for.as_secs_f64(),
            seed: self.args.seed,
            interrupted,
        }
    }

    fn publish_what_is_due(&mut self) {
        let passed = self.started.elapsed().min(self.args.seconds);
        let due = (passed.as_secs_f64() * self.args.rate) as u64;
        for node in 0..self.senders.len() {
            if self.world.groups[node].is_empty() {
                continue;
            }
            for _ in 0..due.saturating_sub(self.senders[node].sent).min(MOST_AT_ONCE) {
                if !self.publish(node) {
                    break;
                }
            }
        }
    }

    /// Returns `false` if backpressure refuses the message, so that it stays due.
    fn publish(&mut self, node: usize) -> bool {
        let sender = &mut self.senders[node];
        let place = self.rng.below(sender.counters.len());
        let group = self.plan.groups_of[node][place];
        let counter = sender.counters[place];
        let label = Label { publisher: node as u32, group: group as u32, counter };
        match self.world.groups[node][place].try_publish(label.message(self.payload)) {
            Ok(_) => {
                sender.counters[place] += 1;
                sender.sent += 1;
                self.sent += 1;
                self.figures.expected += self.plan.members[group].len() as u64 - 1;
                true
            }
            Err(PublishError::Full { .. }) => false,
            Err(error) => unreachable!("the size was checked and the group is open: {error}"),
        }
    }

    fn receive(&mut self) {
        let world = self.world;
        for (node, groups) in world.groups.iter().enumerate() {
            for (place, group) in groups.iter().enumerate() {
                while let Some(event) = group.try_recv() {
                    self.on_event(node, place, &event);
                }
            }
        }
    }

    fn on_event(&mut self, node: usize, place: usize, event: &Event) {
        let message = match event {
            Event::Message(message) => message,
            Event::Lost(lost) => {
                self.figures.reported_lost += u64::from(lost.count());
                return;
            }
            _ => return,
        };
        match Label::of(&message.payload).filter(|label| self.was_sent(node, place, *label)) {
            None => self.figures.corrupted += 1,
            Some(Label { publisher, counter, .. }) => {
                if !self.ledgers[node][place].note(publisher, counter) {
                    self.figures.duplicates += 1;
                    return;
                }
                self.figures.deliver(message);
                if let (false, Some(age)) = (message.how == carom::How::Direct, message.age) {
                    self.recovery_of_second.record(age);
                }
            }
        }
    }

    fn was_sent(&self, node: usize, place: usize, label: Label) -> bool {
        let (publisher, group) = (label.publisher as usize, label.group as usize);
        let Some(groups) = self.plan.groups_of.get(publisher) else { return false };
        self.plan.groups_of[node][place] == group
            && publisher != node
            && groups
                .binary_search(&group)
                .is_ok_and(|place| label.counter < self.senders[publisher].counters[place])
    }

    fn wait_for_the_rest(&mut self) {
        let mut progress = Instant::now();
        let mut last = self.figures.outstanding();
        let mut interrupted_at = None;
        while last > 0 {
            self.receive();
            self.draw();
            let outstanding = self.figures.outstanding();
            if outstanding != last {
                (last, progress) = (outstanding, Instant::now());
            }
            if self.interrupt.is_asked() {
                let since = *interrupted_at.get_or_insert_with(Instant::now);
                if since.elapsed() >= LAST_LOOK {
                    return;
                }
                std::thread::sleep(TICK);
            } else if progress.elapsed() >= PATIENCE {
                return;
            } else {
                self.interrupt.wait(TICK);
            }
        }
        self.receive();
    }

    fn draw(&mut self) {
        let now = Instant::now();
        if !self.table.as_ref().is_some_and(|table| table.is_due(now)) {
            return;
        }
        let (totals, p99) = (self.totals(), self.p99_of_second());
        if let Some(table) = &mut self.table
            && table.draw(now, totals, p99)
        {
            self.recovery_of_second.clear();
        }
    }

    fn totals(&self) -> Totals {
        let work = self.world.work();
        let recovered = Recovered::of(&self.figures, work.lateral.overtaken);
        Totals {
            sent: self.sent,
            delivered: self.figures.delivered,
            losses_injected: work.net.losses_injected,
            fec: recovered.fec,
            nak: recovered.nak,
        }
    }

    fn p99_of_second(&self) -> Option<f64> {
        let delays = &self.recovery_of_second;
        (!delays.is_empty()).then(|| delays.quantile_ms(0.99))
    }
}

const TICK: Duration = Duration::from_millis(1);
/// Maximum number of messages per node and tick. Limits the burst after a pause of the process.
const MOST_AT_ONCE: u64 = 64;
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for which an interrupted run still receives messages in flight.
const LAST_LOOK: Duration = Duration::from_millis(200);
