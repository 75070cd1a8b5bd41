use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::payload::Payload;
use crate::record::{Delivery, Entry, Place, Process, Record, Records, Streams};

pub(crate) type Violation = String;

/// Checks that no message is damaged, invented, repeated, renumbered, or both delivered and
/// reported lost, and that no member's group was closed.
pub(crate) fn always(records: &Records) -> Vec<Violation> {
    let mut found = Vec::new();
    let streams = Streams::of(records);
    for (process, record) in records {
        let mut seen = BTreeSet::new();
        for Delivery { message, seqno, .. } in record.deliveries() {
            if !seen.insert(*message) {
                found.push(format!("{process} received {message} twice"));
            }
            if streams.seqno(*message) != Some(*seqno) {
                found.push(format!("{message} has two numbers, one of them {seqno}"));
            }
            // The sender may have been killed before it could record its last message.
            if records.get(&message.sender()).is_none_or(|it| it.published + 1 < message.number) {
                found.push(format!("{process} received {message}, which no member published"));
            }
        }
        let lost = Losses::of(records, &streams, record);
        let both = seen.iter().filter(|message| {
            streams.seqno(**message).is_some_and(|seqno| lost.must_hold(message.sender(), seqno))
        });
        found.extend(both.map(|message| format!("{process}: {message} delivered and lost")));
        let damaged = record.entries.iter().filter(|entry| matches!(entry, Entry::Damaged { .. }));
        found.extend(damaged.map(|_| format!("{process} received a damaged message")));
        if record.entries.iter().any(|entry| matches!(entry, Entry::Closed)) {
            found.push(format!("the group was closed at {process}"));
        }
    }
    found
}

/// Returns messages that live members neither received nor were notified of as lost. A member is
/// owed all messages of a sender after the first one that it received: up to the last one published
/// if the sender lives, otherwise up to the last one that the member received.
pub(crate) fn owed(records: &Records, alive: &[Process]) -> Vec<Violation> {
    let streams = Streams::of(records);
    let mut found = Vec::new();
    for receiver in alive {
        let record = &records[receiver];
        let lost = Losses::of(records, &streams, record);
        let mut given: BTreeMap<Process, BTreeSet<u64>> = BTreeMap::new();
        for Delivery { message, .. } in record.deliveries() {
            given.entry(message.sender()).or_default().insert(message.number);
        }
        for (sender, numbers) in given.iter().filter(|(sender, _)| *sender != receiver) {
            let first = numbers.first().copied().unwrap_or_default();
            let last = match alive.contains(sender) {
                true => records[sender].published,
                false => numbers.last().copied().unwrap_or_default(),
            };
            let missing = (first..=last).filter(|number| {
                let message = Payload { host: sender.host, start: sender.start, number: *number };
                !numbers.contains(number) && !lost.covers(&streams, message)
            });
            found.extend(ranges(missing).into_iter().map(|range| {
                format!("{receiver} received neither {range} of {sender} nor a report of its loss")
            }));
        }
    }
    found
}

/// Returns messages of live members without any trace: no member received them, no other member was
/// notified of the loss, and the sender was not notified that they were given up.
pub(crate) fn unanswered(records: &Records, alive: &[Process]) -> Vec<Violation> {
    let streams = Streams::of(records);
    let losses_at = |process| (process, Losses::of(records, &streams, &records[process]));
    let losses: Vec<(&Process, Losses)> = alive.iter().map(losses_at).collect();
    let mut found = Vec::new();
    for sender in alive {
        let others = || losses.iter().filter(|(process, _)| *process != sender);
        let Record { published, given_up, .. } = &records[sender];
        let unanswered = (1..=*published).filter(|number| {
            let message = Payload { host: sender.host, start: sender.start, number: *number };
            let is_given = streams.seqno(message).is_some();
            let is_lost = || others().any(|(_, lost)| lost.covers(&streams, message));
            !is_given && !given_up.contains(number) && !is_lost()
        });
        found.extend(ranges(unanswered).into_iter().map(|range| {
            format!("no member received {range} of {sender}, and the sender got no report")
        }));
    }
    found
}

pub(crate) fn unseen(records: &Records, alive: &[Process]) -> Vec<Violation> {
    let mut found = Vec::new();
    for member in alive {
        let view = &records[member].view;
        let others = alive.iter().filter(|it| *it != member && !view.contains(&it.host));
        found.extend(others.map(|other| format!("{member} does not see {other}")));
    }
    found
}

/// Returns live members that received nothing that a live sender published after the faults ended.
pub(crate) fn unreached(records: &Records, alive: &[Process], tails: &Tails) -> Vec<Violation> {
    let mut found = Vec::new();
    for receiver in alive {
        for (sender, number) in tails.iter().filter(|(sender, _)| *sender != receiver) {
            let reached = records[receiver].deliveries().any(|Delivery { message, .. }| {
                (message.host, message.start) == (sender.host, sender.start)
                    && message.number > *number
            });
            if !reached {
                found.push(format!("{receiver} received nothing of {sender} after the faults"));
            }
        }
    }
    found
}

/// The highest number published by each live sender when the faults ended.
pub(crate) type Tails = BTreeMap<Process, u64>;

/// Checks the rules of an ordered group. Each place has one message, and each message has one
/// place. Places increase. A member has no gap during a stay in the ring. Every acknowledged
/// message is at every member whose stay in the ring spans its place.
pub(crate) fn order(records: &Records, alive: &[Process]) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut order: BTreeMap<Place, Payload> = BTreeMap::new();
    let mut places: HashMap<Payload, Place> = HashMap::new();
    for (process, record) in records {
        for Delivery { message, place, .. } in record.deliveries() {
            let Some(place) = *place else {
                found.push(format!("{process} received {message} without a place"));
                continue;
            };
            let other = *order.entry(place).or_insert(*message);
            let elsewhere = *places.entry(*message).or_insert(place);
            if other != *message || elsewhere != place {
                found.push(format!(
                    "{process}: {message} at {place:?}; {other} there, or {elsewhere:?}"
                ));
            }
        }
    }
    for (process, record) in records {
        for stay in stays(record) {
            found.extend(
                stay.windows(2)
                    .filter(|pair| pair[0] >= pair[1])
                    .map(|pair| format!("{process} received {:?} after {:?}", pair[1], pair[0])),
            );
            let (Some(first), Some(last)) = (stay.first(), stay.last()) else { continue };
            let given: BTreeSet<Place> = stay.iter().copied().collect();
            let holes = order.range(*first..=*last).filter(|(place, _)| !given.contains(place));
            found.extend(holes.map(|(place, message)| {
                format!("{process} did not receive {message} at {place:?}")
            }));
        }
    }
    for (sender, record) in records {
        let unknown = record.acknowledged.iter().filter(|number| {
            let message = Payload { host: sender.host, start: sender.start, number: **number };
            !places.contains_key(&message)
        });
        found.extend(
            unknown.map(|number| {
                format!("#{number} of {sender} was acknowledged, but no record has it")
            }),
        );
    }
    if alive.iter().any(|process| records[process].acknowledged.is_empty()) {
        found.push("a live member never had a message acknowledged".to_owned());
    }
    found
}

fn stays(record: &Record) -> Vec<Vec<Place>> {
    let mut stays = vec![Vec::new()];
    for entry in &record.entries {
        match entry {
            Entry::Removed { .. } => stays.push(Vec::new()),
            Entry::Delivered(Delivery { place: Some(place), .. }) => {
                stays.last_mut().expect("there is always a stay").push(*place);
            }
            _ => {}
        }
    }
    stays
}

struct Losses(Vec<Loss>);

/// A range of sequence numbers of a host's stream that were reported lost.
struct Loss {
    host: u32,
    first: u32,
    last: u32,
    /// Processes of the host to which the report may refer. A receiver receives from one at a time.
    starts: Vec<u32>,
}

impl Losses {
    fn of(records: &Records, streams: &Streams, record: &Record) -> Self {
        let mut losses = Vec::new();
        for (at, entry) in record.entries.iter().enumerate() {
            let Entry::Lost { sender: host, first, last, .. } = *entry else { continue };
            let before = start_of(host, record.entries[..at].iter().rev());
            let after = start_of(host, record.entries[at..].iter());
            let starts = before.unwrap_or(0)..=after.unwrap_or(u32::MAX);
            let starts = records
                .range(Process { host, start: *starts.start() }..)
                .take_while(|(process, _)| process.host == host && starts.contains(&process.start))
                .filter(|(process, record)| record.published > 0 || streams.has(**process))
                .map(|(process, _)| process.start)
                .collect();
            losses.push(Loss { host, first, last, starts });
        }
        Self(losses)
    }

    fn of_sender(&self, sender: Process) -> impl Iterator<Item = &Loss> {
        let is_of = move |it: &&Loss| it.host == sender.host && it.starts.contains(&sender.start);
        self.0.iter().filter(is_of)
    }

    fn may_hold(&self, sender: Process, seqno: u32) -> bool {
        self.of_sender(sender).any(|loss| loss.holds(seqno))
    }

    fn must_hold(&self, sender: Process, seqno: u32) -> bool {
        self.of_sender(sender).any(|loss| loss.starts.len() == 1 && loss.holds(seqno))
    }

    /// Returns `true` if `message` was reported lost. If no member received it, its number is
    /// unknown, but before that of the next message that a member received.
    fn covers(&self, streams: &Streams, message: Payload) -> bool {
        let sender = message.sender();
        if let Some(seqno) = streams.seqno(message) {
            return self.may_hold(sender, seqno);
        }
        match (streams.after(message), streams.before(message)) {
            (Some(after), _) => self.may_hold(sender, after.wrapping_sub(1)),
            (None, Some(before)) => {
                self.of_sender(sender).any(|loss| (loss.last.wrapping_sub(before) as i32) > 0)
            }
            (None, None) => false,
        }
    }
}

impl Loss {
    fn holds(&self, seqno: u32) -> bool {
        seqno.wrapping_sub(self.first) <= self.last.wrapping_sub(self.first)
    }
}

fn start_of<'a>(host: u32, mut entries: impl Iterator<Item = &'a Entry>) -> Option<u32> {
    entries.find_map(|entry| match entry {
        Entry::Delivered(delivery) if delivery.message.host == host => Some(delivery.message.start),
        _ => None,
    })
}

fn ranges(numbers: impl Iterator<Item = u64>) -> Vec<String> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => ranges.push((number, number)),
        }
    }
    ranges.into_iter().map(|(first, last)| format!("#{first} to #{last}")).collect()
}
