//! The model: three members, the datagrams between them, and all possible next events.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use carom_proto::Destination;
use carom_proto::ring::Qos;
use stateright::{Model, Property};

use super::calm;
use super::histories::{DatagramIx, Histories, Known, StateIx};
use super::replica::{Input, Terms, node};
use super::rules;

pub(crate) const MEMBERS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) members: usize,
    pub(crate) terms: Terms,
    pub(crate) sends: Vec<(usize, Qos)>,
    /// `true` if datagrams between two members arrive in any order, not in the order of sending.
    pub(crate) is_unordered: bool,
    pub(crate) may: Budget,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) joins: u8,
    pub(crate) leaves: u8,
    pub(crate) losses: u8,
    pub(crate) repeats: u8,
    /// Deliveries of a datagram before one sent earlier, if datagrams are otherwise in order.
    pub(crate) overtakings: u8,
    pub(crate) timeouts: u8,
    /// Reports of the membership to any member, true or false, that any other member is gone.
    pub(crate) suspicions: u8,
    pub(crate) crashes: u8,
    /// Partitions of a member from the others. All datagrams in flight are then lost.
    pub(crate) cuts: u8,
    pub(crate) heals: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Deliver(usize, usize, DatagramIx),
    Overtake(usize, usize, DatagramIx),
    Repeat(usize, usize, DatagramIx),
    Lose(usize, usize, DatagramIx),
    Timeout(usize),
    Send(usize),
    Join(usize),
    Leave(usize),
    Suspect(usize, usize),
    Crash(usize),
    CutOff(usize),
    Heal,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) members: [StateIx; MEMBERS],
    /// Datagrams in flight, by sender and receiver, in the order of sending. If they may arrive in
    /// any order, they are in the order of their indices.
    pub(crate) under_way: BTreeMap<(usize, usize), Vec<DatagramIx>>,
    pub(crate) is_alive: [bool; MEMBERS],
    pub(crate) is_cut_off: [bool; MEMBERS],
    sent: u32,
    may: Budget,
}

pub(crate) struct Rings {
    scenario: Scenario,
    start: State,
    histories: Mutex<Histories>,
    verdicts: Mutex<HashMap<[u128; MEMBERS], Vec<&'static str>>>,
    endings: Mutex<HashMap<State, bool>>,
    reached: Vec<Reached>,
}

/// A condition that some state must meet, to show that the model checks something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached(
    pub(crate) &'static str,
    pub(crate) fn(&Scenario, &[Known; MEMBERS]) -> bool,
);

impl Rings {
    pub(crate) fn of(scenario: Scenario, reached: &[Reached]) -> Self {
        let mut histories = Histories::new(scenario.terms);
        let members = [0, 1, 2].map(|member| histories.fresh(member));
        let start = State {
            members,
            under_way: BTreeMap::new(),
            is_alive: [true; MEMBERS],
            is_cut_off: [false; MEMBERS],
            sent: 0,
            may: scenario.may,
        };
        let (verdicts, endings) = (Mutex::default(), Mutex::default());
        let histories = Mutex::new(histories);
        let reached = reached.to_vec();
        let mut rings = Self { scenario, start, histories, verdicts, endings, reached };
        let mut state = rings.start.clone();
        for member in 0..rings.scenario.members {
            rings.give(&mut state, member, Input::Join);
            rings.begin(&mut state);
        }
        assert!(rings.broken(&state).is_empty(), "{:?}", rings.broken(&state));
        let views = rings.known(&state).map(|known| known.view().len());
        let ring = rings.scenario.members;
        assert!(views[..ring].iter().all(|view| *view == ring), "all are in a ring: {views:?}");
        rings.start = state;
        rings
    }

    fn begin(&self, state: &mut State) {
        for _ in 0..1000 {
            let first = state.under_way.iter().next().map(|(way, waiting)| (*way, waiting[0]));
            if let Some((way, datagram)) = first {
                self.deliver(state, way, datagram);
                continue;
            }
            let dues = self.known(state).map(|known| known.due);
            let Some(due) = dues.into_iter().flatten().min() else { return };
            (0..MEMBERS).for_each(|member| self.give(state, member, Input::Clock(due)));
        }
        panic!("the ring never becomes idle");
    }

    fn deliver(&self, state: &mut State, way: (usize, usize), datagram: DatagramIx) {
        take_one(state, way, datagram);
        self.hear(state, way.1, datagram);
    }

    fn hear(&self, state: &mut State, to: usize, datagram: DatagramIx) {
        let datagram = self.histories().datagram(datagram);
        self.give(state, to, Input::Datagram(datagram));
    }

    fn give(&self, state: &mut State, member: usize, input: Input) {
        let mut histories = self.histories();
        let step = histories.step(state.members[member], input);
        state.members[member] = step.next;
        for (destination, datagram) in step.datagrams {
            for to in (0..MEMBERS).filter(|to| *to != member && is_meant(&destination, *to)) {
                let is_cut = state.is_cut_off[to] != state.is_cut_off[member];
                let is_there = state.is_alive[to] && histories.known(state.members[to]).is_in;
                if is_there && !is_cut {
                    let waiting = state.under_way.entry((member, to)).or_default();
                    waiting.push(datagram);
                    if self.scenario.is_unordered {
                        waiting.sort_unstable();
                    }
                }
            }
        }
    }

    pub(crate) fn histories(&self) -> MutexGuard<'_, Histories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn known(&self, state: &State) -> [Known; MEMBERS] {
        let histories = self.histories();
        state.members.map(|member| histories.known(member).clone())
    }

    pub(crate) fn broken(&self, state: &State) -> Vec<&'static str> {
        let histories = self.histories();
        let members = state.members.map(|member| histories.known(member));
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let facts = members.map(|known| known.facts);
        verdicts.entry(facts).or_insert_with(|| rules::broken(members)).clone()
    }

    /// Returns `true` if the state recovers without further faults. Checks only states without
    /// datagrams in flight, which every other state leads to.
    fn ends_well(&self, state: &State) -> bool {
        if !state.under_way.is_empty() {
            return true;
        }
        let mut endings = self.endings.lock().unwrap_or_else(PoisonError::into_inner);
        let key = State { may: Budget::default(), sent: 0, ..state.clone() };
        *endings.entry(key).or_insert_with(|| self.ending(state).is_empty())
    }

    pub(crate) fn ending(&self, state: &State) -> Vec<String> {
        let histories = self.histories();
        calm::ending(&histories, state)
    }

    fn has_message(&self, state: &State, ix: usize) -> bool {
        state.sent & (1 << ix) == 0
    }
}

fn take_one(state: &mut State, way: (usize, usize), datagram: DatagramIx) {
    let Some(waiting) = state.under_way.get_mut(&way) else { return };
    if let Some(place) = waiting.iter().position(|it| *it == datagram) {
        waiting.remove(place);
    }
    state.under_way.retain(|_, waiting| !waiting.is_empty());
}

pub(crate) fn is_meant(destination: &Destination, to: usize) -> bool {
    match destination {
        Destination::Group(_) => true,
        Destination::Node(id) => *id == node(to),
        _ => false,
    }
}

impl Model for Rings {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start.clone()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let may = &state.may;
        for (&(from, to), waiting) in &state.under_way {
            for (place, &datagram) in waiting.iter().enumerate() {
                if waiting[..place].contains(&datagram) {
                    continue;
                }
                if place > 0 && !self.scenario.is_unordered {
                    let may_overtake = may.overtakings > 0;
                    let overtake = Action::Overtake(from, to, datagram);
                    actions.extend(may_overtake.then_some(overtake));
                    continue;
                }
                actions.push(Action::Deliver(from, to, datagram));
                actions.extend((may.losses > 0).then_some(Action::Lose(from, to, datagram)));
                actions.extend((may.repeats > 0).then_some(Action::Repeat(from, to, datagram)));
            }
        }
        let histories = self.histories();
        let known = state.members.map(|member| histories.known(member));
        for (ix, (by, _)) in self.scenario.sends.iter().enumerate() {
            let may_send = state.is_alive[*by] && known[*by].is_in;
            actions.extend((may_send && self.has_message(state, ix)).then_some(Action::Send(ix)));
        }
        for member in (0..MEMBERS).filter(|member| state.is_alive[*member]) {
            let is_old = member < self.scenario.members;
            let is_in = known[member].is_in;
            let has_joined = known[member].due.is_some() || is_in;
            let choices = [
                (may.joins > 0 && !is_old && !has_joined, Action::Join(member)),
                (may.leaves > 0 && is_old && is_in, Action::Leave(member)),
                (may.timeouts > 0 && known[member].due.is_some(), Action::Timeout(member)),
                (may.crashes > 0 && is_in, Action::Crash(member)),
                (may.cuts > 0 && is_in, Action::CutOff(member)),
            ];
            actions.extend(choices.iter().filter(|(may, _)| *may).map(|(_, action)| *action));
            let others = (0..MEMBERS).filter(|other| *other != member);
            let suspects = others.filter(|_| may.suspicions > 0 && is_in);
            actions.extend(suspects.map(|other| Action::Suspect(member, other)));
        }
        let is_cut = state.is_cut_off.contains(&true);
        actions.extend((may.heals > 0 && is_cut).then_some(Action::Heal));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        let may = &mut state.may;
        match action {
            Action::Deliver(from, to, datagram) => self.deliver(&mut state, (from, to), datagram),
            Action::Overtake(from, to, datagram) => {
                may.overtakings -= 1;
                self.deliver(&mut state, (from, to), datagram);
            }
            Action::Repeat(_, to, datagram) => {
                may.repeats -= 1;
                self.hear(&mut state, to, datagram);
            }
            Action::Lose(from, to, datagram) => {
                may.losses -= 1;
                take_one(&mut state, (from, to), datagram);
            }
            Action::Timeout(member) => {
                may.timeouts -= 1;
                self.give(&mut state, member, Input::Timeout);
            }
            Action::Send(ix) => {
                let (by, qos) = self.scenario.sends[ix];
                state.sent |= 1 << ix;
                self.give(&mut state, by, Input::Send(ix as u64, qos));
            }
            Action::Join(member) => {
                may.joins -= 1;
                self.give(&mut state, member, Input::Join);
            }
            Action::Leave(member) => {
                may.leaves -= 1;
                self.give(&mut state, member, Input::Leave);
            }
            Action::Suspect(by, other) => {
                may.suspicions -= 1;
                self.give(&mut state, by, Input::Gone(other));
            }
            Action::Crash(member) => {
                may.crashes -= 1;
                state.is_alive[member] = false;
                state.under_way.retain(|(_, to), _| *to != member);
            }
            Action::CutOff(member) => {
                may.cuts -= 1;
                state.is_cut_off[member] = true;
                state.under_way.clear();
            }
            Action::Heal => {
                may.heals -= 1;
                state.is_cut_off = [false; MEMBERS];
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(rules::ONE_ROUND, |it: &Self, at| it.keeps(rules::ONE_ROUND, at)),
            Property::always(rules::ONE_MESSAGE, |it: &Self, at| it.keeps(rules::ONE_MESSAGE, at)),
            Property::always(rules::HELD, |it: &Self, at| it.keeps(rules::HELD, at)),
            Property::always(rules::ONE_RING, |it: &Self, at| it.keeps(rules::ONE_RING, at)),
            Property::always(rules::IN_OR_OUT, |it: &Self, at| it.keeps(rules::IN_OR_OUT, at)),
            Property::always(rules::HISTORY, |it: &Self, at| it.keeps(rules::HISTORY, at)),
            Property::always(ENDS_WELL, Self::ends_well),
        ];
        let reached = [
            |it: &Self, state: &State| it.has_reached(0, state),
            |it: &Self, state: &State| it.has_reached(1, state),
            |it: &Self, state: &State| it.has_reached(2, state),
        ];
        assert!(self.reached.len() <= reached.len(), "there are too many conditions");
        let named = self.reached.iter().zip(reached);
        properties.extend(named.map(|(it, condition)| Property::sometimes(it.0, condition)));
        properties
    }
}

pub(crate) const ENDS_WELL: &str = "every state recovers without further faults";

impl Rings {
    fn keeps(&self, rule: &'static str, state: &State) -> bool {
        !self.broken(state).contains(&rule)
    }

    fn has_reached(&self, ix: usize, state: &State) -> bool {
        (self.reached[ix].1)(&self.scenario, &self.known(state))
    }
}
