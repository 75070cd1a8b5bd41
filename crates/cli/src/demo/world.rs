use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{Driver, MemberPath, MulticastPool};
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, counted};

use super::args::Args;
use super::ledger::Label;
use super::plan::Plan;
use super::report::Work;
use crate::loss::injected;
use crate::node as node_start;

pub(crate) struct World {
    nodes: Vec<Node>,
    /// Groups of each node, in the order of the plan.
    pub(crate) groups: Vec<Vec<Group>>,
    _driver: Driver,
}

impl World {
    pub(crate) fn start(args: &Args, plan: &Plan, interrupt: &Interrupt) -> Result<Self, CliError> {
        let driver =
            Driver::new().map_err(|error| CliError::io("cannot start the driver", &error))?;
        let nodes = start_nodes(args, plan, &driver)?;
        // The notices concern the machine, which all nodes share.
        nodes.iter().take(1).for_each(|node| node_start::News::of_start().tell(node));
        for node in &nodes {
            node_start::settle(node, interrupt)?;
        }
        let mut groups = Vec::new();
        for (node, of_node) in nodes.iter().zip(&plan.groups_of) {
            if interrupt.is_asked() {
                return Err(CliError::interrupted());
            }
            let join =
                |group: &usize| node_start::join(node, &format!("demo.{group}"), args.rate_of_fire);
            groups.push(of_node.iter().map(join).collect::<Result<Vec<_>, _>>()?);
        }
        let world = Self { nodes, groups, _driver: driver };
        world.await_views(plan, interrupt)?;
        Ok(world)
    }

    pub(crate) fn payload_bytes(&self, args: &Args) -> Result<usize, CliError> {
        let limits = self.groups.iter().flatten().map(|group| group.payload_limit());
        let limit = limits.min().unwrap_or(DEFAULT_PAYLOAD);
        let bytes = args.payload.unwrap_or(DEFAULT_PAYLOAD.min(limit));
        if (Label::BYTES..=limit).contains(&bytes) {
            return Ok(bytes);
        }
        let cause =
            format!("--payload {bytes} is invalid: expected {} to {limit} bytes", Label::BYTES);
        Err(CliError::new(cause, format!("use --payload {} to {limit}", Label::BYTES)))
    }

    pub(crate) fn work(&self) -> Work {
        let mut work = Work::default();
        for node in &self.nodes {
            let stats = node.status().stats;
            work.net += stats.net;
            work.lateral += stats.lateral;
        }
        work
    }

    pub(crate) fn path(&self) -> &'static str {
        let statuses: Vec<_> = self.nodes.iter().map(Node::status).collect();
        let paths = || statuses.iter().flat_map(|status| &status.members);
        let multicast = paths().any(|member| matches!(member.path, MemberPath::Multicast));
        // A member that has not confirmed multicast receives unicast copies as well.
        let unicast = paths().any(|member| !matches!(member.path, MemberPath::Multicast));
        match (multicast, unicast) {
            (true, false) => "multicast",
            (true, true) => "mixed",
            (false, _) => "unicast",
        }
    }

    pub(crate) fn close(self) {
        for group in self.groups.into_iter().flatten() {
            group.leave();
        }
        for node in self.nodes {
            node.close();
        }
    }

    /// Waits for complete views, because a member that is missing from a view receives no messages.
    fn await_views(&self, plan: &Plan, interrupt: &Interrupt) -> Result<(), CliError> {
        let mut progress = Instant::now();
        let mut least = usize::MAX;
        loop {
            let missing = self.missing(plan);
            if missing == 0 {
                return Ok(());
            }
            if interrupt.wait(Duration::from_millis(10)) {
                return Err(CliError::interrupted());
            }
            if missing < least {
                (least, progress) = (missing, Instant::now());
            }
            if progress.elapsed() >= VIEW_PATIENCE {
                let cause = unseen(missing);
                return Err(CliError::new(cause, "use fewer --nodes or --groups, or --unicast"));
            }
        }
    }

    fn missing(&self, plan: &Plan) -> usize {
        let of_node = |groups: &[Group], numbers: &[usize]| -> usize {
            let pairs = groups.iter().zip(numbers);
            let wanted = |number: &usize| plan.members[*number].len() - 1;
            pairs.map(|(group, number)| wanted(number).saturating_sub(group.members().len())).sum()
        };
        self.groups.iter().zip(&plan.groups_of).map(|(groups, of)| of_node(groups, of)).sum()
    }
}

fn unseen(missing: usize) -> String {
    format!("{} of groups not yet known to all others", counted(missing, "member"))
}

fn start_nodes(args: &Args, plan: &Plan, driver: &Driver) -> Result<Vec<Node>, CliError> {
    let multicast_port = match args.multicast_port {
        Some(port) => port,
        None => free_port()?,
    };
    let mut rng = plan.rng.clone();
    let mut nodes: Vec<Node> = Vec::new();
    for number in 0..args.nodes {
        // Port 0 selects a free port.
        let port = args.port.filter(|_| number == 0).unwrap_or(0);
        let config =
            carom::unstable::lateral::Config { stagger: args.stagger, ..Default::default() };
        let mut builder = Node::builder()
            .interface(args.interface.as_str())
            .port(port)
            .multicast_port(multicast_port)
            .pool(pool(multicast_port))
            .path(args.path())
            .loss(injected(args.loss, args.burst))
            .seed(rng.next_u64())
            .lateral(config)
            .driver(driver);
        if let Some(first) = nodes.first() {
            builder = builder.seeds([first.endpoint().to_string()]);
        }
        let started = Node::start(builder);
        nodes.push(started.map_err(|error| CliError::new(error.to_string(), error.fix()))?);
    }
    Ok(nodes)
}

fn free_port() -> Result<u16, CliError> {
    UdpSocket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        .and_then(|socket| socket.local_addr())
        .map(|address| address.port())
        .map_err(|error| CliError::io("cannot find a free UDP port", &error))
}

/// Returns addresses that depend on the port, so that two demos do not wake each other's sockets.
fn pool(multicast_port: u16) -> MulticastPool {
    let [high, low] = multicast_port.to_be_bytes();
    MulticastPool {
        first: Ipv4Addr::new(239, 78 + (high >> 4), high << 4 | low >> 4, low << 4),
        count: POOL_ADDRESSES,
        hello: Ipv4Addr::new(239, 95, high, low),
    }
}

const DEFAULT_PAYLOAD: usize = 1024;
const POOL_ADDRESSES: u16 = 16;
const VIEW_PATIENCE: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missing_member_is_singular() {
        assert_eq!(unseen(1), "1 member of groups not yet known to all others");
        assert!(unseen(2).starts_with("2 members "));
    }

    #[test]
    fn demos_on_different_ports_share_no_address() {
        let last = |pool: MulticastPool| u32::from(pool.first) + u32::from(pool.count) - 1;
        for port in [1, 7_401, 40_000, 65_534] {
            let (one, next) = (pool(port), pool(port + 1));
            assert!(one.is_valid(), "{one}");
            assert!(last(one) < u32::from(next.first), "{one} {next}");
            assert_ne!(one.hello, next.hello);
        }
    }
}
