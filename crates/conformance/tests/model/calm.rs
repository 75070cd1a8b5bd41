//! The outcome of a state without further faults. All datagrams arrive, and all clocks agree.

use std::collections::VecDeque;

use bytes::Bytes;
use carom_conformance::Record as _;
use carom_conformance::rmp::checkers::{all, is_all_delivered, is_whole};
use carom_conformance::rmp::{FinalState, History};
use carom_proto::{Engine as _, Time};

use super::histories::Histories;
use super::replica::{GROUP, Input, Note, Replica, node};
use super::rings::{MEMBERS, State, is_meant};
use super::rules;

struct Calm<'a> {
    state: &'a State,
    replicas: [Replica; MEMBERS],
    under_way: VecDeque<(usize, Bytes)>,
    history: History,
    now: Time,
}

pub(crate) fn ending(histories: &Histories, state: &State) -> Vec<String> {
    let replicas = state.members.map(|member| histories.replica(member));
    let history = rules::history(state.members.map(|member| histories.known(member)));
    let now = replicas.iter().map(|replica| replica.now).max().unwrap_or_default();
    let under_way = state.under_way.iter().flat_map(|((_, to), waiting)| {
        waiting.iter().map(|datagram| (*to, histories.datagram(*datagram)))
    });
    let under_way = under_way.collect();
    let mut calm = Calm { state, replicas, under_way, history, now };
    for member in (0..MEMBERS).filter(|member| !state.is_alive[*member]) {
        calm.history.died(calm.now, node(member));
    }
    calm.history.healed(HEALED);
    (0..MEMBERS).for_each(|member| calm.give(member, &Input::Clock(now)));
    calm.tell_who_is_there();
    calm.run();
    all(&calm.history).iter().map(ToString::to_string).collect()
}

/// A time later than those of all earlier notes, which are numbers of inputs.
const HEALED: Time = Time(1_000_000);
const PATIENCE: usize = 4000;

impl Calm<'_> {
    fn tell_who_is_there(&mut self) {
        for (member, other) in (0..MEMBERS * MEMBERS).map(|ix| (ix / MEMBERS, ix % MEMBERS)) {
            let is_there = self.is_there(other);
            if other != member {
                let input = if is_there { Input::There(other) } else { Input::Gone(other) };
                self.give(member, &input);
            }
        }
    }

    fn is_there(&self, member: usize) -> bool {
        self.state.is_alive[member] && self.replicas[member].engine.has(GROUP)
    }

    fn run(&mut self) {
        self.run_until(|calm| is_whole(&calm.states()));
        let states = self.states();
        self.history.note_states(states);
        self.run_until(|calm| is_all_delivered(&calm.history));
    }

    /// Runs until `is_done` with no datagrams in flight, or until no timer is due any more.
    fn run_until(&mut self, is_done: impl Fn(&Self) -> bool) {
        for _ in 0..PATIENCE {
            if let Some((to, datagram)) = self.under_way.pop_front() {
                self.give(to, &Input::Datagram(datagram));
                continue;
            }
            let alive = (0..MEMBERS).filter(|member| self.state.is_alive[*member]);
            let dues = alive.filter_map(|it| self.replicas[it].engine.poll_timeout());
            let due = dues.map(|wakeup| wakeup.at).min();
            let Some(due) = due.filter(|_| !is_done(self)) else { return };
            self.now = self.now.max(due);
            let now = self.now;
            (0..MEMBERS).for_each(|member| self.give(member, &Input::Clock(now)));
        }
    }

    fn give(&mut self, member: usize, input: &Input) {
        if !self.state.is_alive[member] {
            return;
        }
        let output = self.replicas[member].give(input);
        for note in output.notes {
            let at = HEALED + self.now.since(Time::ZERO);
            rules::write_down(&mut self.history, member, at, &note);
            debug_assert!(matches!(note, Note::Told(_)), "a member still acts");
        }
        for (destination, datagram) in output.datagrams {
            let datagram = Bytes::from(datagram);
            for to in (0..MEMBERS).filter(|to| *to != member && is_meant(&destination, *to)) {
                self.under_way.push_back((to, datagram.clone()));
            }
        }
    }

    fn states(&self) -> Vec<FinalState> {
        let there = (0..MEMBERS).filter(|member| self.is_there(*member));
        let states = there.map(|member| {
            let view = self.replicas[member].engine.view(GROUP).cloned();
            let (group, node) = (GROUP, node(member));
            FinalState { group, node, view, is_voter: true, is_minority: false }
        });
        states.collect()
    }
}
