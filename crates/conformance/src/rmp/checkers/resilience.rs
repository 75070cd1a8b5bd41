//! The rule that no survivor lacks a message that one member received and whose resilience covers
//! the number of failures.
//!
//! A reformation after which at most K members are gone keeps every K-resilient message: a member
//! that takes part in it, and was in the view in which another member received the message, has
//! received it before the new ring. For a totally resilient message, this holds for any number of
//! lost members. For a majority-resilient message, it holds in every ring that continues. Where
//! several partitions may continue, the order that one of them assigns in its reformation is kept
//! only by its own members, and is not checked here.

use std::collections::BTreeSet;

use carom_proto::ring::{Epoch, Process, Qos, RingView};

use crate::findings::Findings;
use crate::rmp::history::{Account, Period, Sent};

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    for survivor in accounts {
        let Some(process) = survivor.process() else { continue };
        let eras: Vec<&[Period<'_>]> = survivor.eras().collect();
        for (at, new) in eras.iter().enumerate().skip(1) {
            let way = [eras[at - 1], new].map(|era| era[0].event.view.epoch);
            let periods = eras[..at].iter().copied().flatten();
            let received: BTreeSet<u64> =
                periods.flat_map(|it| &it.heard).map(|(number, _)| *number).collect();
            for witness in accounts.iter().filter(|it| it.node != survivor.node) {
                let missed =
                    received_in(witness, way, process).filter(|it| !received.contains(it.1));
                for (view, number, sent) in missed {
                    let gone = gone(view, eras[at - 1], new);
                    if !survives(sent, gone) {
                        continue;
                    }
                    found.add("resilience", format!(
                        "{witness} received message {number} ({}) in {:?}, but {survivor} did not, \
                         although only {gone} were gone",
                        sent.qos, way[0]
                    ));
                }
            }
        }
    }
}

/// Returns the number of members of the witness's view without which the survivor continues. They
/// are those that its new ring declares failed, and those that joined before without its notice.
fn gone(view: &RingView, era: &[Period<'_>], new: &[Period<'_>]) -> usize {
    let begin = &new[0].event;
    let is_known = |process: Process| {
        let mut views = era.iter().chain(new.first()).map(|it| &it.event.view);
        views.any(|view| view.contains(process))
    };
    let unknown = view.processes().filter(|it| !is_known(*it) && !begin.failed.contains(it));
    begin.failed.len() + unknown.count()
}

/// Returns the messages that a witness received in the first of these rings, in views that contain
/// `process`. If the witness moved to a ring other than the second, only messages before the
/// instant of that move count.
fn received_in<'a>(
    witness: &'a Account<'a>,
    way: [Epoch; 2],
    process: Process,
) -> impl Iterator<Item = (&'a RingView, &'a u64, &'a Sent)> {
    let epoch = |period: &Period<'_>| period.event.view.epoch;
    let from = witness.periods.iter().position(|it| epoch(it) == way[0]);
    let rest = &witness.periods[from.unwrap_or(witness.periods.len())..];
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
