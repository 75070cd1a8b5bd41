//! Tests acknowledged joins of nodes that request each group once and never return as a later
//! incarnation, so that a lost membership stays lost and is noticed at the end.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use carom_proto::NodeId;
use carom_proto::membership::service::frame::Frame;

use super::cluster::Etcd;
use super::raw::{RawNode, group_name};
use super::service::Registry;
use super::{PARTITIONS, wait_until};

const WINDOW: usize = 16;
/// Pause before retrying a request that the process could not serve.
const PAUSE: Duration = Duration::from_millis(2);
const NODES: [NodeId; 2] = [NodeId(0xA11), NodeId(0xB0B)];

#[derive(Default)]
struct Streams {
    acknowledged: [AtomicUsize; 2],
    is_over: AtomicBool,
}

/// A guard that ends the streams on drop, even when the test fails.
struct End<'a>(&'a Streams);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}

impl Streams {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn await_more(&self, count: usize) {
        for joins in &self.acknowledged {
            let goal = joins.load(Ordering::SeqCst) + count;
            let what = format!("{count} acknowledged joins after {}", goal - count);
            wait_until(&what, || joins.load(Ordering::SeqCst) >= goal);
        }
    }

    /// Joins groups as one node until the end, and returns the acknowledged ones. Whenever the link
    /// ends, continues at the next process.
    fn join(&self, which: usize, registries: [&str; 2]) -> BTreeSet<u32> {
        let mut acknowledged = BTreeSet::new();
        let mut numbers = 0..;
        for address in registries.iter().cycle() {
            if self.is_over() {
                break;
            }
            let Some(mut node) = RawNode::try_open(address, NODES[which]) else {
                thread::sleep(PAUSE);
                continue;
            };
            numbers.by_ref().take(WINDOW).for_each(|number| node.join(number));
            while let Some(frame) = node.next() {
                match frame {
                    Frame::Joined { request, .. } => {
                        assert!(acknowledged.insert(request), "{request} was requested once");
                        self.acknowledged[which].fetch_add(1, Ordering::SeqCst);
                    }
                    // Another process owns the partition, or none does at the moment.
                    Frame::Elsewhere { .. } => thread::sleep(PAUSE),
                    Frame::JoinRefused { why, .. } => panic!("{why:?}"),
                    _ => continue,
                }
                if self.is_over() {
                    break;
                }
                numbers.by_ref().take(1).for_each(|number| node.join(number));
            }
        }
        acknowledged
    }
}

#[test]
fn acknowledged_joins_survive_the_kill_of_etcd_and_services() {
    let Some(mut etcd) = Etcd::start(3) else { return };
    let mut first = Registry::start_patient(&etcd.urls());
    let mut second = Registry::start_patient(&etcd.urls());
    super::await_shares(&first, &second);
    let (one, other) = (first.address.clone(), second.address.clone());
    let streams = Streams::default();
    let acknowledged = thread::scope(|scope| {
        let (streams, one, other) = (&streams, one.as_str(), other.as_str());
        let end = End(streams);
        let nodes = [(0, [one, other]), (1, [other, one])]
            .map(|(which, registries)| scope.spawn(move || streams.join(which, registries)));
        streams.await_more(200);
        // One of the members is the leader, and one of them serves the requests.
        for place in 0..3 {
            etcd.kill(place);
            streams.await_more(100);
            if place == 1 {
                first.running.kill();
                streams.await_more(100);
            }
            etcd.launch(place);
            etcd.await_health(place);
            streams.await_more(100);
        }
        second.await_owned(PARTITIONS);
        streams.await_more(100);
        second.running.kill();
        drop(end);
        nodes.map(|node| node.join().expect("a stream does not panic"))
    });
    // Only etcd can still know of the joins.
    let fresh = Registry::start_patient(&etcd.urls());
    fresh.await_owned(PARTITIONS);
    for (node, groups) in NODES.iter().zip(&acknowledged) {
        assert!(groups.len() >= 1000, "{} joins of {node}", groups.len());
        let id = node.to_string();
        let is_lost = |number: &&u32| !fresh.members(&group_name(**number)).contains(&id);
        let lost: Vec<&u32> = groups.iter().filter(is_lost).collect();
        assert!(lost.is_empty(), "of {} joins of {node}, these were lost: {lost:?}", groups.len());
    }
}
