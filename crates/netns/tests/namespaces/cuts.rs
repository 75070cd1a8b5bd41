use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use carom_netns::{Cut, Lab, Process};

use crate::probe::{GROUP, open, receive, send, senders};
use crate::{lab, permitted};

/// Returns the pairs of a sender and a receiver between which multicasts arrive.
fn reached(lab: &Lab, sockets: &[UdpSocket]) -> Vec<(usize, usize)> {
    sockets.iter().for_each(|socket| send(socket, GROUP, 3));
    let senders = sockets.iter().map(senders).collect::<Vec<_>>();
    let hosts = || lab.hosts().iter();
    let pairs = hosts().flat_map(|from| hosts().map(move |to| (from, to)));
    let reached = pairs.filter(|(from, to)| senders[to.number() - 1].contains(&from.address()));
    reached.map(|(from, to)| (from.number(), to.number())).collect()
}

/// Waits until exactly these pairs are reached.
fn assert_reached(lab: &Lab, sockets: &[UdpSocket], expected: &[(usize, usize)], when: &str) {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let reached = reached(lab, sockets);
        if reached == expected {
            return;
        }
        assert!(Instant::now() < give_up, "{when}: {reached:?} instead of {expected:?}");
    }
}

#[test]
fn every_cut_interrupts_exactly_its_direction_and_heals() {
    let Some(lab) = lab(2, 2) else { return };
    let sockets: Vec<_> = lab.hosts().iter().map(open).collect();
    let all: Vec<(usize, usize)> = (1..=4)
        .flat_map(|from| (1..=4).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let rack = |host: usize| (host - 1) / 2;
    type IsCut = Box<dyn Fn(usize, usize) -> bool>;
    let cases: [(Cut, IsCut); 7] = [
        (Cut::Sending(2), Box::new(|from, _| from == 2)),
        (Cut::Receiving(2), Box::new(|_, to| to == 2)),
        (Cut::Multicast(2), Box::new(|_, to| to == 2)),
        (Cut::Path { from: 1, to: 2 }, Box::new(|from, to| (from, to) == (1, 2))),
        (Cut::Path { from: 4, to: 1 }, Box::new(|from, to| (from, to) == (4, 1))),
        (Cut::Cable(3), Box::new(|from, to| from == 3 || to == 3)),
        (Cut::Uplink(1), Box::new(move |from, to| rack(from) != rack(to))),
    ];
    for (cut, is_cut) in cases {
        let Some(()) = permitted(lab.cut(&cut)) else { return };
        let left: Vec<_> = all.iter().copied().filter(|(from, to)| !is_cut(*from, *to)).collect();
        assert_reached(&lab, &sockets, &left, &format!("{cut:?}"));
        lab.heal(&cut).expect("the cut exists");
    }
    assert_reached(&lab, &sockets, &all, "healed");
    lab.cut(&Cut::Sending(1)).expect("the host exists");
    lab.cut(&Cut::Cable(4)).expect("the host exists");
    lab.heal_all().expect("the lab exists");
    assert_reached(&lab, &sockets, &all, "healed");
}

/// Watches the tables of the switch. Returns the process, and the lines that it writes.
fn monitor(lab: &Lab) -> (Process, Receiver<String>) {
    let mut command = lab.switch().command("nft", &["monitor"]);
    command.stdout(Stdio::piped());
    let mut monitor = Process::start(command).expect("it is installed");
    let stdout = BufReader::new(monitor.child().stdout.take().expect("it is piped"));
    let (lines, read) = channel();
    std::thread::spawn(move || {
        stdout.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    (monitor, read)
}

#[test]
fn cuts_of_a_partition_begin_in_one_step_and_end_in_one() {
    let Some(lab) = lab(1, 3) else { return };
    let Some(()) = permitted(lab.cut(&Cut::Sending(2))) else { return };
    let (_monitor, lines) = monitor(&lab);
    let give_up = Instant::now() + PATIENCE;
    while lines.recv_timeout(Duration::from_millis(100)).is_err() {
        assert!(Instant::now() < give_up, "the monitor reports nothing");
        lab.cut(&Cut::Sending(2)).expect("the host exists");
    }
    let partition = [(1, 2), (2, 1), (1, 3), (3, 1)].map(|(from, to)| Cut::Path { from, to });
    lab.cut_together(&[&partition[..], &[Cut::Cable(3)]].concat()).expect("the hosts exist");
    lab.heal_together(&[&partition[..], &[Cut::Cable(3)]].concat()).expect("the hosts exist");
    lab.cut(&Cut::Receiving(2)).expect("the host exists");
    let next = || lines.recv_timeout(PATIENCE).expect("the monitor reports the last cut");
    let lines: Vec<String> = std::iter::repeat_with(next)
        .take_while(|line| !line.contains("element bridge carom_cuts deaf"))
        .collect();
    let generations = lines.split(|line| line.starts_with("# new generation"));
    let paths = |line: &&String| line.contains("element bridge carom_cuts paths");
    let changes = |verb: &'static str| {
        let of_verb = move |line: &&String| line.starts_with(verb);
        let counts = generations.clone().map(|it| it.iter().filter(paths).filter(of_verb).count());
        counts.filter(|count| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!([changes("add"), changes("delete")], [[4], [4]], "{lines:#?}");
}

#[test]
fn host_without_multicast_still_receives_unicast() {
    let Some(lab) = lab(1, 2) else { return };
    let sockets: Vec<_> = lab.hosts().iter().map(open).collect();
    let Some(()) = permitted(lab.cut(&Cut::Multicast(2))) else { return };
    send(&sockets[0], GROUP, 10);
    send(&sockets[0], lab.host(2).address(), 20);
    assert_eq!(receive(&sockets[1]).len(), 20);
}

/// After a cut, a host receives multicast again when it has answered the next query of its bridge.
const PATIENCE: Duration = Duration::from_secs(90);
