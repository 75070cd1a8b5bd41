//! The rules of partitions.
//!
//! A part of a ring continues only with as many members as its view requires.
//!
//! If the requirement is a majority, a ring has two successors only if the first successor can no
//! longer continue. The second one then contains as many members of the first as the first
//! requires, and none of the members that moved to the first. This happens when the members that
//! begin the first successor are partitioned before the others learn of it. All members agree
//! permanently on the order of the messages that a majority held.

use std::collections::BTreeMap;

use carom_proto::ring::{Epoch, Process, Qos, Quorum, RingView, ViewEvent};

use crate::findings::Findings;
use crate::rmp::history::{Account, Period, name};

/// The successors of a ring. Each is given by its first view and the members that moved there.
type Followers<'a> = BTreeMap<Epoch, (&'a RingView, Vec<&'a Account<'a>>)>;

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    let mut followers: BTreeMap<Epoch, Followers<'_>> = BTreeMap::new();
    for account in accounts {
        let eras: Vec<&[Period<'_>]> = account.eras().collect();
        for pair in eras.windows(2) {
            let event = pair[0][pair[0].len() - 1].event;
            let (last, next) = (&event.view, &pair[1][0].event.view);
            let went_on: Vec<Process> = next.processes().collect();
            let went_on = last.voters_among(&went_on);
            if went_on < last.least() && !next.is_forced && !goes_on_without_joiner(event, next) {
                let what = format!(
                    "{account}: {} of {} members of {} continued: {} are required",
                    went_on,
                    last.voters().count(),
                    name(last),
                    last.least()
                );
                found.add("a minority does not continue", what);
            }
            if 2 * last.least() <= last.voters().count() || next.is_forced {
                continue;
            }
            let ring = followers.entry(last.epoch).or_default().entry(next.epoch);
            ring.or_insert((next, Vec::new())).1.push(account);
        }
    }
    for (epoch, followers) in &followers {
        one_goes_on(*epoch, followers, found);
    }
    if accounts.iter().any(is_by_majority) {
        agreed_order(accounts, found);
    }
}

/// Checks that, if a ring has two successors, the second contains enough of the members of the
/// first to end it, and none that moved to the first.
fn one_goes_on(epoch: Epoch, followers: &Followers<'_>, found: &mut Findings) {
    let rings: Vec<_> = followers.values().collect();
    for (at, (first, went)) in rings.iter().enumerate() {
        for (ix, (second, _)) in rings.iter().enumerate().skip(at + 1) {
            let common = second.voters().filter(|process| first.contains(*process));
            let is_enough = ix > at + 1 || common.count() >= first.least();
            let goes_both = |it: &&&Account<'_>| it.process().is_some_and(|it| second.contains(it));
            let torn = went.iter().find(goes_both);
            if is_enough && torn.is_none() {
                continue;
            }
            found.add(
                "one ring continues",
                format!(
                    "{epoch:?} was followed by {} with {} members and by {}; in both: {:?}",
                    name(first),
                    went.len(),
                    name(second),
                    torn.map(|account| account.to_string())
                ),
            );
        }
    }
}

/// Returns `true` if the ring continues without its last joiner. A joiner that has never held the
/// token is not in the ring yet, so the other members may continue as if it had not been admitted.
fn goes_on_without_joiner(event: &ViewEvent, next: &RingView) -> bool {
    let mut before = event.view.clone();
    before.members.retain(|member| !event.joined.contains(&member.process));
    let rest = next.processes().filter(|process| before.contains(*process));
    !event.joined.is_empty() && rest.count() >= before.least()
}

pub(super) fn is_by_majority(account: &Account<'_>) -> bool {
    let views = account.periods.iter().map(|period| &period.event.view);
    let mut members = views.flat_map(|view| &view.members);
    members.any(|member| !matches!(member.quorum, Quorum::AtLeast(_)))
}

fn agreed_order(accounts: &[Account<'_>], found: &mut Findings) {
    let sequences: Vec<Vec<u64>> = accounts
        .iter()
        .map(|account| {
            let heard = account.periods.iter().flat_map(|period| &period.heard);
            let agreed = heard.filter(|(_, sent)| sent.qos >= Qos::MajorityResilient);
            agreed.map(|(number, _)| *number).collect()
        })
        .collect();
    for (ix, first) in sequences.iter().enumerate() {
        let places: BTreeMap<u64, usize> =
            first.iter().enumerate().map(|(at, number)| (*number, at)).collect();
        for (second, messages) in accounts.iter().zip(&sequences).skip(ix + 1) {
            let common: Vec<usize> =
                messages.iter().filter_map(|number| places.get(number).copied()).collect();
            if !common.is_sorted() {
                let what = format!("{} and {second} have different orders", accounts[ix]);
                found.add("one order for all partitions", what);
            }
        }
    }
}
