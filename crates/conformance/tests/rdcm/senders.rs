//! Tests receivers that change from one sender to another.

use carom_proto::LossCause;
use carom_sim::{Fault, HostIx};

use crate::net::{Net, Setup};

#[test]
fn receivers_of_a_new_sender_learn_the_end_of_the_old_stream() {
    let mut net = Net::sending(u64::MAX, Setup::rack(4, 3).at_mbit(20), &[3, 0, 1, 2]);
    net.run(300);
    // Hosts 0 and 1 no longer hear the sender, but the sender hears them.
    net.world.apply(&Fault::OneWay(vec![HostIx(3)], vec![HostIx(0), HostIx(1)]));
    net.run(2000);
    net.to_send = net.sent;
    net.try_send(0, OTHER).expect("the host hears no sender");
    net.run(1000);
    let sent = net.engine(3).counters().data_sent;
    net.world.apply(&Fault::Heal);
    net.run(5000);
    let [given_up] = net.log(3).lost[..] else { panic!("{:?}", net.log(3).lost) };
    assert_eq!(given_up.cause, LossCause::AnotherSender, "it has yielded");
    for host in [0, 1, 2] {
        let log = net.log(host);
        let lost = log.lost.iter().filter(|it| it.sender == Net::id(3)).map(|it| it.last.0);
        // A message consists of three packets.
        let last = log.got.iter().rfind(|it| **it < OTHER);
        let got = last.map_or(0, |last| (last + 1) * 3) as u32;
        let told = lost.max().unwrap_or(0).max(got);
        assert_eq!(u64::from(told), sent, "host {host}: {:?}, got {got}", log.lost);
    }
    let counters = net.engine(3).counters();
    assert!(counters.farewells_sent < 20, "{} times", counters.farewells_sent);
}

const OTHER: u64 = 1_000_000;
