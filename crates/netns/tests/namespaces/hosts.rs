use std::io::{BufRead as _, BufReader, Write as _};
use std::net::UdpSocket;
use std::process::{Command, Stdio};
use std::time::Duration;

use carom_netns::{Error, Lab, Layout, Process, remove_stale};
use tempfile::TempDir;

use crate::probe::{GROUP, open, receive, receive_count, send};
use crate::{lab, permitted};

#[test]
fn jumbo_datagrams_cross_the_core_whole() {
    let layout = Layout { racks: 3, hosts_per_rack: 2, mtu: 9000, ..Layout::default() };
    let Some(lab) = permitted(Lab::build(&layout)) else { return };
    let sockets: Vec<_> = lab.hosts().iter().map(open).collect();
    let message = [7; 8000];
    sockets[0].send_to(&message, (GROUP, 9000)).expect("the network is reachable");
    let mut buffer = [0; 9000];
    for socket in &sockets[1..] {
        assert_eq!(socket.recv(&mut buffer).expect("it arrives"), message.len());
    }
    let snmp = lab.host(1).command("cat", &["/proc/net/snmp"]).output().expect("ip is installed");
    let snmp = String::from_utf8_lossy(&snmp.stdout).into_owned();
    let line = |at: usize| snmp.lines().filter(|line| line.starts_with("Ip:")).nth(at);
    let at = line(0).and_then(|names| names.split(' ').position(|name| name == "FragCreates"));
    let at = at.expect("the kernel counts fragments");
    assert_eq!(line(1).and_then(|values| values.split(' ').nth(at)), Some("0"));
}

#[test]
fn bridges_are_silent_for_less_than_a_query_interval() {
    let Some(lab) = lab(2, 1) else { return };
    let args = ["-d", "-j", "link", "show", "type", "bridge"];
    let output = lab.switch().command("ip", &args).output().expect("ip is installed");
    let bridges: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(bridges.len(), 3);
    for bridge in bridges {
        let settings = &bridge["linkinfo"]["info_data"];
        let number = |name: &str| settings[name].as_u64().expect("it is a number");
        let [interval, first, silence] =
            ["mcast_query_intvl", "mcast_startup_query_intvl", "mcast_querier_intvl"].map(number);
        assert_eq!((number("mcast_querier"), interval, first), (1, 1000, 1000), "{bridge}");
        assert!((1..interval).contains(&silence), "{bridge}");
    }
}

#[test]
fn a_socket_may_join_many_groups() {
    let Some(lab) = lab(1, 1) else { return };
    let socket = open(lab.host(1));
    for number in 0..200 {
        let group = std::net::Ipv4Addr::new(239, 8, 0, number);
        socket.join_multicast_v4(&group, &lab.host(1).address()).expect("there is no low limit");
    }
}

#[test]
fn narrow_port_drops_large_packets_and_an_mtu_is_changed() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let to = (lab.host(2).address(), 9000);
    lab.host(2).narrow(1000).expect("the host exists");
    for bytes in [1200, 4] {
        sender.send_to(&vec![7; bytes], to).expect("the network is reachable");
    }
    assert_eq!(receive(&receiver), [0x0707_0707]);
    lab.host(1).set_mtu(1000).expect("the host exists");
    let mut mtu = lab.host(1).command("cat", &["/sys/class/net/eth0/mtu"]);
    assert_eq!(mtu.output().expect("ip is installed").stdout, b"1000\n");
}

#[test]
fn host_is_reached_at_a_new_address_and_once_it_is_up_again() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let address = std::net::Ipv4Addr::new(10, 77, 1, 99);
    lab.host(2).set_address(address).expect("the host exists");
    send(&sender, address, 10);
    assert_eq!(receive(&receiver).len(), 10);
    lab.host(2).set_up(false).expect("the host exists");
    send(&sender, address, 10);
    assert!(receive(&receiver).is_empty());
    lab.host(2).set_up(true).expect("the host exists");
    send(&sender, address, 10);
    assert_eq!(receive(&receiver).len(), 10);
}

/// Returns the Ethernet address of host 2 in the permanent entries of host 1.
fn permanent_neighbour(lab: &Lab) -> Option<String> {
    let mut command = lab.host(1).command("ip", &["-j", "neighbour", "show", "nud", "permanent"]);
    let output = command.output().expect("ip is installed");
    let entries: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).expect("JSON");
    let address = lab.host(2).address().to_string();
    let entry = entries.into_iter().find(|it| it["dst"] == *address);
    entry.and_then(|it| it["lladdr"].as_str().map(str::to_owned))
}

#[test]
fn neighbours_stay_permanent_after_changes_of_the_interface() {
    let Some(lab) = lab(1, 2) else { return };
    let mac = lab.host(2).mac();
    assert_eq!(permanent_neighbour(&lab).as_deref(), Some(mac));
    lab.host(1).set_up(false).expect("the host exists");
    lab.host(1).set_up(true).expect("the host exists");
    assert_eq!(permanent_neighbour(&lab).as_deref(), Some(mac), "it went down and up");
    let address = std::net::Ipv4Addr::new(10, 77, 1, 99);
    lab.host(1).set_address(address).expect("the host exists");
    assert_eq!(permanent_neighbour(&lab).as_deref(), Some(mac), "it has a new address");
}

#[test]
fn interface_without_a_route_stays_down() {
    let Some(lab) = lab(1, 1) else { return };
    let namespace = lab.host(1).namespace();
    // Below an MTU of 68 bytes, the kernel has no IPv4 at an interface. Few permit it.
    let lines = "link set eth0 down
        link set eth0 name cable
        link set lo down
        link set lo mtu 67
        link set lo name eth0";
    namespace.ip(lines).expect("the host exists");
    lab.host(1).set_up(true).expect_err("there is no route");
    let mut flags = lab.host(1).command("cat", &["/sys/class/net/eth0/flags"]);
    let flags = String::from_utf8(flags.output().expect("ip is installed").stdout);
    let flags = flags.expect("it is text");
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
    assert_eq!(flags.expect("it is a number") & 1, 0, "it is up");
}

#[test]
fn a_limited_rate_drops_what_exceeds_it() {
    let Some(lab) = lab(1, 2) else { return };
    let [sender, receiver] = [1, 2].map(|number| open(lab.host(number)));
    let flood = |sender: &UdpSocket| {
        let message = [0; 1400];
        // 5.6 MB, of which a queue of 50 ms at 10 Mbit/s holds 60 KB.
        for _ in 0..4000 {
            sender.send_to(&message, (lab.host(2).address(), 9000)).expect("it is reachable");
        }
    };
    lab.host(1).set_rate(Some(10_000_000)).expect("tc is installed");
    flood(&sender);
    let limited = receive(&receiver).len();
    assert!((1..2000).contains(&limited), "{limited}");
    lab.host(1).set_rate(None).expect("tc is installed");
    send(&sender, lab.host(2).address(), 4000);
    assert_eq!(receive(&receiver).len(), 4000);
}

#[test]
fn link_drops_count_what_a_limited_rate_drops_either_way() {
    let Some(lab) = lab(1, 2) else { return };
    let [one, other] = lab.hosts() else { panic!("there are two") };
    one.set_rate(Some(5_000_000)).expect("tc is installed");
    let drops = || [one, other].map(|host| host.link_drops().expect("the link exists"));
    let sockets = [one, other].map(open);
    for (sender, receiver, to) in [(0, 1, other), (1, 0, one)] {
        let before = drops();
        for _ in 0..COUNT {
            let sent = sockets[sender].send_to(&[0; 1400], (to.address(), 9000));
            sent.expect("the network is reachable");
        }
        let lost = COUNT - receive_count(&sockets[receiver]) as u64;
        let after = drops();
        let [limited, unlimited] = [0, 1].map(|host| after[host] - before[host]);
        assert!(limited > COUNT / 2, "{limited} of {lost} at the limit");
        // The kernel's own packets, of IGMP and IPv6, are dropped too.
        let counted = limited + unlimited;
        assert!((lost..lost + 50).contains(&counted), "{counted} counted of {lost}");
    }
}

#[test]
fn a_packet_that_a_port_refuses_is_one_link_drop() {
    let Some(lab) = lab(1, 2) else { return };
    let sender = open(lab.host(2));
    lab.host(2).narrow(1000).expect("the host exists");
    let drops = || lab.host(2).link_drops().expect("the link exists");
    let before = drops();
    for _ in 0..10 {
        let sent = sender.send_to(&[7; 1200], (lab.host(1).address(), 9000));
        sent.expect("the network is reachable");
    }
    assert_eq!(drops() - before, 10);
}

#[test]
fn a_paused_process_answers_after_it_is_resumed() {
    let Some(lab) = lab(1, 1) else { return };
    let mut command = lab.host(1).command("cat", &[]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = Process::start(command).expect("it is installed");
    let mut stdin = cat.child().stdin.take().expect("it is piped");
    let stdout = cat.child().stdout.take().expect("it is piped");
    let (lines, read) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
    });
    cat.pause().expect("it runs");
    writeln!(stdin, "hello").expect("the pipe has room");
    assert!(read.recv_timeout(Duration::from_millis(200)).is_err());
    cat.resume().expect("it runs");
    assert_eq!(read.recv().as_deref(), Ok("hello"));
    cat.kill().expect("it runs");
    assert!(read.recv().is_err());
}

#[test]
fn a_capture_has_what_the_host_sent_and_received() {
    let Some(lab) = lab(1, 2) else { return };
    let [first, second] = [1, 2].map(|number| open(lab.host(number)));
    let dir = TempDir::new().expect("a folder");
    let path = dir.path().join("h2.pcap");
    let Some(capture) = permitted(lab.host(2).capture(&path)) else { return };
    send(&first, GROUP, 300);
    send(&second, GROUP, 200);
    assert_eq!(receive(&second).len(), 300);
    assert_eq!(capture.stop().expect("tcpdump ends"), 0);
    let path = path.to_str().expect("a UTF-8 path");
    let read =
        Command::new("tcpdump").args(["-n", "-Z", "root", "-r", path, "udp port 9000"]).output();
    let read = read.expect("it is installed");
    assert_eq!(String::from_utf8_lossy(&read.stdout).lines().count(), 500, "{read:?}");
}

#[test]
fn namespaces_disappear_with_the_lab_or_after_a_dead_owner() {
    let Some(lab) = lab(1, 2) else { return };
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir("/run/netns").expect("there are namespaces");
        entries.flat_map(|it| it.expect("it is readable").file_name().into_string()).collect()
    };
    let own = lab.host(2).namespace().name().to_owned();
    assert!(names().contains(&own));
    let (dead, foreign) = ("carom-1-999999999-0.h1", "carom-of-somebody");
    for name in [dead, foreign] {
        let added = Command::new("ip").args(["netns", "add", name]).status();
        assert!(added.expect("ip is installed").success());
    }
    let removed = remove_stale().expect("it is permitted");
    assert!(removed.iter().any(|name| name == dead), "{removed:?}");
    let left = names();
    assert!(left.contains(&own) && left.iter().any(|name| name == foreign), "{left:?}");
    let deleted = Command::new("ip").args(["netns", "delete", foreign]).status();
    assert!(deleted.expect("ip is installed").success());
    drop(lab);
    assert!(!names().contains(&own));
}

#[test]
fn missing_program_on_a_host_is_reported_with_its_fix() {
    let Some(lab) = lab(1, 1) else { return };
    let error: Error = lab.host(1).namespace().nft("no such command").expect_err("it is wrong");
    assert!(error.cause().contains("nft"), "{error}");
    let started = Process::start(Command::new("carom-has-no-such-program"));
    let error = started.expect_err("it is not installed");
    assert_eq!(error.cause(), "carom-has-no-such-program is not installed");
}

/// Number of datagrams in a flood: far more than a limited link takes.
const COUNT: u64 = 4000;
