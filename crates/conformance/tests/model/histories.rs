//! The states that members have reached, each stored once.
//!
//! A member's state follows from its inputs, so a history identifies it. Engines in the same state
//! after different histories share one entry. The effect of an input on a state is computed once,
//! by an engine that is brought to that state.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::{self, Debug, Write as _};
use std::hash::Hasher as _;

use bytes::Bytes;
use carom_proto::ring::{Epoch, RingNews, Timestamp};
use carom_proto::rmp::Round;
use carom_proto::rmp::packet::{NewList, Packet};
use carom_proto::{Destination, Engine as _, Event, NodeId, Time};
use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::replica::{GROUP, Input, Note, Replica, Terms, node, number, packet};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StateIx(usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DatagramIx(usize);

#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) member: usize,
    inputs: Vec<Input>,
    /// Notes of the member's events, each with the number of inputs so far that produced notes.
    pub(crate) notes: Vec<(u64, Note)>,
    notes_digest: u128,
    batches: u64,
    pub(crate) held: BTreeSet<u64>,
    /// Rounds that the member has sent. More than one round for a place is a fault.
    pub(crate) said: BTreeMap<(Epoch, Timestamp), Vec<Round>>,
    /// Messages delivered to the member. Each is listed with the nodes that must have it if all
    /// must have it: the members of its view at that time, without those removed at the same
    /// instant.
    pub(crate) told: Vec<(u64, Vec<NodeId>)>,
    /// Digest that is equal for all states that the rules need not distinguish.
    pub(crate) facts: u128,
    pub(crate) is_in: bool,
    pub(crate) due: Option<Time>,
}

#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) next: StateIx,
    pub(crate) datagrams: Vec<(Destination, DatagramIx)>,
}

#[derive(Debug)]
pub(crate) struct Histories {
    terms: Terms,
    known: Vec<Known>,
    states: HashMap<u128, StateIx>,
    steps: HashMap<(StateIx, Input), Step>,
    datagrams: Vec<Bytes>,
    datagram_ixs: HashMap<Bytes, DatagramIx>,
}

impl Histories {
    pub(crate) fn new(terms: Terms) -> Self {
        Self {
            terms,
            known: Vec::new(),
            states: HashMap::new(),
            steps: HashMap::new(),
            datagrams: Vec::new(),
            datagram_ixs: HashMap::new(),
        }
    }

    pub(crate) fn fresh(&mut self, member: usize) -> StateIx {
        let known = Known {
            member,
            inputs: Vec::new(),
            notes: Vec::new(),
            notes_digest: 0,
            batches: 0,
            held: BTreeSet::new(),
            said: BTreeMap::new(),
            told: Vec::new(),
            facts: 0,
            is_in: false,
            due: None,
        };
        self.keep(known, &Replica::new(member, self.terms))
    }

    pub(crate) fn known(&self, state: StateIx) -> &Known {
        &self.known[state.0]
    }

    pub(crate) fn datagram(&self, datagram: DatagramIx) -> Bytes {
        self.datagrams[datagram.0].clone()
    }

    pub(crate) fn replica(&self, state: StateIx) -> Replica {
        let known = self.known(state);
        let mut replica = Replica::new(known.member, self.terms);
        for input in &known.inputs {
            replica.give(input);
        }
        replica
    }

    pub(crate) fn step(&mut self, state: StateIx, input: Input) -> Step {
        let key = (state, input);
        if let Some(step) = self.steps.get(&key) {
            return step.clone();
        }
        let mut replica = self.replica(state);
        let output = replica.give(&key.1);
        let mut known = self.known(state).clone();
        known.inputs.push(key.1.clone());
        known.learn(&key.1, &output.datagrams, output.notes);
        known.is_in = replica.engine.has(GROUP);
        known.due = replica.engine.poll_timeout().map(|wakeup| wakeup.at);
        let next = self.keep(known, &replica);
        let datagrams = output.datagrams.into_iter();
        let datagrams = datagrams.map(|(to, datagram)| (to, self.ix_of(datagram))).collect();
        let step = Step { next, datagrams };
        self.steps.insert(key, step.clone());
        step
    }

    fn keep(&mut self, mut known: Known, replica: &Replica) -> StateIx {
        let Known { notes_digest, held, said, .. } = &known;
        known.facts = digest(&(notes_digest, held, said));
        let all = digest(&(known.member, known.facts, replica));
        let next = StateIx(self.known.len());
        let ix = *self.states.entry(all).or_insert(next);
        if ix == next {
            self.known.push(known);
        }
        ix
    }

    fn ix_of(&mut self, datagram: Vec<u8>) -> DatagramIx {
        let datagram = Bytes::from(datagram);
        let next = DatagramIx(self.datagrams.len());
        let ix = *self.datagram_ixs.entry(datagram.clone()).or_insert(next);
        if ix == next {
            self.datagrams.push(datagram);
        }
        ix
    }
}

impl Known {
    fn learn(&mut self, input: &Input, out: &[(Destination, Vec<u8>)], notes: Vec<Note>) {
        match input {
            Input::Send(number, _) => _ = self.held.insert(*number),
            Input::Datagram(datagram) => {
                if let Packet::Data(data) = packet(datagram) {
                    self.held.extend(number(&data.data.payload));
                }
            }
            _ => {}
        }
        for (_, datagram) in out {
            if let Packet::Ack { epoch, round }
            | Packet::NewList(NewList::Change { epoch, round }) = packet(datagram)
            {
                let said = self.said.entry((epoch, round.at)).or_default();
                if !said.contains(&round) {
                    said.push(round);
                }
            }
        }
        if notes.is_empty() {
            return;
        }
        self.notes_digest = digest(&(self.notes_digest, &notes));
        self.batches += 1;
        self.note_told(&notes);
        self.notes.extend(notes.into_iter().map(|note| (self.batches, note)));
    }

    fn note_told(&mut self, notes: &[Note]) {
        let first = self.told.len();
        let mut view = self.view();
        for note in notes {
            match note {
                Note::Told(Event::Message(message)) => {
                    self.told.extend(number(&message.payload).map(|it| (it, view.clone())));
                }
                Note::Told(Event::Ring(event)) => {
                    if let RingNews::View(event) = &event.news {
                        view = event.view.processes().map(|process| process.node).collect();
                    }
                }
                _ => {}
            }
        }
        if view.contains(&node(self.member)) {
            for (_, members) in &mut self.told[first..] {
                members.retain(|member| view.contains(member));
            }
        }
    }

    pub(crate) fn view(&self) -> Vec<NodeId> {
        let views = self.views().last();
        views.map_or_else(Vec::new, |view| view.processes().map(|process| process.node).collect())
    }

    pub(crate) fn views(&self) -> impl Iterator<Item = &carom_proto::ring::RingView> {
        self.notes.iter().filter_map(|(_, note)| match note {
            Note::Told(Event::Ring(event)) => match &event.news {
                RingNews::View(event) => Some(&event.view),
                _ => None,
            },
            _ => None,
        })
    }
}

fn digest(value: &impl Debug) -> u128 {
    let mut hash = TextHash(SipHasher13::new());
    write!(hash, "{value:?}").expect("writing to a hash succeeds");
    hash.0.finish128().as_u128()
}

struct TextHash(SipHasher13);

impl fmt::Write for TextHash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
