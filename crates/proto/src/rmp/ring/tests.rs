use bytes::Bytes;

use super::*;
use crate::ring::{LockName, Qos, Quorum, member, process};

fn ring() -> Ring {
    Ring::founded_by(member(1, Quorum::Majority), 0, SeqNo::FIRST)
}

fn apply(ring: &mut Ring, changes: Vec<ListChange>) {
    let (at, site) = (ring.log.next(), ring.token);
    let offered = ring.offer(Round { at, site, next: site, what: What::List(changes) });
    assert_eq!(offered, Arrival::New);
    let mut impossible = 0;
    assert!(ring.apply_next(&mut impossible).is_some());
    assert_eq!(impossible, 0);
}

#[test]
fn version_of_a_view_wraps() {
    let mut ring = ring();
    ring.view.version = u32::MAX;
    let kind = ListChangeKind::Lock { name: LockName(7), waits: true };
    let process = ring.me;
    apply(&mut ring, vec![ListChange { process, request: 1, kind }]);
    assert_eq!(ring.view().version, 0);
    assert_eq!(ring.standings.answered(process), 1);
}

#[test]
fn lives_that_ended_first_are_forgotten() {
    let mut ring = ring();
    let last = MAX_OVER as u64 + 100;
    for node in (100..=last).rev() {
        let member = member(node, Quorum::Majority);
        let join = ListChangeKind::Join { member, name_check: 0 };
        for kind in [join, ListChangeKind::Leave] {
            let (at, site) = (ring.log.next(), ring.token);
            let change = ListChange { process: member.process, request: 0, kind };
            let round = Round { at, site, next: site, what: What::List(vec![change]) };
            ring.change_list(&round, at, change);
            ring.standings.on_round(member.process, at);
        }
    }
    let is_known = |node| ring.is_over(process(node));
    assert!(is_known(100) && is_known(101), "the last to leave are remembered");
    assert!(!is_known(last) && is_known(last - 1), "the first to leave is forgotten");
}

#[test]
fn founder_and_joiner_share_a_position_once_joiner_is_heard() {
    let mut founder = ring();
    let member = member(2, Quorum::Majority);
    let process = member.process;
    let kind = ListChangeKind::Join { member, name_check: 0 };
    let change = ListChange { process, request: 0, kind };
    let (at, site) = (founder.log.next(), founder.token);
    founder.offer(Round { at, site, next: process, what: What::List(vec![change]) });
    assert!(founder.apply_next(&mut 0).is_some());
    let mut joiner = Ring::entered(process, founder.snapshot(true), SeqNo::FIRST);
    let data = Data::whole(SeqNo::FIRST, Qos::TotallyOrdered, Bytes::new());
    for ring in [&mut founder, &mut joiner] {
        assert!(ring.sources.insert_packet(process, SeqNo::FIRST, data.clone()).is_some());
    }
    let (none, heard) = (BTreeSet::new(), BTreeSet::from([process]));
    assert_ne!(founder.position(&none), joiner.position(&none), "the packet may be another ring's");
    assert_eq!(founder.position(&heard), joiner.position(&none));
}
