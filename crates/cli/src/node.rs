//! Flags of the subcommands that start a node.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{
    Builder, JoinError, JoinGroupError, Notice, PathChoice, Profile, RateOfFire, ViewChangeKind,
};
use carom_proto::Profile as Engine;
use carom_terminal::interrupt::Interrupt;
use carom_terminal::{CliError, output};

use crate::quorum;

#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NodeArgs {
    /// Network interface, by name or IPv4 address [default: the first one with multicast]
    #[arg(long, value_name = "NAME|IP")]
    interface: Option<String>,
    /// UDP port of this node [default: 7400, or a free port if it is taken]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    port: Option<u16>,
    /// Address of a running node, HOST or HOST:PORT; may be repeated
    #[arg(long = "seed", value_name = "ADDR")]
    seeds: Vec<String>,
    /// Address of a registry (`carom registry`), HOST or HOST:PORT; may be repeated.
    /// Replaces gossip discovery
    #[arg(long = "registry", value_name = "ADDR", conflicts_with = "seeds", value_delimiter = ',')]
    registries: Vec<String>,
    /// Cluster name that the registry must have
    #[arg(long, value_name = "NAME", default_value = "", requires = "registries")]
    #[arg(hide_default_value = true)]
    cluster: String,
    /// Rack of this host, for the failure detectors of the registry
    #[arg(long, value_name = "NAME", default_value = "", requires = "registries")]
    #[arg(hide_default_value = true)]
    rack: String,
    /// UDP port of all multicast traffic, the same at all nodes [default: 7401]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    multicast_port: Option<u16>,
    /// Largest IP packet to send, in bytes, at least 700. Lower it if the network drops larger
    /// packets silently. Raise it above 1500 for jumbo frames, which are sent only where probes
    /// show that they arrive [default: 1500, or the MTU of the interface if that is smaller]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(700..))]
    mtu: Option<u16>,
    /// Delivery of packets to the other members
    #[arg(long, value_name = "PATH", default_value = "auto")]
    path: Path,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Path {
    /// Multicast, and unicast copies for members that multicast does not reach
    #[default]
    Auto,
    /// Multicast only
    Multicast,
    /// Unicast copies only
    Unicast,
}

impl From<Path> for PathChoice {
    fn from(path: Path) -> Self {
        match path {
            Path::Auto => Self::Auto,
            Path::Multicast => Self::Multicast,
            Path::Unicast => Self::Unicast,
        }
    }
}

impl NodeArgs {
    pub(crate) fn service(&self) -> Option<(&[String], &str)> {
        (!self.registries.is_empty()).then_some((&*self.registries, &*self.cluster))
    }

    pub(crate) fn builder(&self) -> Builder {
        let mut builder = Node::builder().path(self.path.into());
        if let Some(interface) = &self.interface {
            builder = builder.interface(interface.as_str());
        }
        if let Some(port) = self.port {
            builder = builder.port(port);
        }
        if let Some(port) = self.multicast_port {
            builder = builder.multicast_port(port);
        }
        if let Some(bytes) = self.mtu {
            builder = builder.mtu(bytes);
        }
        let builder = builder.registry(&self.registries).cluster(&self.cluster).rack(&self.rack);
        builder.seeds(&self.seeds)
    }

    pub(crate) fn start(&self, builder: Builder, interrupt: &Interrupt) -> Result<Node, CliError> {
        let node =
            Node::start(builder).map_err(|error| CliError::new(error.to_string(), error.fix()))?;
        let news = News::of_start();
        news.tell(&node);
        let settled = self.find_seeds(&node, interrupt).and_then(|()| settle(&node, interrupt));
        // Some restrictions of the network become known only once the node sends.
        news.tell(&node);
        settled.map(|()| node)
    }

    /// Waits until another node answers, and fails after 3 s. Returns at once without seeds, or if
    /// this node is a seed, because the first seed would wait in vain.
    fn find_seeds(&self, node: &Node, interrupt: &Interrupt) -> Result<(), CliError> {
        let others: Vec<&String> =
            self.seeds.iter().filter(|seed| !is_own(seed, node.endpoint())).collect();
        if others.len() < self.seeds.len() || others.is_empty() {
            return Ok(());
        }
        let give_up = Instant::now() + SEED_PATIENCE;
        while node.status().members.is_empty() {
            if interrupt.wait(Duration::from_millis(20)) {
                return Err(CliError::interrupted());
            }
            if Instant::now() >= give_up {
                let names: Vec<&str> = others.into_iter().map(String::as_str).collect();
                let cause = unanswered(&names);
                let fix = format!(
                    "start a node there first, with the same --multicast-port {}, or check the \
                     path with `carom doctor {}`",
                    self.multicast_port.unwrap_or(DEFAULT_MULTICAST_PORT),
                    names[0].split(':').next().unwrap_or_default()
                );
                return Err(CliError::new(cause, fix));
            }
        }
        Ok(())
    }
}

fn unanswered(seeds: &[&str]) -> String {
    match seeds {
        [seed] => format!("seed {seed} did not answer within {SEED_PATIENCE:?}"),
        seeds => format!("seeds {} did not answer within {SEED_PATIENCE:?}", seeds.join(", ")),
    }
}

/// Waits until the node is settled, for at most 2 s. The same wait in `join` cannot be interrupted.
pub(crate) fn settle(node: &Node, interrupt: &Interrupt) -> Result<(), CliError> {
    let give_up = Instant::now() + SETTLE_PATIENCE;
    while Instant::now() < give_up && !node.settled(Duration::from_millis(50)) {
        if interrupt.is_asked() {
            return Err(CliError::interrupted());
        }
    }
    Ok(())
}

pub(crate) fn join(node: &Node, group: &str, rate: RateOfFire) -> Result<Group, CliError> {
    let profile = Profile::time_critical().rate_of_fire(rate.r, rate.c);
    node.join(group, profile).map_err(|error| refused(group, &error))
}

/// Returns the error for a failed join. If the settings differ, its fix names the members' flags.
pub(crate) fn refused(group: &str, error: &JoinGroupError) -> CliError {
    let fix = match error {
        JoinGroupError::Refused(JoinError::Contradiction { theirs, .. }) => {
            let flags = match theirs.profile {
                Engine::Ordered(quorum) => quorum::flags(quorum),
                Engine::TimeCritical(RateOfFire { r, c }) => format!("--rate-of-fire {r},{c}"),
                other => format!("profile {other}"),
            };
            format!("join with {flags}, like the members of the group")
        }
        other => other.fix(),
    };
    CliError::new(format!("group '{group}': {error}"), fix)
}

/// Returns the error for a group that was closed while in use. Its cause is a notice of the node. A
/// group is closed if its members turn out to have other settings after this node has joined it.
pub(crate) fn closed(node: &Node, group: &str) -> CliError {
    let notice = why_closed(node.notices(), group);
    let fix = notice.as_ref().and_then(|notice| notice.fix.clone());
    let cause = notice.map_or_else(|| format!("group '{group}' was closed"), |notice| notice.text);
    CliError::new(
        cause,
        fix.unwrap_or_else(|| "join it with the settings of its members".to_owned()),
    )
}

fn why_closed(notices: Vec<Notice>, group: &str) -> Option<Notice> {
    let begin = format!("group {group:?} is closed: ");
    notices.into_iter().rfind(|notice| notice.text.starts_with(&begin))
}

/// The number of a node's notices already shown, so that each is shown once.
#[derive(Debug)]
pub(crate) struct News {
    seen: Cell<usize>,
}

impl News {
    pub(crate) fn of_start() -> Self {
        Self { seen: Cell::new(0) }
    }

    pub(crate) fn from_now(node: &Node) -> Self {
        let news = Self { seen: Cell::new(usize::MAX) };
        news.take(node);
        news
    }

    pub(crate) fn take(&self, node: &Node) -> Vec<Notice> {
        let (notices, all) = node.notices_since(self.seen.get());
        self.seen.set(all);
        notices
    }

    pub(crate) fn tell(&self, node: &Node) {
        let is_seen = std::io::stderr().is_terminal();
        for notice in self.take(node).iter().filter(|it| is_told(it.is_routine, is_seen)) {
            tell(notice);
        }
    }
}

fn tell(notice: &Notice) {
    output::say(format_args!("note: {}", notice.text));
    if let Some(fix) = &notice.fix {
        output::say(format_args!("fix: {fix}"));
    }
}

fn is_told(is_routine: bool, is_terminal: bool) -> bool {
    is_terminal || !is_routine
}

pub(crate) fn wildcard_hint(group: &str) -> Option<String> {
    group
        .contains(['*', '?', '>', '#'])
        .then(|| format!("group names have no wildcards: {group} is the name of a single group"))
}

#[derive(Debug)]
pub(crate) struct ServiceWatch {
    is_away: Cell<bool>,
    news: News,
}

impl ServiceWatch {
    pub(crate) fn new(node: &Node) -> Self {
        Self { is_away: Cell::default(), news: News::from_now(node) }
    }

    /// Prints new notices, except those about the registry, which [`Self::look`] reports.
    fn tell_news(&self, node: &Node) {
        let news = self.news.take(node);
        for notice in news.iter().filter(|it| !it.text.starts_with("the registry is")) {
            tell(notice);
        }
    }

    /// Prints new notices. Reports when the registry becomes unreachable or reachable, and then
    /// returns its new state, as used in JSON.
    pub(crate) fn look(&self, node: &Node) -> Option<&'static str> {
        self.tell_news(node);
        let is_away = node.is_away();
        if self.is_away.replace(is_away) == is_away {
            return None;
        }
        if is_away {
            output::say("the registry is unreachable: keeping the last known members");
            return Some("away");
        }
        output::say("the registry is reachable again: the members are up to date");
        Some("back")
    }
}

pub(crate) fn change(kind: ViewChangeKind) -> &'static str {
    match kind {
        ViewChangeKind::Joined => "joined",
        ViewChangeKind::Left => "left",
        ViewChangeKind::Failed => "failed",
    }
}

fn with_port(seed: &str) -> String {
    if seed.contains(':') { seed.to_owned() } else { format!("{seed}:{DEFAULT_PORT}") }
}

fn is_own(seed: &str, own: SocketAddr) -> bool {
    with_port(seed).to_socket_addrs().is_ok_and(|mut found| found.any(|address| address == own))
}

const DEFAULT_PORT: u16 = 7400;
const DEFAULT_MULTICAST_PORT: u16 = 7401;
const SEED_PATIENCE: Duration = Duration::from_secs(3);
const SETTLE_PATIENCE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routine_notices_are_told_on_terminals_only() {
        assert!(is_told(false, false) && is_told(false, true));
        assert!(is_told(true, true) && !is_told(true, false));
    }

    #[test]
    fn a_closed_group_is_told_with_its_own_notice() {
        let notice = |text: &str| Notice { text: text.to_owned(), fix: None, is_routine: false };
        let notices = vec![
            notice("group \"g\" is closed: its members have other settings"),
            notice("group \"h\" is closed: the application did not receive its messages in time"),
            notice("packets of 1500 bytes do not come through"),
        ];
        let why = |group: &str| why_closed(notices.clone(), group).map(|notice| notice.text);
        assert_eq!(why("g").as_ref(), Some(&notices[0].text));
        assert_eq!(why("i"), None);
    }

    #[test]
    fn names_like_patterns_are_taken_literally() {
        for pattern in ["prices.*", "prices.>", "prices.?", "prices/#"] {
            assert!(wildcard_hint(pattern).is_some_and(|hint| hint.contains(pattern)), "{pattern}");
        }
        assert_eq!(wildcard_hint("prices.eu-1"), None);
    }

    #[test]
    fn several_seeds_that_do_not_answer_are_told_in_the_plural() {
        assert_eq!(unanswered(&["a"]), "seed a did not answer within 3s");
        assert_eq!(unanswered(&["a", "b:1"]), "seeds a, b:1 did not answer within 3s");
    }

    #[test]
    fn a_seed_without_a_port_has_the_default_one() {
        assert_eq!(with_port("10.0.0.1"), "10.0.0.1:7400");
        assert_eq!(with_port("host:99"), "host:99");
        assert!(is_own("127.0.0.1", "127.0.0.1:7400".parse().expect("it is an address")));
        assert!(!is_own("127.0.0.1:1", "127.0.0.1:7400".parse().expect("it is an address")));
    }
}
