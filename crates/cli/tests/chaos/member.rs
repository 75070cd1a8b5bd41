//! The member process, which publishes at a steady rate and records every event.

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
use carom::{Event, NodeId, Qos, RingNews, ViewChangeKind};
use serde::{Deserialize, Serialize};

use crate::kind::Kind;
use crate::payload::Payload;
use crate::record::{Delivery, Entry, Line, Place};

#[derive(Clone, Debug, Deserialize, Serialize)]
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

/// The record of one process. Each line is one write, so that `kill -9` loses no finished line.
struct Record(Mutex<File>);

struct Orders {
    quiet: AtomicBool,
    over: AtomicBool,
}

impl Member {
    pub(crate) fn args(&self) -> [String; 2] {
        [WORD.to_owned(), serde_json::to_string(self).expect("plain data")]
    }

    pub(crate) fn parse(args: &[String]) -> Option<Self> {
        let [word, member] = args else { return None };
        (word == WORD).then(|| serde_json::from_str(member).expect("it is what `args` returned"))
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
        record.line(Line::Note(format!("joined as {}", node.id())));
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
                    record.line(Line::Published(number));
                    if self.kind != Kind::Lateral {
                        // If the channel is full, no message is acknowledged, which the record
                        // shows.
                        let _ = to_await.try_send((number, published));
                    }
                }
                Err(error) => record.line(Line::Note(format!("not published: {error}"))),
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
                Poll::Ready(Ok(())) => record.line(Line::Acknowledged(*number)),
                Poll::Ready(Err(error)) => {
                    record.line(Line::GivenUp(*number, error.to_string()));
                }
            }
            false
        });
        thread::sleep(Duration::from_millis(50));
    }
}

/// Confirms once per second, because a sender must not fall silent while members are disconnected.
fn confirm(group: &Group, kind: Kind, orders: &Orders, record: &Record) {
    if kind != Kind::Lateral {
        return;
    }
    while !orders.over.load(Ordering::Relaxed) {
        let safe = group.confirm(Duration::from_secs(2)).ok();
        record.line(Line::Confirmed(safe.map(|safe| safe.incomplete.len())));
        thread::sleep(Duration::from_secs(1));
    }
}

fn receive(group: &Group, orders: &Orders, record: &Record) {
    while !orders.over.load(Ordering::Relaxed) {
        match group.recv_timeout(Duration::from_millis(100)) {
            Ok(Some(event)) => record_event(event, record),
            Ok(None) => return record.line(Line::Entry(Entry::Closed)),
            Err(_) => {}
        }
    }
}

fn record_event(event: Event, record: &Record) {
    let line = match event {
        Event::Message(message) => Line::Entry(match Payload::parse(&message.payload) {
            Some(payload) => Entry::Delivered(Delivery {
                message: payload,
                seqno: message.seqno.0,
                place: message.place.map(Place::of),
            }),
            None => Entry::Damaged { sender: message.sender.0 },
        }),
        Event::Lost(lost) => Line::Entry(Entry::Lost {
            sender: host(lost.sender),
            first: lost.first.0,
            last: lost.last.0,
            cause: format!("{:?}", lost.cause),
        }),
        Event::Ring(event) => match event.news {
            RingNews::Removed { why, .. } => {
                Line::Entry(Entry::Removed { why: format!("{why:?}") })
            }
            RingNews::Minority { .. } => Line::Note("no quorum".to_owned()),
            _ => return,
        },
        Event::View(change) => {
            Line::View { host: host(change.node), is_there: change.kind == ViewChangeKind::Joined }
        }
        _ => return,
    };
    record.line(line);
}

fn host(node: NodeId) -> u32 {
    u32::try_from(node.0).expect("ids are numbers of hosts")
}

impl Orders {
    fn read(&self, record: &Record) {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            record.line(Line::Note(format!("order: {line}")));
            self.quiet.store(line == "quiet", Ordering::Relaxed);
        }
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Record {
    fn line(&self, line: Line) {
        let line = serde_json::to_string(&line).expect("plain data") + "\n";
        let mut file = self.0.lock().expect("no thread panics while it writes");
        file.write_all(line.as_bytes()).expect("there is room for the record");
    }
}

const WORD: &str = "member";
const AWAITED: usize = 65_536;
