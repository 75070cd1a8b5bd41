use std::net::UdpSocket;
use std::time::Duration;

use carom_netns::{DropLog, Dropped, Host, Loss};
use tempfile::TempDir;

use crate::probe::{GROUP, open, receive, receive_count, send};
use crate::{lab, permitted};

const COUNT: u32 = 4000;

/// Records the drops of `host` in a folder that must outlive the record.
fn log(host: &Host, dir: &TempDir) -> DropLog {
    host.log_drops(&dir.path().join(host.name())).expect("the host exists")
}

fn numbers(dropped: &[Dropped]) -> Vec<u32> {
    let number = |it: &Dropped| u32::from_le_bytes(it.payload[..].try_into().expect("4 bytes"));
    dropped.iter().map(number).collect()
}

#[test]
fn each_host_loses_its_own_share_and_the_log_has_the_rest() {
    let Some(lab) = lab(1, 3) else { return };
    let sockets: Vec<_> = lab.hosts().iter().map(open).collect();
    let dir = TempDir::new().expect("a folder");
    let receivers = &lab.hosts()[1..];
    for host in receivers {
        let loss = Loss::Independent { probability: 0.05 };
        let Some(()) = permitted(host.set_loss(&loss)) else { return };
    }
    let logs: Vec<_> = receivers.iter().map(|host| log(host, &dir)).collect();
    send(&sockets[0], GROUP, COUNT);
    let mut lost = Vec::new();
    for (socket, log) in sockets[1..].iter().zip(logs) {
        let received = receive(socket);
        let dropped = log.finish().expect("the record is complete");
        assert!(dropped.windows(2).all(|pair| pair[0].at <= pair[1].at));
        assert!(dropped.iter().all(|it| *it.source.ip() == lab.host(1).address()));
        assert!(dropped.iter().all(|it| *it.destination.ip() == GROUP));
        let dropped = numbers(&dropped);
        let mut all = [received, dropped.clone()].concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..COUNT), "each datagram is received or recorded");
        // 200 are expected, with a standard deviation of 14.
        assert!((100..300).contains(&dropped.len()), "{}", dropped.len());
        lost.push(dropped);
    }
    assert_ne!(lost[0], lost[1]);
}

#[test]
fn a_burst_is_a_run_of_datagrams_in_each_period() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let loss = Loss::Bursts { length: 10, period: 200 };
    let Some(()) = permitted(lab.host(2).set_loss(&loss)) else { return };
    send(&sender, lab.host(2).address(), COUNT);
    assert!(receive(&receiver).into_iter().eq((0..COUNT).filter(|it| it % 200 >= 10)));
    lab.host(2).set_loss(&Loss::None).expect("the host exists");
    send(&sender, lab.host(2).address(), 100);
    assert!(receive(&receiver).into_iter().eq(0..100));
}

#[test]
fn all_hosts_of_a_rack_lose_what_its_uplink_loses() {
    let Some(lab) = lab(2, 2) else { return };
    let sockets: Vec<_> = lab.hosts().iter().map(open).collect();
    let dir = TempDir::new().expect("a folder");
    let rack = lab.rack(2);
    let Some(()) = permitted(rack.set_loss(&Loss::Independent { probability: 0.1 })) else {
        return;
    };
    let log = rack.log_drops(&dir.path().join("rack2")).expect("the rack has an uplink");
    send(&sockets[0], GROUP, COUNT);
    let [near, far, beside] = [1, 2, 3].map(|index| receive(&sockets[index]));
    assert!(near.into_iter().eq(0..COUNT), "the sender's rack loses nothing");
    assert!((3400..3800).contains(&far.len()), "{}", far.len());
    assert_eq!(far, beside);
    let dropped = numbers(&log.finish().expect("the record is complete"));
    let mut all = [far, dropped].concat();
    all.sort_unstable();
    assert!(all.into_iter().eq(0..COUNT));
    // Within the rack, nothing passes the uplink.
    send(&sockets[3], lab.host(3).address(), 500);
    assert_eq!(receive(&sockets[2]).len(), 500);
}

#[test]
fn own_multicasts_are_not_lost_and_neither_is_tcp() {
    let Some(lab) = lab(1, 2) else { return };
    let [host, other] = lab.hosts() else { panic!("there are two") };
    let socket = open(host);
    socket.set_multicast_loop_v4(true).expect("the socket is open");
    let Some(()) = permitted(host.set_loss(&Loss::Independent { probability: 1.0 })) else {
        return;
    };
    let address = host.address();
    let listener = host.enter(|| std::net::TcpListener::bind((address, 9000)));
    let listener = listener.expect("the lab exists").expect("the port is free");
    let stream = other.enter(|| std::net::TcpStream::connect((address, 9000)));
    stream.expect("the lab exists").expect("TCP passes");
    drop(listener);
    send(&socket, GROUP, 100);
    assert_eq!(receive(&socket).len(), 100);
    send(&open(other), GROUP, 100);
    assert!(receive(&socket).is_empty());
}

#[test]
fn datagrams_over_ipv6_are_neither_lost_nor_recorded() {
    let Some(lab) = lab(1, 2) else { return };
    if !std::path::Path::new("/proc/net/if_inet6").exists() {
        return crate::skipping::lacking("this machine has no IPv6");
    }
    let dir = TempDir::new().expect("a folder");
    let [host, other] = lab.hosts() else { panic!("there are two") };
    let Some(()) = permitted(host.set_loss(&Loss::Independent { probability: 1.0 })) else {
        return;
    };
    let log = log(host, &dir);
    for (host, other) in [(host, other), (other, host)] {
        let lines = format!(
            "address add fd00::{}/64 dev eth0 nodad
            neighbour add fd00::{} lladdr {} nud permanent dev eth0",
            host.number(),
            other.number(),
            other.mac()
        );
        host.namespace().ip(&lines).expect("the host exists");
    }
    let open = |host: &Host| {
        let socket = host.enter(|| UdpSocket::bind("[::]:9001")).expect("the lab exists");
        socket.expect("the port is free")
    };
    let (sender, receiver) = (open(other), open(host));
    receiver.set_read_timeout(Some(Duration::from_millis(100))).expect("the socket is open");
    // The kernel adds the route to a new address in the background, and drops what comes before.
    let arrives = || {
        sender.send_to(b"passes", "[fd00::1]:9001").expect("the network is reachable");
        matches!(receiver.recv(&mut [0; 6]), Ok(6))
    };
    assert!((0..200).any(|_| arrives()), "no datagram arrived");
    assert_eq!(log.finish().expect("the record is complete"), []);
}

#[test]
fn an_uplink_draws_once_for_a_datagram_in_fragments() {
    let Some(lab) = lab(2, 1) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let dir = TempDir::new().expect("a folder");
    let rack = lab.rack(2);
    let Some(()) = permitted(rack.set_loss(&Loss::Bursts { length: 1, period: 2 })) else {
        return;
    };
    let log = rack.log_drops(&dir.path().join("rack2")).expect("the rack has an uplink");
    for _ in 0..10 {
        let to = (lab.host(2).address(), 9000);
        sender.send_to(&[7; 4000], to).expect("the network is reachable");
    }
    assert_eq!(receive_count(&receiver), 5);
    let dropped = log.finish().expect("the record is complete");
    assert_eq!(dropped.len(), 5);
    assert!(dropped.iter().all(|it| it.destination.port() == 9000));
}

#[test]
fn losses_change_during_an_outage_and_hold_after_it() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let address = lab.host(2).address();
    let Some(outage) = permitted(lab.host(2).begin_outage()) else { return };
    // A wait for the end of the outage would never end.
    lab.host(2).set_loss(&Loss::Bursts { length: 10, period: 200 }).expect("the host exists");
    send(&sender, address, 100);
    assert!(receive(&receiver).is_empty());
    outage.end().expect("the host exists");
    send(&sender, address, COUNT);
    assert_eq!(receive(&receiver).len(), COUNT as usize * 190 / 200);
}

#[test]
fn driven_losses_continue_during_and_after_an_outage() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let ms = Duration::from_millis;
    let loss = Loss::Outages { length: ms(10), period: ms(20) };
    let Some(()) = permitted(lab.host(2).set_loss(&loss)) else { return };
    let outage = lab.host(2).begin_outage().expect("the host exists");
    for _ in 0..4 {
        send(&sender, lab.host(2).address(), COUNT);
    }
    assert!(receive(&receiver).is_empty());
    drop(outage);
    for _ in 0..4 {
        send(&sender, lab.host(2).address(), COUNT);
    }
    let received = receive(&receiver).len();
    assert!((1..4 * COUNT as usize).contains(&received), "{received}");
}

#[test]
fn second_outage_of_a_host_is_refused_until_the_first_ends() {
    let Some(lab) = lab(1, 2) else { return };
    let Some(first) = permitted(lab.host(2).begin_outage()) else { return };
    let refused = lab.host(2).outage(Duration::from_secs(3600)).expect_err("there is one");
    assert_eq!(refused.cause(), "h2 already has an outage");
    lab.host(1).outage(Duration::from_millis(1)).expect("it has none");
    drop(first);
    lab.host(2).outage(Duration::from_millis(1)).expect("the first has ended");
}

#[test]
fn an_outage_loses_a_run_and_ends() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let dir = TempDir::new().expect("a folder");
    let log = permitted(lab.host(2).log_drops(&dir.path().join("h2")));
    let Some(log) = log else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| lab.host(2).outage(Duration::from_millis(20)).expect("the host exists"));
        for _ in 0..40 {
            send(&sender, lab.host(2).address(), 50);
        }
    });
    send(&sender, lab.host(2).address(), 50);
    let received = receive(&receiver);
    let dropped = log.finish().expect("the record is complete");
    assert!(!dropped.is_empty());
    assert_eq!(received.len() + dropped.len(), 41 * 50);
    assert!(received.ends_with(&(0..50).collect::<Vec<u32>>()));
}

#[test]
fn driven_losses_come_and_go_until_they_are_replaced() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let ms = Duration::from_millis;
    for loss in [
        Loss::Outages { length: ms(5), period: ms(20) },
        Loss::GilbertElliott { good: ms(15), bad: ms(5), seed: 7 },
    ] {
        let Some(()) = permitted(lab.host(2).set_loss(&loss)) else { return };
        for _ in 0..4 {
            send(&sender, lab.host(2).address(), COUNT);
        }
        let received = receive(&receiver).len();
        assert!((1..4 * COUNT as usize).contains(&received), "{loss}: {received}");
        lab.host(2).set_loss(&Loss::None).expect("the host exists");
        send(&sender, lab.host(2).address(), 500);
        assert_eq!(receive(&receiver).len(), 500, "after {loss}");
    }
}
