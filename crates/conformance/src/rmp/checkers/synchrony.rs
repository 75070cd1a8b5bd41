//! Total order and virtual synchrony.
//!
//! Members that move together from one view to the next have received the same ordered messages in
//! the first view, in the same order. If two members stay in their last view, one of them has
//! received all messages of the other, and possibly more. The messages that a member received in
//! its last view before it moved elsewhere may have other places at the other members, or may be
//! missing there, within the limits of resilience.
//!
//! A source-ordered message may be delivered one view earlier at one member than at another. After
//! a reformation, however, no member may deliver a message that others delivered before it. A
//! member that rejoins before it has left is replaced by its new life without a reformation. A
//! member that died may also be removed in favor of its new life. Some members may then lose the
//! last messages of the former life.

use std::collections::{BTreeMap, BTreeSet};

use carom_proto::ring::{Epoch, Qos, RingView};

use crate::findings::Findings;
use crate::rmp::history::{Account, Period, Sent, name};

type Name = (Epoch, u32);

pub(super) fn check(accounts: &[Account<'_>], found: &mut Findings) {
    ordered(accounts, found);
    unordered(accounts, found);
}

fn ordered(accounts: &[Account<'_>], found: &mut Findings) {
    type Way<'a> = (&'a Account<'a>, &'a RingView, Vec<u64>);
    let mut ways: BTreeMap<(Name, Option<Name>), Vec<Way<'_>>> = BTreeMap::new();
    for account in accounts {
        for (at, period) in account.periods.iter().enumerate() {
            let view = &period.event.view;
            let next = account.periods.get(at + 1).map(|it| name_of(&it.event.view));
            let way = (account, view, in_order(period));
            ways.entry((name_of(view), next)).or_default().push(way);
        }
    }
    for ((_, next), mut ways) in ways {
        ways.sort_by_key(|(_, _, messages)| messages.len());
        let Some((longest_of, view, longest)) = ways.last() else { continue };
        for (account, _, messages) in &ways {
            let is_enough = next.is_none() || messages.len() == longest.len();
            if !is_enough || messages[..] != longest[..messages.len()] {
                let at = messages.iter().zip(longest).take_while(|(one, two)| one == two).count();
                let what = format!(
                    "{account} and {longest_of} in {} have {:?} and {:?} at place {at}",
                    name(view),
                    messages.get(at),
                    longest.get(at)
                );
                found.add("total order and virtual synchrony", what);
            }
        }
    }
}

/// Checks that members of one reformation received the same messages since their first common view.
fn unordered(accounts: &[Account<'_>], found: &mut Findings) {
    type Era<'a> = (&'a Account<'a>, &'a [Period<'a>], BTreeSet<u64>);
    let mut eras: BTreeMap<(Epoch, Epoch), Vec<Era<'_>>> = BTreeMap::new();
    for account in accounts {
        let mut received = BTreeSet::new();
        let all: Vec<&[Period<'_>]> = account.eras().collect();
        for pair in all.windows(2) {
            received.extend(numbers(pair[0]));
            let [from, to] = [pair[0], pair[1]].map(|era| era[0].event.view.epoch);
            eras.entry((from, to)).or_default().push((account, pair[0], received.clone()));
        }
    }
    for ((from, to), eras) in &eras {
        let is_of_replaced = |sent: &Sent| is_replaced(accounts, sent, *from);
        for (one, periods, _) in eras {
            for (other, theirs, received) in eras {
                let first = theirs[0].event.view.version;
                let shared = periods.partition_point(|it| it.event.view.version < first);
                let heard = periods[shared..].iter().flat_map(|period| &period.heard);
                let lacked = heard.filter(|(number, _)| !received.contains(number));
                let owed = lacked.filter(|(_, sent)| !is_of_replaced(sent));
                let missing = numbers_of(owed).next();
                if let Some(number) = missing {
                    let what = format!(
                        "between {from:?} and {to:?}, {one} received message {number}, but \
                         {other} did not"
                    );
                    found.add("same messages before a new ring", what);
                }
            }
        }
    }
}

/// Returns `true` if the sender's next life replaced this one by a change of the ring's list.
fn is_replaced(accounts: &[Account<'_>], sent: &Sent, ring: Epoch) -> bool {
    let life = |number| move |it: &&Account<'_>| (it.node, it.number) == (sent.sender, number);
    let next = accounts.iter().find(life(sent.life + 1));
    let joined = next.and_then(|it| it.periods.first());
    let is_in_next = joined.is_some_and(|period| period.event.view.epoch == ring);
    let former = accounts.iter().find(life(sent.life)).filter(|it| it.has_died && next.is_some());
    let is_taken_out = former.and_then(Account::last_process).is_some_and(|process| {
        let views = accounts.iter().flat_map(|it| it.periods.windows(2));
        let views = views.map(|pair| [&pair[0], &pair[1]].map(|it| &it.event.view));
        views
            .filter(|pair| pair.iter().all(|view| view.epoch == ring))
            .any(|[before, after]| before.contains(process) && !after.contains(process))
    });
    is_in_next || is_taken_out
}

fn in_order(period: &Period<'_>) -> Vec<u64> {
    let messages = period.heard.iter().filter(|(_, sent)| sent.qos.is_ordered());
    messages.map(|(number, _)| *number).collect()
}

fn numbers(periods: &[Period<'_>]) -> impl Iterator<Item = u64> {
    numbers_of(periods.iter().flat_map(|period| &period.heard))
}

fn numbers_of<'a>(heard: impl Iterator<Item = &'a (u64, &'a Sent)>) -> impl Iterator<Item = u64> {
    heard.filter(|(_, sent)| sent.qos >= Qos::SourceOrdered).map(|(number, _)| *number)
}

fn name_of(view: &RingView) -> Name {
    (view.epoch, view.version)
}
