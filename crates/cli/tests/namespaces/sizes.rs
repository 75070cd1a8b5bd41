use crate::lab::{RunCarom as _, build_lab, skipped};
use crate::{MTU, all_counters, assert_wrote, numbered, subscribe};

#[test]
fn large_messages_and_repairs_are_never_fragmented() {
    assert_never_fragmented(MTU);
}

#[test]
fn a_smaller_mtu_makes_for_smaller_packets_instead_of_fragments() {
    assert_never_fragmented(1000);
}

fn assert_never_fragmented(mtu: u32) {
    let Some(lab) = build_lab(3, mtu) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are three") };
    let mut subs = subscribe(receivers, &["--count", "2000", "--loss", "5%"]);
    // The packets of these messages have the largest possible size.
    let args = ["pub", "numbers", "--rate", "2000/s", "--wait-for", "2"];
    sender.pipe(numbered(4000).take(2000), &args).ended_with(0);
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 2000));
    for counters in all_counters(&lab) {
        for name in ["IpFragCreates", "IpFragFails", "IpReasmReqds", "UdpSndbufErrors"] {
            assert_eq!(counters.of(name), 0, "{name}");
        }
    }
    // This checks the counters: a datagram of a program that allows fragmentation is fragmented.
    let send = format!("printf %4000s > /dev/udp/{}/9", receivers[0].address());
    let sent = sender.command("bash", &["-c", &send]).status().expect("ip is installed");
    assert!(sent.success());
    assert!(sender.counters().of("IpFragCreates") > 0);
}

/// Messages published before the path MTU is known are sent in parts afterwards.
#[test]
fn messages_pass_a_hop_that_is_narrower_than_the_interface() {
    for kind in [&[][..], &["--ordered"]] {
        let Some(lab) = build_lab(3, MTU) else { return };
        for host in lab.hosts() {
            host.set_gso(false).expect("the host exists");
        }
        lab.host(1).narrow(1200).expect("the host exists");
        let [receivers @ .., sender] = lab.hosts() else { panic!("there are three") };
        let mut subs = subscribe(receivers, &[&["--count", "500"], kind].concat());
        let args = ["pub", "numbers", "--rate", "500/s", "--wait-for", "2"];
        sender.pipe(numbered(4000).take(500), &[&args, kind].concat()).ended_with(0);
        subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 500));
    }
}

#[test]
fn an_interface_that_becomes_narrower_is_followed() {
    let Some(lab) = build_lab(3, MTU) else { return };
    let [receivers @ .., sender] = lab.hosts() else { panic!("there are three") };
    let mut subs = subscribe(receivers, &["--count", "1500"]);
    let args = ["pub", "numbers", "--rate", "500/s", "--wait-for", "2"];
    let mut publisher = sender.pipe(numbered(4000).take(1500), &args);
    std::thread::sleep(std::time::Duration::from_secs(1));
    sender.set_mtu(1000).expect("the host exists");
    publisher.end_with(0);
    subs.iter_mut().for_each(|sub| assert_wrote(sub, 1, 1500));
}

#[test]
fn small_receive_buffer_is_reported_once_with_the_sysctl() {
    let Some(lab) = build_lab(1, MTU) else { return };
    let host = lab.host(1);
    // Newer kernels may have a limit per namespace. Others report that of the machine.
    let lower = "echo 65536 > /proc/sys/net/core/rmem_max; cat /proc/sys/net/core/rmem_max";
    let output = host.command("sh", &["-c", lower]).output().expect("ip is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    let Ok(limit) = text.trim().parse::<usize>() else {
        return skipped("the kernel reports no buffer limit within a namespace");
    };
    let members = host.start_unprivileged(&["members"]).ended_with(0);
    let said = &members.said.seen;
    let told: Vec<usize> =
        (0..said.len()).filter(|&at| said[at].starts_with("note: receive buffer: ")).collect();
    if limit >= RECEIVE_BYTES {
        assert!(told.is_empty(), "the whole buffer was granted: {said:#?}");
        return skipped(&format!("the machine grants {limit} bytes, which is enough"));
    }
    let [told] = told[..] else { panic!("the notice should appear once: {said:#?}") };
    let granted = format!("{} KiB granted of {} KiB", limit / 1024, RECEIVE_BYTES / 1024);
    assert!(said[told].contains(&granted), "{said:#?}");
    let fix = format!("fix: sysctl -w net.core.rmem_max={RECEIVE_BYTES}");
    assert!(said.get(told + 1).is_some_and(|line| line.starts_with(&fix)), "{said:#?}");
}

const RECEIVE_BYTES: usize = 4 << 20;
