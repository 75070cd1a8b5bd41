//! Rules for every state of the model, in addition to those for simulated runs.

use std::collections::BTreeMap;

use bytes::Bytes;
use carom_conformance::Record as _;
use carom_conformance::rmp::{History, Sent, checkers};
use carom_proto::ring::{Epoch, Place, Qos, RingNews, Timestamp};
use carom_proto::rmp::Round;
use carom_proto::{Event, Message, Time};

use super::histories::Known;
use super::replica::{GROUP, Note, node, payload};

/// The rule that each place of a ring has one round, whichever member repeats it.
pub(crate) const ONE_ROUND: &str = "one round for each place";
pub(crate) const ONE_MESSAGE: &str = "one message at each place";
pub(crate) const HELD: &str = "resilient messages are held by enough members";
/// The rule that no ring has two successors, each entered by as many members as they require.
pub(crate) const ONE_RING: &str = "one ring continues";
pub(crate) const IN_OR_OUT: &str = "a member is in the ring or outside";
pub(crate) const HISTORY: &str = "the rules of simulated runs";

pub(crate) fn broken(members: [&Known; 3]) -> Vec<&'static str> {
    let rules = [
        (ONE_ROUND, has_one_round(members)),
        (ONE_MESSAGE, has_one_message(members)),
        (HELD, is_held(members)),
        (ONE_RING, has_one_ring(members)),
        (IN_OR_OUT, is_in_or_out(members)),
        (HISTORY, checkers::all(&history(members)).is_empty()),
    ];
    rules.into_iter().filter(|(_, holds)| !holds).map(|(rule, _)| rule).collect()
}

fn has_one_round(members: [&Known; 3]) -> bool {
    let mut rounds: BTreeMap<(Epoch, Timestamp), &Round> = BTreeMap::new();
    let mut said = members.into_iter().flat_map(|member| &member.said);
    said.all(|(place, said)| {
        said.iter().all(|round| *rounds.entry(*place).or_insert(round) == round)
    })
}

fn has_one_message(members: [&Known; 3]) -> bool {
    let mut messages: BTreeMap<Place, &Bytes> = BTreeMap::new();
    let mut notes = members.into_iter().flat_map(|member| &member.notes);
    notes.all(|(_, note)| {
        let Note::Told(Event::Message(Message { place: Some(place), payload, .. })) = note else {
            return true;
        };
        *messages.entry(*place).or_insert(payload) == payload
    })
}

fn is_held(members: [&Known; 3]) -> bool {
    let sent: BTreeMap<u64, Qos> = members.into_iter().flat_map(sent).collect();
    members.into_iter().flat_map(|member| &member.told).all(|(number, view)| {
        let has =
            |known: &&Known| view.contains(&node(known.member)) && known.held.contains(number);
        let needed = match sent.get(number) {
            Some(Qos::Resilient(k)) => (usize::from(*k) + 1).min(view.len()),
            Some(Qos::MajorityResilient) => view.len() / 2 + 1,
            Some(Qos::TotallyResilient) => view.len(),
            _ => 0,
        };
        members.iter().filter(|known| has(known)).count() >= needed
    })
}

fn sent(member: &Known) -> impl Iterator<Item = (u64, Qos)> {
    member.notes.iter().filter_map(|(_, note)| match note {
        Note::Sent(number, _, qos) => Some((*number, *qos)),
        _ => None,
    })
}

fn has_one_ring(members: [&Known; 3]) -> bool {
    let mut next: BTreeMap<Epoch, BTreeMap<Epoch, (usize, usize)>> = BTreeMap::new();
    for member in members {
        let mut last = None;
        for (_, note) in &member.notes {
            let Note::Told(Event::Ring(event)) = note else { continue };
            match &event.news {
                RingNews::View(event) => {
                    let to = event.view.epoch;
                    if let Some(from) = last.replace(to).filter(|from| *from != to) {
                        let rings = next.entry(from).or_default();
                        let (_, entered) = rings.entry(to).or_insert((event.view.least(), 0));
                        *entered += 1;
                    }
                }
                // Later events belong to another life, in another ring.
                RingNews::Removed { .. } => last = None,
                _ => {}
            }
        }
    }
    next.values()
        .all(|rings| rings.values().filter(|(least, entered)| entered >= least).count() <= 1)
}

fn is_in_or_out(members: [&Known; 3]) -> bool {
    let mut views = BTreeMap::new();
    members.into_iter().all(|member| {
        let agree = member.views().all(|view| {
            let name = (view.epoch, view.version);
            *views.entry(name).or_insert(&view.members) == &view.members
        });
        let mut is_in = false;
        let holds = member.notes.iter().all(|(_, note)| match note {
            Note::Told(Event::Message(_)) => is_in,
            Note::Told(Event::Ring(event)) => match &event.news {
                RingNews::View(event) => {
                    let is_listed = event.view.process_of(node(member.member)).is_some();
                    // A member that is out receives no view except the one that admits it.
                    let was_in = std::mem::replace(&mut is_in, is_listed);
                    was_in || is_listed
                }
                RingNews::Removed { .. } => {
                    is_in = false;
                    true
                }
                _ => true,
            },
            _ => true,
        });
        agree && holds
    })
}

pub(crate) fn history(members: [&Known; 3]) -> History {
    let mut history = History::default();
    let mut rest = members.map(|member| &member.notes[..]);
    let is_sent = |number: u64, all: &[&[(u64, Note)]; 3]| {
        let mut open = all.iter().flat_map(|notes| notes.iter());
        !open.any(|(_, note)| matches!(note, Note::Sent(other, ..) if *other == number))
    };
    // A message is recorded as sent before any delivery of it, even at the same instant.
    loop {
        let ready = (0..3).find(|member| match rest[*member].first() {
            Some((_, Note::Told(Event::Message(message)))) => {
                let number = super::replica::number(&message.payload);
                number.is_none_or(|number| is_sent(number, &rest))
            }
            first => first.is_some(),
        });
        let Some(member) = ready.or((0..3).find(|member| !rest[*member].is_empty())) else {
            return history;
        };
        let ((batch, note), others) = rest[member].split_first().expect("it is not empty");
        rest[member] = others;
        write_down(&mut history, member, Time(*batch), note);
    }
}

pub(crate) fn write_down(history: &mut History, member: usize, at: Time, note: &Note) {
    let by = node(member);
    match note {
        Note::Joined => history.joined(at, by, GROUP),
        Note::Left => history.left(at, by, GROUP),
        Note::Sent(number, seqno, qos) => {
            let (group, sender, life, payload) = (GROUP, by, 0, payload(*number));
            let (seqno, qos) = (*seqno, *qos);
            history.sent(*number, Sent { group, sender, life, seqno, qos, at, payload });
        }
        Note::Told(event) => history.event(at, by, event.clone()),
    }
}
