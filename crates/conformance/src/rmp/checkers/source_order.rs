//! The rule of source order.
//!
//! From the level of source order up, the messages of one sender arrive in the order in which it
//! sent them. None is missing between the first and the last message that a member receives.

use std::collections::BTreeMap;

use carom_proto::ring::Qos;
use carom_proto::{GroupId, NodeId};

use crate::findings::Findings;
use crate::rmp::history::{Account, History, Sent};

const RULE: &str = "source order";

type Source = (GroupId, NodeId, usize);

pub(super) fn check(history: &History, accounts: &[Account<'_>], found: &mut Findings) {
    let mut sent: BTreeMap<Source, Vec<u64>> = BTreeMap::new();
    for (number, message) in history.sent.iter().filter(|(_, sent)| is_in_order(sent)) {
        sent.entry(source(message)).or_default().push(*number);
    }
    for account in accounts {
        let mut last: BTreeMap<Source, u64> = BTreeMap::new();
        let heard = account.periods.iter().flat_map(|period| &period.heard);
        for (number, message) in heard.filter(|(_, sent)| is_in_order(sent)) {
            let Some(before) = last.insert(source(message), *number) else { continue };
            let all = &sent[&source(message)];
            let next = all.partition_point(|it| *it <= before);
            if all.get(next) != Some(number) {
                let what = format!("{account} received message {number} directly after {before}");
                found.add(RULE, what);
            }
        }
    }
}

fn is_in_order(sent: &Sent) -> bool {
    sent.qos >= Qos::SourceOrdered
}

fn source(sent: &Sent) -> Source {
    (sent.group, sent.sender, sent.life)
}
