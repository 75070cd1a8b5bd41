//! Member process, which publishes at a steady rate and records every event.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, Write as _};
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node, Published};
use carom::{Event, NodeId, Qos, RingNews};

use crate::kind::Kind;
use crate::payload::Payload;
use crate::record::Place;

#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) kind: Kind,
    pub(crate) host: u32,
    /// Number of the process on this host, from 1. Each restart increments it.
    pub(crate) start: u32,
    pub(crate) address: Ipv4Addr,
    /// Messages per second. A member of a bulk group publishes only when ordered to.
    pub(crate) rate: u32,
    pub(crate) record: String,
}

/// Record of one process. Each line is one write, so that `kill -9` loses none.
struct Record(Mutex<File>);

struct Orders {
    quiet: AtomicBool,
    over: AtomicBool,
}

impl Member {
    /// Returns the command line that [`Member::parse`] reads.
    pub(crate) fn args(&self) -> Vec<String> {
        let Self { kind, host, start, address, rate, record } = self;
        let numbers = [host.to_string(), start.to_string(), address.to_string(), rate.to_string()];
        let mut args = vec![WORD.to_owned(), kind.name().to_owned()];
        args.extend(numbers);
        args.push(record.clone());
        args
    }

    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [word, kind, host, start, address, rate, record] = args else { return None };
        (word == WORD).then_some(())?;
        Some(Self {
            kind: Kind::parse(kind)?,
            host: host.parse().ok()?,
            start: start.parse().ok()?,
            address: address.parse().ok()?,
            rate: rate.parse().ok()?,
            record: record.clone(),
        })
    }

    pub(crate) fn run(&self) {
        let file = OpenOptions::new().create(true).append(true).open(&self.record);
        let record = Record(Mutex::new(file.expect("the harness made the folder")));
        let node = Node::builder()
            .interface(self.address.to_string())
            .node_id(NodeId(u64::from(self.host)))
            .start()
            .map(Node::from)
            .expect("the host has an interface");
        let group = node.join("chaos", self.kind.profile()).expect("the settings are valid");
        record.line(format_args!("J {}", node.id().0));
        let is_quiet = self.kind.has_one_sender();
        let orders = Orders { quiet: AtomicBool::new(is_quiet), over: AtomicBool::new(false) };
        let (to_await, awaited) = sync_channel(AWAITED);
        thread::scope(|scope| {
            scope.spawn(|| self.publish(&group, &orders, &record, to_await));
            scope.spawn(|| await_delivery(awaited, &orders, &record));
            scope.spawn(|| confirm(&group, self.kind, &orders, &record));
            scope.spawn(|| orders.read(&record));
            receive(&group, &orders, &record);
        });
    }

    fn publish(
        &self,
        group: &Group,
        orders: &Orders,
        record: &Record,
        to_await: SyncSender<(u64, Published)>,
    ) {
        let pause = Duration::from_secs(1) / self.rate;
        let mut due = Instant::now();
        let mut number = 0;
        while !orders.over.load(Ordering::Relaxed) {
            due = (due + pause).max(Instant::now());
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if orders.quiet.load(Ordering::Relaxed) {
                continue;
            }
            let payload = Payload { host: self.host, start: self.start, number: number + 1 };
            let published = match self.kind {
                Kind::Ordered => group.publish_with(payload.bytes(), Qos::MajorityResilient),
                Kind::Lateral | Kind::Bulk => group.publish(payload.bytes()),
            };
            match published {
                Ok(published) => {
                    number += 1;
                    record.line(format_args!("P {number}"));
                    if self.kind != Kind::Lateral {
                        // If the channel is full, none is acknowledged, which the record shows.
                        let _ = to_await.try_send((number, published));
                    }
                }
                Err(error) => record.line(format_args!("X {error}")),
            }
        }
    }
}

/// Records the outcome of each message, in the order in which outcomes arrive.
fn await_delivery(awaited: Receiver<(u64, Published)>, orders: &Orders, record: &Record) {
    let mut context = Context::from_waker(Waker::noop());
    let mut open = Vec::new();
    while !orders.over.load(Ordering::Relaxed) {
        let new = awaited.try_iter();
        open.extend(
            new.map(|(number, published)| (number, Box::pin(published.into_async().delivered()))),
        );
        open.retain_mut(|(number, delivered)| {
            match delivered.as_mut().poll(&mut context) {
                Poll::Pending => return true,
                Poll::Ready(Ok(())) => record.line(format_args!("A {number}")),
                Poll::Ready(Err(error)) => record.line(format_args!("G {number} {error}")),
            }
            false
        });
        thread::sleep(Duration::from_millis(50));
    }
}

/// Once per second: a sender must not fall silent for members that are disconnected meanwhile.
fn confirm(group: &Group, kind: Kind, orders: &Orders, record: &Record) {
    if kind != Kind::Lateral {
        return;
    }
    while !orders.over.load(Ordering::Relaxed) {
        match group.confirm(Duration::from_secs(2)) {
            Ok(safe) => record.line(format_args!("S {}", safe.incomplete.len())),
            Err(_) => record.line(format_args!("S -")),
        }
        thread::sleep(Duration::from_secs(1));
    }
}

fn receive(group: &Group, orders: &Orders, record: &Record) {
    while !orders.over.load(Ordering::Relaxed) {
        match group.recv_timeout(Duration::from_millis(100)) {
            Ok(Some(event)) => record_event(event, record),
            Ok(None) => return record.line(format_args!("C")),
            Err(_) => {}
        }
    }
}

fn record_event(event: Event, record: &Record) {
    match event {
        Event::Message(message) => {
            let sender = message.sender.0;
            let Some(Payload { host, start, number }) = Payload::parse(&message.payload) else {
                return record.line(format_args!("! {sender} damaged"));
            };
            let place = message.place.map(Place::of);
            let seqno = message.seqno.0;
            match place {
                Some(place) => {
                    record.line(format_args!("M {host} {start} {number} {seqno} {place}"))
                }
                None => record.line(format_args!("M {host} {start} {number} {seqno}")),
            }
        }
        Event::Lost(lost) => {
            let (first, last) = (lost.first.0, lost.last.0);
            record.line(format_args!("L {} {first} {last} {:?}", lost.sender.0, lost.cause));
        }
        Event::Ring(event) => match event.news {
            RingNews::Removed { why, rejoins, .. } => {
                record.line(format_args!("R {why:?} {rejoins}"));
            }
            RingNews::Minority { .. } => record.line(format_args!("N")),
            _ => {}
        },
        Event::View(change) => {
            record.line(format_args!("V {} {:?} {}", change.node.0, change.kind, change.version));
        }
        _ => {}
    }
}

impl Orders {
    fn read(&self, record: &Record) {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            record.line(format_args!("# {line}"));
            self.quiet.store(line == "quiet", Ordering::Relaxed);
        }
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Record {
    fn line(&self, line: impl Display) {
        let line = format!("{line}\n");
        let mut file = self.0.lock().expect("no thread panics while it writes");
        file.write_all(line.as_bytes()).expect("there is room for the record");
    }
}

const WORD: &str = "member";
const AWAITED: usize = 65_536;
