//! The flags of every verb that starts a node, and the start itself.

use std::cell::Cell;
use std::io::IsTerminal as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use carom::{
    Builder, Group, JoinError, JoinGroupError, Node, Notice, PathChoice, Profile, RateOfFire,
};
use carom_proto::Profile as Engine;

use crate::error::CliError;
use crate::interrupt::Interrupt;
use crate::output;
use crate::ring;

/// Where and how a node takes part.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct NodeArgs {
    /// Network interface, by name or IPv4 address [default: the first that can multicast]
    #[arg(long, value_name = "NAME|IP")]
    interface: Option<String>,
    /// UDP port of this node [default: 7400, or any free one if it is taken]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    port: Option<u16>,
    /// Address of a node that is there already, HOST or HOST:PORT; may be repeated
    #[arg(long = "seed", value_name = "ADDR")]
    seeds: Vec<String>,
    /// Address of a membership service (`carom control`), HOST or HOST:PORT; may be repeated.
    /// Members are found by it alone
    #[arg(long = "control", value_name = "ADDR", conflicts_with = "seeds", value_delimiter = ',')]
    controls: Vec<String>,
    /// Name of the cluster that the membership service is that of
    #[arg(long, value_name = "NAME", default_value = "", requires = "controls")]
    #[arg(hide_default_value = true)]
    cluster: String,
    /// Where this machine stands, for the membership service's failure detectors
    #[arg(long, value_name = "NAME", default_value = "", requires = "controls")]
    #[arg(hide_default_value = true)]
    rack: String,
    /// UDP port of all multicast, the same at all nodes [default: 7401]
    #[arg(long, value_name = "PORT", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    multicast_port: Option<u16>,
    /// Largest IP packet that is sent, in bytes: fewer where something between is narrower and
    /// refuses to say so, more than 1500 for jumbo frames, where probes find that they come
    /// through [default: 1500, or what the interface carries if that is less]
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u16).range(700..))]
    mtu: Option<u16>,
    /// How packets reach the other members
    #[arg(long, value_name = "PATH", default_value = "auto")]
    path: Path,
}

/// How packets reach the other members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Path {
    /// Multicast to those whom it reaches, unicast copies to the others
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
    /// The membership services, and the cluster that they must be of; `None` without any.
    pub(crate) fn service(&self) -> Option<(&[String], &str)> {
        (!self.controls.is_empty()).then_some((&*self.controls, &*self.cluster))
    }

    /// A builder with these flags.
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
        let builder = builder.control(&self.controls).cluster(&self.cluster).rack(&self.rack);
        builder.seeds(&self.seeds)
    }

    /// Starts the node, says what the user should know, and finds the seeds.
    ///
    /// # Errors
    /// If it cannot start, no seed answers, or the user asks to end.
    pub(crate) fn start(&self, builder: Builder, interrupt: &Interrupt) -> Result<Node, CliError> {
        let node =
            builder.start().map_err(|error| CliError::new(error.to_string(), error.fix()))?;
        let news = News::of_start();
        news.tell(&node);
        let settled = self.find_seeds(&node, interrupt).and_then(|()| settle(&node, interrupt));
        // Only when it speaks to others does it find out what the network refuses.
        news.tell(&node);
        settled.map(|()| node)
    }

    /// Waits until somebody answers, if there are seeds other than this node.
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
                    "start a node there first, with --multicast-port {} as here, or see what \
                     arrives: `carom doctor {}`",
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
        [seed] => format!("seed {seed} does not answer within {SEED_PATIENCE:?}"),
        seeds => format!("seeds {} do not answer within {SEED_PATIENCE:?}", seeds.join(", ")),
    }
}

/// Waits until the node has found its place, as joining would, but hears Ctrl-C meanwhile.
///
/// # Errors
/// If the user asks to end.
pub(crate) fn settle(node: &Node, interrupt: &Interrupt) -> Result<(), CliError> {
    let give_up = Instant::now() + SETTLE_PATIENCE;
    while Instant::now() < give_up && !node.settled(Duration::from_millis(50)) {
        if interrupt.is_asked() {
            return Err(CliError::interrupted());
        }
    }
    Ok(())
}

/// Joins `group` as a time-critical one.
///
/// # Errors
/// If the group's members have other settings, or the node ended.
pub(crate) fn join(node: &Node, group: &str, rate: RateOfFire) -> Result<Group, CliError> {
    let profile = Profile::time_critical().rate_of_fire(rate.r, rate.c);
    node.join(group, profile).map_err(|error| refused(group, &error))
}

/// The error of a group that could not be joined; where its members have it otherwise, with the
/// flags that they were given.
pub(crate) fn refused(group: &str, error: &JoinGroupError) -> CliError {
    let fix = match error {
        JoinGroupError::Refused(JoinError::Contradiction { theirs, .. }) => {
            let flags = match theirs.profile {
                Engine::Ordered(partition) => ring::flags(partition),
                Engine::TimeCritical(RateOfFire { r, c }) => format!("--rate-of-fire {r},{c}"),
                other => format!("profile {other}"),
            };
            format!("join with {flags}, as its members did")
        }
        other => other.fix(),
    };
    CliError::new(format!("group {group}: {error}"), fix)
}

/// The error of a group that was closed under its user: it was joined before its members were
/// known, and they have it otherwise. A notice of the node gives the reason.
pub(crate) fn closed(node: &Node, group: &str) -> CliError {
    let notice = why_closed(node.notices(), group);
    let fix = notice.as_ref().and_then(|notice| notice.fix.clone());
    let cause = notice.map_or_else(|| format!("group {group} was closed"), |notice| notice.text);
    CliError::new(cause, fix.unwrap_or_else(|| "join it as its members did".to_owned()))
}

/// The last notice about the end of `group`: later ones may be about other things.
fn why_closed(notices: Vec<Notice>, group: &str) -> Option<Notice> {
    let begin = format!("group {group:?} is closed: ");
    notices.into_iter().rfind(|notice| notice.text.starts_with(&begin))
}

/// How many notices of a node its user has seen, so that each is shown once.
#[derive(Debug)]
pub(crate) struct News {
    seen: Cell<usize>,
}

impl News {
    /// Begins with the first notice of the node.
    pub(crate) fn of_start() -> Self {
        Self { seen: Cell::new(0) }
    }

    /// Begins with the next notice of `node`.
    pub(crate) fn from_now(node: &Node) -> Self {
        let news = Self { seen: Cell::new(usize::MAX) };
        news.take(node);
        news
    }

    /// The notices since the last call.
    pub(crate) fn take(&self, node: &Node) -> Vec<Notice> {
        let (notices, all) = node.notices_since(self.seen.get());
        self.seen.set(all);
        notices
    }

    /// Writes the notices since the last call to standard error.
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

/// Whether a notice is told: what is routine only to a person at a terminal, not to a log.
fn is_told(is_routine: bool, is_terminal: bool) -> bool {
    is_terminal || !is_routine
}

/// What is told of a group's name that looks like a pattern.
pub(crate) fn wildcard_hint(group: &str) -> Option<String> {
    group.contains(['*', '?', '>', '#']).then(|| {
        format!("group names have no wildcards: {group} is one group, of exactly this name")
    })
}

/// The news of a running node, and whether its membership service was away at the last look.
#[derive(Debug)]
pub(crate) struct ServiceWatch {
    is_away: Cell<bool>,
    news: News,
}

impl ServiceWatch {
    /// What the start of the node has told need not be told again.
    pub(crate) fn new(node: &Node) -> Self {
        Self { is_away: Cell::default(), news: News::from_now(node) }
    }

    /// Tells on standard error what is new: of the service in words of its own.
    fn tell_news(&self, node: &Node) {
        let news = self.news.take(node);
        for notice in news.iter().filter(|it| !it.text.starts_with("the membership service is")) {
            tell(notice);
        }
    }

    /// Tells on standard error when the service goes away or comes back; returns which, as JSON
    /// has it.
    pub(crate) fn look(&self, node: &Node) -> Option<&'static str> {
        self.tell_news(node);
        let is_away = node.is_away();
        if self.is_away.replace(is_away) == is_away {
            return None;
        }
        if is_away {
            output::say("the membership service is away: going on with the members last known");
            return Some("away");
        }
        output::say("the membership service is back: the members are as it says");
        Some("back")
    }
}

/// The address with the default port if it has none.
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
            notice("group \"h\" is closed: its application did not take its messages"),
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
        assert_eq!(unanswered(&["a"]), "seed a does not answer within 3s");
        assert_eq!(unanswered(&["a", "b:1"]), "seeds a, b:1 do not answer within 3s");
    }

    #[test]
    fn a_seed_without_a_port_has_the_default_one() {
        assert_eq!(with_port("10.0.0.1"), "10.0.0.1:7400");
        assert_eq!(with_port("host:99"), "host:99");
        assert!(is_own("127.0.0.1", "127.0.0.1:7400".parse().expect("it is an address")));
        assert!(!is_own("127.0.0.1:1", "127.0.0.1:7400".parse().expect("it is an address")));
    }
}
