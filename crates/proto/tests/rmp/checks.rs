//! Invariants of the events that members received, under all faults.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use carom_proto::NodeId;
use carom_proto::ring::{Epoch, LockChange, LockNews, Outcome, Place, Qos, RingView};

use crate::rig::{Host, Told, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sent {
    pub(crate) sender: NodeId,
    pub(crate) number: u32,
    pub(crate) qos: Qos,
}

#[derive(Clone, Debug)]
pub(crate) struct Chapter {
    view: (Epoch, u32),
    origin: Epoch,
    pub(crate) messages: Vec<Sent>,
}

/// Returns the chapters of each life of a host, which may be removed and come back.
pub(crate) fn lives(host: &Host) -> Vec<Vec<Chapter>> {
    let mut lives: Vec<Vec<Chapter>> = vec![Vec::new()];
    for told in &host.story {
        let life = lives.last_mut().expect("there is one");
        match told {
            Told::View { view, .. } => {
                let (origin, view) = (view.origin, (view.epoch, view.version));
                life.push(Chapter { view, origin, messages: Vec::new() });
            }
            Told::Message { sender, payload, .. } => {
                let chapter = life.last_mut().expect("no message comes before the first view");
                chapter.messages.push(sent(*sender, payload));
            }
            Told::Request { request } => {
                let message = sent(request.id.caller, &request.payload);
                // A handler can receive a request again. A request below total order can be
                // delivered in different views if its caller is in none.
                if !request.is_again && message.qos.is_ordered() {
                    let chapter = life.last_mut().expect("no request comes before the first view");
                    chapter.messages.push(message);
                }
            }
            Told::Answer { .. }
            | Told::Lock { .. }
            | Told::Confirmed { .. }
            | Told::Stable { .. }
            | Told::Lost { .. }
            | Told::Minority
            | Told::Waiting { .. }
            | Told::Full { .. }
            | Told::Rejoined { .. } => {}
            Told::Removed => lives.push(Vec::new()),
        }
    }
    lives
}

pub(crate) fn check_safety(world: &World) {
    for host in &world.hosts {
        for life in lives(host) {
            check_once_and_in_source_order(host, &life);
        }
    }
    check_answers(world);
    check_places(world);
    check_virtual_synchrony(world);
    check_views_and_locks(world);
}

/// Asserts that a group in which a minority stops has one lineage of rings.
///
/// Two rings can follow the same ring only if the second contains as many members of the first as
/// the first requires, and none that entered it. All members agree on the order of messages that a
/// majority held.
pub(crate) fn check_one_lineage(world: &World) {
    let mut views: BTreeMap<Epoch, &RingView> = BTreeMap::new();
    for told in world.hosts.iter().flat_map(|host| &host.story) {
        if let Told::View { view, .. } = told
            && view.version == 0
        {
            views.insert(view.epoch, view);
        }
    }
    let mut children: BTreeMap<Epoch, BTreeMap<Epoch, Vec<NodeId>>> = BTreeMap::new();
    for host in &world.hosts {
        for chapters in lives(host) {
            let mut epochs: Vec<Epoch> = chapters.iter().map(|chapter| chapter.view.0).collect();
            epochs.dedup();
            for pair in epochs.windows(2) {
                let children = children.entry(pair[0]).or_default();
                children.entry(pair[1]).or_default().push(host.id);
            }
        }
    }
    for (ring, children) in children {
        let epochs: Vec<Epoch> = children.keys().copied().collect();
        for pair in epochs.windows(2) {
            let (first, second) = (views[&pair[0]], views[&pair[1]]);
            let common = second.processes().filter(|process| first.contains(*process)).count();
            assert!(common >= first.least(), "{ring:?} was followed by {first:?} and {second:?}");
        }
        for (at, epoch) in epochs.iter().enumerate() {
            for later in epochs[at + 1..].iter().map(|later| views[later]) {
                let torn = children[epoch].iter().find(|it| later.process_of(**it).is_some());
                assert_eq!(torn, None, "{ring:?} was followed by {epoch:?} and {later:?}");
            }
        }
    }
    check_agreed_order(world);
    check_fences(world);
}

fn check_once_and_in_source_order(host: &Host, life: &[Chapter]) {
    let mut seen = BTreeSet::new();
    // Requests and messages are numbered separately.
    let mut last: BTreeMap<(NodeId, u32), u32> = BTreeMap::new();
    for message in life.iter().flat_map(|chapter| &chapter.messages) {
        assert!(seen.insert(*message), "{:?} received {message:?} twice", host.id);
        if message.qos >= Qos::SourceOrdered {
            let before = last.insert((message.sender, message.number >> 20), message.number);
            let is_later = before.is_none_or(|before| before < message.number);
            assert!(is_later, "{:?}: {message:?} after {before:?}", host.id);
        }
    }
}

/// Asserts that all members receive the same view under the same name, and that a lock is granted
/// only to its holder in the view.
fn check_views_and_locks(world: &World) {
    let mut views: BTreeMap<(Epoch, u32), &RingView> = BTreeMap::new();
    for host in &world.hosts {
        let mut shown = None;
        for told in &host.story {
            match told {
                Told::View { view, .. } => {
                    let first = *views.entry((view.epoch, view.version)).or_insert(view);
                    assert_eq!(first, view, "{:?} received another view", host.id);
                    shown = Some(view);
                }
                Told::Lock { news: LockNews { name, change: LockChange::Granted { .. } } } => {
                    let view = shown.expect("no lock is granted before the first view");
                    let holder = view.locks.holder(*name).map(|process| process.node);
                    assert_eq!(holder, Some(host.id), "{name} in {view:?}");
                }
                _ => {}
            }
        }
    }
}

/// Asserts that totally ordered messages have places, and that no others do.
///
/// Places increase at each member, and no two messages have the same place. Messages that follow a
/// stability report have later places than the reported one.
fn check_places(world: &World) {
    let mut messages = BTreeMap::new();
    for host in &world.hosts {
        let mut last = None;
        for told in &host.story {
            match told {
                Told::Message { sender, payload, place } if payload.len() >= 6 => {
                    let message = sent(*sender, payload);
                    assert_eq!(place.is_some(), message.qos >= Qos::TotallyOrdered, "{message:?}");
                    see(host, *place, &mut last);
                    let Some(place) = *place else { continue };
                    let other = *messages.entry(place).or_insert(message);
                    assert_eq!(other, message, "both are at {place:?}");
                }
                Told::Request { request } => see(host, request.place, &mut last),
                Told::View { place, .. } => see(host, Some(*place), &mut last),
                // Replies that only their callers receive have places as well.
                Told::Stable { up_to } => last = last.max(Some(*up_to)),
                Told::Removed => last = None,
                _ => {}
            }
        }
    }
}

fn see(host: &Host, place: Option<Place>, last: &mut Option<Place>) {
    if place.is_some() {
        assert!(*last < place, "{:?}: {place:?} after {last:?}", host.id);
        *last = place;
    }
}

fn check_answers(world: &World) {
    for host in &world.hosts {
        let mut answered = BTreeSet::new();
        for told in &host.story {
            let Told::Answer { answer } = told else { continue };
            let id = answer.id;
            assert!(answered.insert(id), "{id:?} was answered twice");
            let asked = host.calls.get(&id).expect("a request of its own");
            if let Outcome::Reply { payload, .. } = &answer.outcome {
                assert_eq!(payload[..6], asked[..6], "{id:?}: the reply to another request");
                assert_eq!(payload.len(), world.reply_bytes.max(6), "{id:?}");
            }
        }
    }
}

/// Asserts that each grant of a lock in a lineage has its own fence, larger than the previous ones.
fn check_fences(world: &World) {
    let mut grants = BTreeMap::new();
    for host in &world.hosts {
        let (mut last, mut origin) = (BTreeMap::new(), None);
        for told in &host.story {
            let news = match told {
                Told::View { view, .. } => {
                    origin = Some(view.origin);
                    continue;
                }
                Told::Lock { news } => news,
                _ => continue,
            };
            let LockNews { name, change: LockChange::Granted { fence } } = *news else { continue };
            let before = last.insert((origin, name), fence);
            assert!(before.is_none_or(|before| before < fence), "{name}: {fence:?}, {before:?}");
            let other = grants.insert((origin, name, fence), host.id);
            assert_eq!(other, None, "{name} was also granted to {:?} at {fence:?}", host.id);
        }
    }
}

/// Asserts that members that move together from one view to the next delivered the same messages in
/// the first view. If a view is the last one of two members, one of them delivered a prefix of the
/// other's messages.
fn check_virtual_synchrony(world: &World) {
    let all: Vec<(NodeId, Vec<Chapter>)> = world
        .hosts
        .iter()
        .flat_map(|host| lives(host).into_iter().map(|life| (host.id, life)))
        .collect();
    for (place, (a, first)) in all.iter().enumerate() {
        for (b, second) in &all[place + 1..] {
            for (at, chapter) in first.iter().enumerate() {
                let Some(other) = second.iter().position(|it| it.view == chapter.view) else {
                    continue;
                };
                let ordered = |chapter: &Chapter| -> Vec<Sent> {
                    let messages = chapter.messages.iter().copied();
                    messages.filter(|message| message.qos.is_ordered()).collect()
                };
                let (mine, theirs) = (ordered(chapter), ordered(&second[other]));
                let next = first.get(at + 1).map(|it| it.view);
                let their_next = second.get(other + 1).map(|it| it.view);
                if next.is_some() && next == their_next {
                    assert_eq!(mine, theirs, "{a:?} and {b:?} in {:?}", chapter.view);
                } else if next.is_none() && their_next.is_none() {
                    let shorter = mine.len().min(theirs.len());
                    assert_eq!(
                        mine[..shorter],
                        theirs[..shorter],
                        "{a:?} {b:?} {:?}",
                        chapter.view
                    );
                }
            }
        }
    }
}

fn check_agreed_order(world: &World) {
    let sequences: Vec<(Option<Epoch>, Vec<Sent>)> = world
        .hosts
        .iter()
        .flat_map(lives)
        .map(|life| {
            let origin = life.first().map(|chapter| chapter.origin);
            let messages = life.into_iter().flat_map(|chapter| chapter.messages);
            let agreed = messages.filter(|message| message.qos >= Qos::MajorityResilient);
            (origin, agreed.collect())
        })
        .collect();
    for (place, (origin, first)) in sequences.iter().enumerate() {
        let places: BTreeMap<Sent, usize> =
            first.iter().enumerate().map(|(at, message)| (*message, at)).collect();
        for (other, second) in &sequences[place + 1..] {
            // Until two separately founded rings merge, both serve callers outside the group.
            let is_one_order = |it: &&Sent| origin == other || it.number >> 20 == 0;
            let common: Vec<usize> = second
                .iter()
                .filter(is_one_order)
                .filter_map(|it| places.get(it).copied())
                .collect();
            assert!(common.is_sorted(), "two members disagree about the order");
        }
    }
}

fn sent(sender: NodeId, payload: &Bytes) -> Sent {
    let number = u32::from_be_bytes(payload[1..5].try_into().expect("four bytes"));
    let qos = crate::random::LEVELS[usize::from(payload[5])];
    assert_eq!(u64::from(payload[0]), sender.0, "an invented message");
    Sent { sender, number, qos }
}
