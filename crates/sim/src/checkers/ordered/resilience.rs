//! What one member was told of a message that survives so many deaths, no survivor misses.
//!
//! A reformation after which at most K members are gone keeps every K resilient message: who goes
//! through it, and was in the view in which somebody was told the message, was told it before the
//! new ring. Of a totally resilient one that holds however many are gone, and of a majority
//! resilient one in every ring that goes on. Where several partitions may go on, what one of them
//! gives a place in its reformation is kept by its own members, and is not counted here.

use std::collections::BTreeSet;

use carom_proto::rmp::{Epoch, Process, Qos, RingView};

use super::story::{Account, Chapter, Sent};
use crate::checkers::Violation;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Vec<Violation>) {
    for survivor in accounts {
        let Some(process) = survivor.process() else { continue };
        let eras: Vec<&[Chapter<'_>]> = survivor.eras().collect();
        for (at, new) in eras.iter().enumerate().skip(1) {
            let way = [eras[at - 1], new].map(|era| era[0].event.view.epoch);
            let chapters = eras[..at].iter().copied().flatten();
            let told: BTreeSet<u64> =
                chapters.flat_map(|it| &it.heard).map(|(number, _)| *number).collect();
            for witness in accounts.iter().filter(|it| it.node != survivor.node) {
                let missed = told_in(witness, way, process).filter(|it| !told.contains(it.1));
                for (view, number, sent) in missed {
                    let gone = gone(view, eras[at - 1], new);
                    if !survives(sent, gone) {
                        continue;
                    }
                    let what = format!(
                        "{witness} was told message {number} ({}) in {:?}, {survivor} not, though \
                         only {gone} were gone",
                        sent.qos, way[0]
                    );
                    found.push(Violation::new("resilience", what));
                }
            }
        }
    }
}

/// How many members of the witness's view the survivor goes on without: those that its new ring
/// declares failed, and those that had joined before without its knowing.
fn gone(view: &RingView, era: &[Chapter<'_>], new: &[Chapter<'_>]) -> usize {
    let begin = &new[0].event;
    let is_known = |process: Process| {
        let mut views = era.iter().chain(new.first()).map(|it| &it.event.view);
        views.any(|view| view.contains(process))
    };
    let unknown = view.processes().filter(|it| !is_known(*it) && !begin.failed.contains(it));
    begin.failed.len() + unknown.count()
}

/// What a witness was told in the first of these rings, in views that had `process`. If it went
/// another way, that is only what it was told before.
fn told_in<'a>(
    witness: &'a Account<'a>,
    way: [Epoch; 2],
    process: Process,
) -> impl Iterator<Item = (&'a RingView, &'a u64, &'a Sent)> {
    let epoch = |chapter: &Chapter<'_>| chapter.event.view.epoch;
    let from = witness.chapters.iter().position(|it| epoch(it) == way[0]);
    let rest = &witness.chapters[from.unwrap_or(witness.chapters.len())..];
    let next = rest.iter().find(|it| epoch(it) != way[0]);
    let went = next.filter(|it| epoch(it) != way[1]).map(|it| it.begun);
    let here = rest.iter().take_while(move |it| epoch(it) == way[0]);
    let shared = here.filter(move |it| it.event.view.contains(process));
    shared.flat_map(move |it| {
        let heard = went.map_or(&it.heard[..], |time| it.heard_before(time));
        heard.iter().map(|(number, sent)| (&it.event.view, number, *sent))
    })
}

fn survives(sent: &Sent, gone: usize) -> bool {
    match sent.qos {
        Qos::Resilient(k) => gone <= usize::from(k),
        Qos::MajorityResilient | Qos::TotallyResilient => true,
        _ => false,
    }
}
