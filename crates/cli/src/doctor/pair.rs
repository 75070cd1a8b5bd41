//! Checks between two machines: arrival by unicast and multicast, and the largest datagram.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, ToSocketAddrs as _, UdpSocket};
use std::time::{Duration, Instant};

use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, output};
use quinn_udp::{UdpSockRef, UdpSocketState};
use serde_json::json;
use socket2::SockRef;

use super::finding::{Finding, Findings};
use super::local::interfaces;
use super::packet::{Kind, Packet};
use super::probe::is_timeout;

pub(crate) fn listen(
    port: u16,
    wanted: Option<&str>,
    json: bool,
    interrupt: &Interrupt,
) -> Result<(), CliError> {
    let socket = open(port).map_err(|error| CliError::io(&format!("UDP port {port}"), &error))?;
    let mut joined = Vec::new();
    for interface in interfaces(wanted)? {
        if socket.join_multicast_v4(&GROUP, &interface.address).is_ok() {
            joined.push(interface.name);
        }
    }
    let names = if joined.is_empty() { "no interface".to_owned() } else { joined.join(", ") };
    output::say(format_args!(
        "listening on UDP port {port}, for multicast on {names}; press Ctrl-C to stop"
    ));
    let mut told = BTreeSet::new();
    let mut buffer = vec![0; MAX_BYTES];
    while !interrupt.is_asked() {
        let Some((packet, from)) = receive(&socket, &mut buffer)? else { continue };
        answer(&socket, packet, from);
        if told.len() >= MOST_TOLD {
            told.clear();
        }
        if told.insert((from.ip(), packet.token, packet.kind))
            && let Some(what) = arrived(packet.kind)
        {
            let from = from.to_string();
            if json {
                output::json(&json!({ "event": "arrived", "from": from, "by": what }))?;
            } else {
                output::lines(&format!("{from}: {what} received"))?;
            }
        }
    }
    Ok(())
}

/// Checks the path to the listener at `host`. Takes about 5 s at most.
pub(crate) fn examine(
    host: &str,
    default_port: u16,
    wanted: Option<&str>,
    interrupt: &Interrupt,
) -> Result<Findings, CliError> {
    let listener = resolve(host, default_port)?;
    let interface = match wanted {
        Some(_) => interfaces(wanted)?.first().map(|it| it.address),
        None => route_to(listener.into()),
    };
    let Some(interface) = interface else {
        let fix = "see `ip route`, or pass --interface";
        return Err(CliError::new(format!("no route to {host}"), fix));
    };
    let socket = open(0)
        .and_then(|socket| {
            // If joining fails, the multicast answer does not arrive, which is a finding.
            let _ = socket.join_multicast_v4(&GROUP, &interface);
            SockRef::from(&socket).set_multicast_if_v4(&interface)?;
            Ok(socket)
        })
        .map_err(|error| CliError::io("cannot open a UDP socket", &error))?;
    let mut asker = Asker { socket, listener, token: token(), heard: BTreeSet::new() };
    asker.ask(interrupt)?;
    let size = if asker.heard.contains(&Kind::Answer) { asker.largest(interrupt)? } else { 0 };
    Ok(judge(&listener, &asker.heard, size))
}

struct Asker {
    socket: UdpSocket,
    listener: SocketAddrV4,
    token: u64,
    heard: BTreeSet<Kind>,
}

impl Asker {
    /// Sends queries by unicast and by multicast, up to five times, until all answers have arrived.
    fn ask(&mut self, interrupt: &Interrupt) -> Result<(), CliError> {
        let group = SocketAddrV4::new(GROUP, self.listener.port());
        let wanted = [Kind::Answer, Kind::AnswerByMulticast, Kind::HeardMulticast];
        for _ in 0..ASKINGS {
            // A query that cannot be sent gets no answer, which is a finding.
            let _ = self.send(Packet::new(Kind::Ask, self.token), self.listener);
            let _ = self.send(Packet::new(Kind::AskByMulticast, self.token), group);
            let give_up = Instant::now() + ASK_WAIT;
            while Instant::now() < give_up {
                if interrupt.is_asked() || wanted.iter().all(|kind| self.heard.contains(kind)) {
                    return Ok(());
                }
                self.hear()?;
            }
        }
        Ok(())
    }

    /// Returns the largest UDP payload that returns unfragmented, in bytes, found by bisection.
    fn largest(&mut self, interrupt: &Interrupt) -> Result<usize, CliError> {
        let (mut fits, mut too_large) = (Packet::BYTES, MAX_BYTES + 1);
        // Common sizes are tried first, because most searches end soon after them.
        let mut common = COMMON_BYTES.into_iter();
        let give_up = Instant::now() + SEARCH_LIMIT;
        while too_large - fits > 1 && Instant::now() < give_up && !interrupt.is_asked() {
            let size = common
                .find(|size| (fits + 1..too_large).contains(size))
                .unwrap_or(fits + (too_large - fits) / 2);
            if self.comes_back(size)? {
                fits = size;
            } else {
                too_large = size;
            }
        }
        Ok(fits)
    }

    fn comes_back(&mut self, size: usize) -> Result<bool, CliError> {
        let packet = Packet { kind: Kind::Size, token: self.token, size };
        for _ in 0..SIZE_TRIES {
            if self.send(packet, self.listener).is_err() {
                return Ok(false);
            }
            let give_up = Instant::now() + SIZE_WAIT;
            while Instant::now() < give_up {
                let heard = self.hear()?;
                if heard.is_some_and(|heard| heard.kind == Kind::SizeBack && heard.size == size) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn hear(&mut self) -> Result<Option<Packet>, CliError> {
        let mut buffer = vec![0; MAX_BYTES];
        let Some((packet, _)) = receive(&self.socket, &mut buffer)? else { return Ok(None) };
        if packet.token != self.token {
            return Ok(None);
        }
        self.heard.insert(packet.kind);
        Ok(Some(packet))
    }

    fn send(&self, packet: Packet, to: SocketAddrV4) -> io::Result<usize> {
        self.socket.send_to(&packet.encode(), to)
    }
}

fn judge(listener: &SocketAddrV4, heard: &BTreeSet<Kind>, largest: usize) -> Findings {
    let (host, port) = (listener.ip(), listener.port());
    let mut findings = Findings::default();
    let multicast_fix = "allow UDP to 239.0.0.0/8 at the receiver, and check IGMP snooping and the \
                         querier of the switch; until then, Carom sends unicast copies";
    if heard.contains(&Kind::Answer) {
        findings.add(Finding::ok("unicast", format!("{host} answers")));
    } else {
        findings.add(Finding::bad(
            "unicast",
            format!("no answer from {host}, UDP port {port}"),
            format!("run `carom doctor --listen --port {port}` there, and allow UDP"),
        ));
    }
    if heard.is_empty() {
        return findings;
    }
    let (host, here) = (host.to_string(), "this machine".to_owned());
    for (check, proof, from, to) in [
        ("multicast to", Kind::HeardMulticast, &here, &host),
        ("multicast from", Kind::AnswerByMulticast, &host, &here),
    ] {
        findings.add(match heard.contains(&proof) {
            true => Finding::ok(check, format!("multicast from {from} arrives at {to}")),
            false => {
                let cause = format!("multicast from {from} does not arrive at {to}");
                Finding::bad(check, cause, multicast_fix)
            }
        });
    }
    if largest > 0 {
        findings.add(judge_size(largest));
    }
    findings
}

fn judge_size(largest: usize) -> Finding {
    let (check, mtu) = ("datagram size", largest + IP_UDP_BYTES);
    let cause = format!("the largest datagram that passes in both directions is {largest} bytes");
    let fix = "raise the MTU of all links and tunnels on the path (ip link set IFACE mtu 1500)";
    match mtu {
        1500.. => Finding::ok(check, cause),
        700..1500 => Finding::warn(check, format!("{cause}: a path MTU of {mtu}"), fix),
        _ => Finding::bad(check, format!("{cause}: too small for Carom"), fix),
    }
}

/// Answers queries only, so that two listeners never answer each other.
fn answer(socket: &UdpSocket, packet: Packet, from: SocketAddr) {
    let reply = |kind| Packet { kind, ..packet }.encode();
    match packet.kind {
        Kind::Ask => {
            let _ = socket.send_to(&reply(Kind::Answer), from);
            if let Some(interface) = route_to(from) {
                let _ = SockRef::from(socket).set_multicast_if_v4(&interface);
            }
            let _ = socket.send_to(&reply(Kind::AnswerByMulticast), (GROUP, from.port()));
        }
        Kind::AskByMulticast => {
            let _ = socket.send_to(&reply(Kind::HeardMulticast), from);
        }
        Kind::Size => {
            let _ = socket.send_to(&reply(Kind::SizeBack), from);
        }
        Kind::Answer | Kind::AnswerByMulticast | Kind::HeardMulticast | Kind::SizeBack => {}
    }
}

fn arrived(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Ask => Some("unicast"),
        Kind::AskByMulticast => Some("multicast"),
        _ => None,
    }
}

fn open(port: u16) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port))?;
    UdpSocketState::new(UdpSockRef::from(&socket))?;
    // `UdpSocketState` also enables coalescing on receipt, which this program does not split.
    nix::sys::socket::setsockopt(&socket, nix::sys::socket::sockopt::UdpGroSegment, &false)?;
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(STEP))?;
    Ok(socket)
}

/// Returns the next packet, or `None` if none arrives within 20 ms or it cannot be decoded.
fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> Result<Option<(Packet, SocketAddr)>, CliError> {
    match socket.recv_from(buffer) {
        Ok((length, from)) => Ok(Packet::decode(&buffer[..length]).map(|packet| (packet, from))),
        Err(error) if is_timeout(&error) => Ok(None),
        // The other side rejected an earlier datagram, or a signal arrived.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(CliError::io("cannot receive a datagram", &error)),
    }
}

fn resolve(host: &str, default_port: u16) -> Result<SocketAddrV4, CliError> {
    let text = if host.contains(':') { host.to_owned() } else { format!("{host}:{default_port}") };
    let found = text.to_socket_addrs().ok().and_then(|mut addresses| {
        addresses.find_map(|address| match address {
            SocketAddr::V4(address) if address.port() > 0 => Some(address),
            _ => None,
        })
    });
    found.ok_or_else(|| {
        CliError::new(
            format!("host '{host}' is invalid, or has no IPv4 address"),
            "use HOST or HOST:PORT, such as 10.0.0.1 or 10.0.0.1:7499",
        )
    })
}

/// Returns the local address that the kernel uses to reach `to`. Sends nothing.
fn route_to(to: SocketAddr) -> Option<Ipv4Addr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect(to).ok()?;
    match socket.local_addr().ok()?.ip() {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// Draws the token by which this run recognizes its answers. It need not be secret.
fn token() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = now.map_or(0, |now| now.as_nanos() as u64);
    carom_proto::Rng::new(nanos ^ u64::from(std::process::id()) << 32).next_u64()
}

/// Multicast address of the queries, outside the pool of group addresses: no node receives them.
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 255, 253);
const MAX_BYTES: usize = 65_507;
const IP_UDP_BYTES: usize = 28;
/// Largest payloads of Ethernet, jumbo frames and UDP, each with a neighboring size.
const COMMON_BYTES: [usize; 6] = [1_472, 1_473, 8_972, 8_973, 65_506, 65_507];
const STEP: Duration = Duration::from_millis(20);
const ASKINGS: usize = 5;
const ASK_WAIT: Duration = Duration::from_millis(200);
const SIZE_TRIES: usize = 2;
const SIZE_WAIT: Duration = Duration::from_millis(100);
const SEARCH_LIMIT: Duration = Duration::from_secs(4);
const MOST_TOLD: usize = 1024;

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn a_host_is_known_with_and_without_a_port() {
        let address = |text| resolve(text, 7499).map(|address| address.to_string());
        assert_eq!(address("127.0.0.1"), Ok("127.0.0.1:7499".to_owned()));
        assert_eq!(address("127.0.0.1:99"), Ok("127.0.0.1:99".to_owned()));
        assert!(address("127.0.0.1:0").is_err());
        assert!(address("no such host").is_err());
    }

    #[test]
    fn what_does_not_arrive_is_a_finding_that_hurts() {
        let listener = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 7499);
        let all = BTreeSet::from([Kind::Answer, Kind::AnswerByMulticast, Kind::HeardMulticast]);
        assert!(!judge(&listener, &all, 1472).will_hurt());
        for missing in &all {
            let mut heard = all.clone();
            heard.remove(missing);
            assert!(judge(&listener, &heard, 1472).will_hurt(), "{missing:?}");
        }
    }

    #[test]
    fn the_largest_datagram_is_judged_by_the_path_mtu() {
        let levels = [1_472, 1_471, 600].map(|size| judge_size(size).level);
        assert_eq!(levels, [Level::Ok, Level::Warn, Level::Bad]);
    }

    #[test]
    fn an_answer_is_never_answered() {
        let socket = open(0).expect("a port is free");
        let own =
            SocketAddr::from((Ipv4Addr::LOCALHOST, socket.local_addr().expect("bound").port()));
        answer(&socket, Packet::new(Kind::Answer, 1), own);
        answer(&socket, Packet::new(Kind::AskByMulticast, 2), own);
        let mut buffer = [0; 64];
        let first = receive(&socket, &mut buffer).expect("it can be received");
        let packet = first.map(|(packet, _)| packet);
        assert_eq!(packet, Some(Packet::new(Kind::HeardMulticast, 2)));
    }
}
