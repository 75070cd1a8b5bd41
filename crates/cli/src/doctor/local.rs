use std::net::Ipv4Addr;

use carom::unstable::lateral;
use carom::{Buffers, Interface, RateOfFire};
use carom_terminal::{CliError, plain};

use super::finding::{Finding, Findings};
use super::probe::{self, Buffer};

pub(crate) fn examine(wanted: Option<&str>) -> Result<Findings, CliError> {
    let all = interfaces(wanted)?;
    let first = all.iter().find(|it| it.is_up && it.is_multicast && !it.is_loopback);
    let chosen = first.or_else(|| all.first()).map(|it| it.name.clone());
    let mut findings = Findings::default();
    if all.is_empty() {
        let cause = "no interface with an IPv4 address is up";
        findings.add(Finding::bad(
            "up",
            cause,
            "ip link set lo up, or connect the machine to a network",
        ));
    }
    for interface in &all {
        let is_chosen = chosen.as_ref() == Some(&interface.name);
        for finding in of_interface(interface) {
            findings.add(finding.on(&interface.name, is_chosen));
        }
    }
    findings.add(of_buffer(Buffer::Receive));
    findings.add(of_buffer(Buffer::Send));
    findings.add(of_memberships(&std::fs::read_to_string(MEMBERSHIPS).unwrap_or_default()));
    findings.add(of_timer());
    Ok(findings)
}

pub(crate) fn interfaces(wanted: Option<&str>) -> Result<Vec<Interface>, CliError> {
    let all = Interface::list().map_err(|error| CliError::new(error.to_string(), error.fix()))?;
    let Some(wanted) = wanted else { return Ok(all) };
    let address: Option<Ipv4Addr> = wanted.parse().ok();
    let (matching, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|it| it.name == wanted || Some(it.address) == address);
    if !matching.is_empty() {
        return Ok(matching);
    }
    let known: Vec<String> =
        others.iter().map(|it| format!("{} ({})", it.name, it.address)).collect();
    Err(CliError::new(
        format!("interface '{wanted}' does not exist or has no IPv4 address"),
        format!("use one of: {}", known.join(", ")),
    ))
}

fn of_interface(interface: &Interface) -> Vec<Finding> {
    let name = &interface.name;
    if !interface.is_up {
        return vec![Finding::bad("up", "the interface is down", format!("ip link set {name} up"))];
    }
    let mut findings =
        vec![Finding::ok("up", format!("the interface is up at {}", interface.address))];
    findings.push(of_flag(interface));
    findings.extend(of_mtu(name, interface.mtu()));
    let unicast = probe::unicast_to_oneself(interface.address);
    let unicast_works = matches!(unicast, Ok(true));
    findings.push(match unicast {
        Ok(true) => Finding::ok("unicast", "a datagram to this machine's own address arrives"),
        Ok(false) => Finding::bad(
            "unicast",
            "a datagram to this machine's own address does not arrive",
            "allow UDP in the firewall: see `nft list ruleset` or `iptables -S`",
        ),
        Err(error) => Finding::bad(
            "unicast",
            format!("cannot send a datagram to this machine's own address: {}", plain(&error)),
            format!("see `ip addr show {name}`"),
        ),
    });
    findings.push(of_multicast(interface, unicast_works));
    findings
}

fn of_flag(interface: &Interface) -> Finding {
    let check = "multicast flag";
    if interface.is_multicast {
        return Finding::ok(check, "the interface has the multicast flag");
    }
    if interface.is_loopback {
        return Finding::ok(check, "loopback has no multicast flag, but often carries multicast");
    }
    Finding::warn(
        check,
        "the interface has no multicast flag",
        format!("ip link set {} multicast on", interface.name),
    )
}

fn of_multicast(interface: &Interface, unicast_works: bool) -> Finding {
    let (check, name) = ("multicast", &interface.name);
    match probe::multicast_to_oneself(interface.address, PROBE_GROUP) {
        Ok(true) => Finding::ok(check, "this machine receives its own multicast datagram"),
        Ok(false) if unicast_works => Finding::bad(
            check,
            "this machine does not receive its own multicast datagram, but unicast does",
            "allow UDP to 239.0.0.0/8 (nft: ip daddr 239.0.0.0/8 accept), or use --path unicast",
        ),
        Ok(false) => Finding::bad(
            check,
            "this machine does not receive its own multicast datagram",
            "fix the finding on unicast first",
        ),
        Err(error) => Finding::bad(
            check,
            format!("a multicast datagram cannot be sent: {}", plain(&error)),
            format!("ip link set {name} multicast on, or use --path unicast"),
        ),
    }
}

fn of_mtu(name: &str, mtu: Option<u16>) -> Option<Finding> {
    let (check, mtu) = ("mtu", mtu?);
    let common = lateral::Config::default().path_mtu;
    let config = lateral::Config { path_mtu: mtu.min(common), ..lateral::Config::default() };
    let fix = format!("ip link set {name} mtu {common}, if the network supports it");
    if config.validate().is_err() {
        return Some(Finding::bad(check, format!("an MTU of {mtu} bytes is too small"), fix));
    }
    let limit = config.packet_limit(RateOfFire::default());
    let cause =
        format!("MTU of {mtu} bytes: messages of up to {limit} bytes fit in one packet at r = 8");
    Some(if mtu >= common {
        Finding::ok(check, cause)
    } else {
        Finding::warn(check, format!("{cause}; most networks have {common}"), fix)
    })
}

fn of_buffer(buffer: Buffer) -> Finding {
    let (check, asked, sysctl) = match buffer {
        Buffer::Receive => ("receive buffer", Buffers::RECEIVE_REQUEST, "net.core.rmem_max"),
        Buffer::Send => ("send buffer", Buffers::SEND_REQUEST, "net.core.wmem_max"),
    };
    match probe::granted(buffer, asked) {
        Ok(granted) => judge_buffer(check, asked, granted, sysctl),
        Err(error) => Finding::bad(
            check,
            format!("cannot create a socket: {}", plain(&error)),
            "raise `ulimit -n`",
        ),
    }
}

fn judge_buffer(
    check: &'static str,
    asked: usize,
    granted: usize,
    sysctl: &'static str,
) -> Finding {
    let kib = |bytes: usize| bytes >> 10;
    let cause = format!("{} KiB of {} KiB granted", kib(granted), kib(asked));
    if granted >= asked {
        return Finding::ok(check, cause);
    }
    let fix = format!("sysctl -w {sysctl}={asked}, and add it to /etc/sysctl.d to keep it");
    if granted < HURTING_BYTES {
        Finding::bad(check, format!("{cause}: bursts will be lost and need repair"), fix)
    } else {
        Finding::warn(check, cause, fix)
    }
}

fn of_memberships(text: &str) -> Finding {
    let check = "memberships";
    match text.trim().parse::<u32>() {
        Ok(0) => Finding::bad(
            check,
            "no multicast group can be joined",
            "sysctl -w net.ipv4.igmp_max_memberships=20",
        ),
        Ok(limit) => Finding::ok(
            check,
            format!("{limit} multicast addresses per socket; Carom opens more sockets beyond 20"),
        ),
        Err(_) => {
            Finding::ok(check, "the system reports no limit; Carom uses 20 addresses per socket")
        }
    }
}

fn of_timer() -> Finding {
    let (check, (median, worst)) = ("timer", probe::timer_overshoot());
    let cause = format!("a sleep of 1 ms ends {median:.0?} late (median), at most {worst:.0?}");
    if median.as_millis() < 1 {
        return Finding::ok(check, cause);
    }
    let fix = "reduce the CPU load, or run Carom with a higher priority (nice, chrt)";
    Finding::warn(check, format!("{cause}: repairs and pacing will be late"), fix)
}

const MEMBERSHIPS: &str = "/proc/sys/net/ipv4/igmp_max_memberships";
/// Multicast address of the probes, outside the pool of group addresses: no node receives them.
const PROBE_GROUP: Ipv4Addr = Ipv4Addr::new(239, 77, 255, 254);
/// Buffer size, in bytes, below which bursts are lost: it holds about 50 packets of 1 KiB.
const HURTING_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    #[test]
    fn the_mtu_is_judged_by_the_message_that_fits() {
        let level = |mtu| of_mtu("eth0", mtu).map(|finding| finding.level);
        assert_eq!(level(Some(65535)), Some(Level::Ok));
        assert_eq!(level(Some(1500)), Some(Level::Ok));
        assert_eq!(level(Some(1400)), Some(Level::Warn));
        assert_eq!(level(Some(576)), Some(Level::Bad));
        assert_eq!(level(None), None);
    }

    #[test]
    fn a_short_buffer_comes_with_the_sysctl_that_fixes_it() {
        let judge = |granted| judge_buffer("receive buffer", 4 << 20, granted, "net.core.rmem_max");
        assert_eq!(judge(4 << 20).level, Level::Ok);
        assert_eq!(judge(212_992).level, Level::Warn);
        assert_eq!(judge(32 << 10).level, Level::Bad);
        let fix = judge(212_992).fix.expect("the buffer is too small");
        assert!(fix.starts_with("sysctl -w net.core.rmem_max=4194304"), "{fix}");
    }

    #[test]
    fn memberships_hurt_only_if_there_are_none() {
        assert_eq!(of_memberships("20\n").level, Level::Ok);
        assert_eq!(of_memberships("").level, Level::Ok);
        assert_eq!(of_memberships("0\n").level, Level::Bad);
    }

    #[test]
    fn an_unknown_interface_is_an_error_that_lists_the_known_ones() {
        let error = interfaces(Some("nosuch0")).expect_err("no interface has this name");
        assert!(error.to_string().contains("nosuch0"), "{error}");
        assert!(error.to_string().contains("lo (127.0.0.1)"), "{error}");
    }
}
