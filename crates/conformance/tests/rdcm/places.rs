//! Tests receivers whose places change in the middle of a stream (section 3.4).

use carom_proto::loss::Loss;

use crate::net::{Net, Setup};

/// The lagging receiver. It is the first of its ring, so each joiner becomes its predecessor.
const LATE: u32 = 1;

/// Runs a stream in which a paused receiver gets other predecessors before it has caught up.
fn overtaken(seed: u64) -> Net {
    let mut setup = Setup::rack(8, seed).at_mbit(300);
    setup.link.loss = Loss::Uniform(0.005);
    let mut net = Net::sending(3000, setup, &[0, 1, 2, 3, 4, 5]);
    net.run(100);
    net.pause_for(LATE, 25);
    let predecessor = |net: &Net| net.engine(LATE).place(net.group).map(|it| it.leaf.predecessor);
    assert_eq!(predecessor(&net), Some(Net::id(5)));
    [6, 7].iter().for_each(|host| net.start(*host));
    net.run_until_all_have(&[1, 2, 3, 4, 5], 3000);
    assert_eq!(predecessor(&net), Some(Net::id(7)));
    net
}

#[test]
fn receiver_changing_rings_is_served_during_the_handover() {
    let mut asks = 0;
    for seed in 0..10 {
        let net = overtaken(seed);
        net.assert_whole(&[1, 2, 3, 4, 5]);
        let counters = net.engine(LATE).counters();
        asks += counters.asks_sent;
        assert!(counters.repairs_received > counters.repairs_useless, "seed {seed}");
    }
    // Links lose some repairs several times in a row.
    assert!(asks <= 2, "requests went unserved {asks} times");
}
