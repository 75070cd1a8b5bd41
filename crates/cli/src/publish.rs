//! `carom pub`: standard input to the members of a group.

mod pace;
mod source;

use std::cell::Cell;
use std::time::{Duration, Instant};

use carom::{Event, Group, Node, NotSafe, RateOfFire, Safe, TryPublishError, ViewChangeKind};
use serde_json::json;

use crate::error::{CliError, Outcome};
use crate::frames::Framing;
use crate::interrupt::{self, Interrupt};
use crate::node::{self, NodeArgs, ServiceWatch};
use crate::{output, units};
use pace::Pace;
use source::{Item, Source};

/// Send lines from standard input to the members of a group
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// The group's name
    #[arg(value_parser = units::name)]
    group: String,
    /// Send at most this many messages a second [default: as fast as the members take them]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = units::rate)]
    rate: Option<f64>,
    /// Read messages with their length as 4 bytes (big-endian) before them, instead of lines
    #[arg(long)]
    frames: bool,
    /// Wait at most this long at the end until all is safe with the members
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    linger: Duration,
    /// Wait for this many other members before the first message
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    wait_for: usize,
    /// Give up if they are not there by then [default: wait until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    wait_timeout: Option<Duration>,
    /// Repairs of the group, R,C: the same at all members
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    rate_of_fire: RateOfFire,
    #[command(flatten)]
    node: NodeArgs,
    /// Print one object of JSON at the end
    #[arg(long)]
    json: bool,
}

/// Runs the verb.
///
/// # Errors
/// If the group cannot be joined, or the input cannot be sent.
pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen()?;
    let node = args.node.start(args.node.builder(), interrupt)?;
    let group = node::join(&node, &args.group, args.rate_of_fire)?;
    let mut publisher = Publisher::new(args, &node, &group, interrupt);
    publisher.wait_for_members()?;
    // What was sent before an error is confirmed all the same.
    let sent = publisher.send_all();
    let confirmed = publisher.confirm()?;
    let finding = publisher.summary(&confirmed)?;
    group.leave();
    node.close();
    sent.map(|()| Outcome::of(finding))
}

/// One run from the first line to the last.
struct Publisher<'a> {
    args: &'a Args,
    node: &'a Node,
    group: &'a Group,
    interrupt: &'a Interrupt,
    messages: u64,
    bytes: u64,
    started: Instant,
    took: Duration,
    /// Members that went since the first message: those that said so, and those that failed.
    left: Cell<usize>,
    failed: Cell<usize>,
    service: ServiceWatch,
}

/// What the members said at the end.
enum Confirmed {
    Safe(Safe),
    NotSafe(NotSafe),
    /// Nobody could: all members failed.
    AllFailed,
    /// Nobody could: there was no member.
    Alone,
    /// The user did not want to wait for it.
    NotAwaited,
}

impl<'a> Publisher<'a> {
    fn new(args: &'a Args, node: &'a Node, group: &'a Group, interrupt: &'a Interrupt) -> Self {
        let (started, took) = (Instant::now(), Duration::ZERO);
        let (left, failed) = (Cell::new(0), Cell::new(0));
        Self {
            args,
            node,
            group,
            interrupt,
            messages: 0,
            bytes: 0,
            started,
            took,
            left,
            failed,
            service: ServiceWatch::default(),
        }
    }

    /// Waits until enough members are there and none has come or gone for a while: those who come
    /// later get only what is sent later.
    fn wait_for_members(&self) -> Result<(), CliError> {
        let started = Instant::now();
        let mut known = self.group.members();
        let mut quiet_since = started;
        let mut told = false;
        loop {
            let members = self.group.members();
            if members != known {
                (known, quiet_since) = (members, Instant::now());
            }
            if known.len() >= self.args.wait_for && quiet_since.elapsed() >= QUIET {
                return Ok(());
            }
            if !told && started.elapsed() >= TELL_AFTER && known.len() < self.args.wait_for {
                let (wanted, there) = (self.args.wait_for, known.len());
                eprintln!("waiting for {wanted} members of {}, {there} there", self.args.group);
                told = true;
            }
            if self.args.wait_timeout.is_some_and(|limit| started.elapsed() >= limit) {
                return Err(self.too_few(known.len()));
            }
            self.drop_events()?;
            if self.interrupt.wait(STEP) {
                return Ok(());
            }
        }
    }

    fn too_few(&self, there: usize) -> CliError {
        let (name, wanted) = (&self.args.group, self.args.wait_for);
        CliError::new(
            format!("{there} of {wanted} members came to {name} in time"),
            format!("start `carom sub {name}` elsewhere, or give another --wait-for"),
        )
    }

    /// Sends until the input ends, a message is too large, or the user asks to end.
    fn send_all(&mut self) -> Result<(), CliError> {
        self.drop_events()?;
        self.left.set(0);
        self.failed.set(0);
        self.started = Instant::now();
        let framing = Framing::of(self.args.frames);
        let source = Source::stdin(framing, self.group.payload_limit());
        let mut pace = Pace::new(self.args.rate, self.started);
        let mut result = Ok(());
        'input: while !self.interrupt.is_asked() {
            self.drop_events()?;
            for _ in 0..pace.due(Instant::now()) {
                match source.next() {
                    Some(Item::Message(message)) => {
                        if !self.publish(message)? {
                            break 'input;
                        }
                        pace.took_one();
                    }
                    Some(Item::End) => break 'input,
                    Some(Item::Broken(error)) => {
                        result = Err(error);
                        break 'input;
                    }
                    // Nothing to read now: what is not used of the pace is not saved up.
                    None => {
                        pace.idle(Instant::now());
                        break;
                    }
                }
            }
            if source.is_empty() {
                source.wait(TICK);
            } else if self.args.rate.is_some() {
                self.interrupt.wait(TICK);
            }
        }
        self.took = self.started.elapsed();
        result
    }

    /// Sends one message, as soon as the members take it; false if the user asked to end first.
    fn publish(&mut self, message: Vec<u8>) -> Result<bool, CliError> {
        let bytes = message.len() as u64;
        let mut message = bytes::Bytes::from(message);
        loop {
            match self.group.try_publish(message) {
                Ok(_) => {
                    self.messages += 1;
                    self.bytes += bytes;
                    return Ok(true);
                }
                Err(TryPublishError::Full { payload, .. }) => message = payload,
                Err(error) => return Err(self.not_sent(&error)),
            }
            self.drop_events()?;
            if self.interrupt.wait(TICK) {
                return Ok(false);
            }
        }
    }

    fn not_sent(&self, error: &TryPublishError) -> CliError {
        let number = self.messages + 1;
        let noun = Framing::of(self.args.frames).noun();
        CliError::new(format!("{noun} {number}: {error}"), "see `carom doctor` for this machine")
    }

    /// This node is a member too: what others publish comes here and is not wanted. Members that
    /// do not keep up or fail are told, and whether the membership service is there. A closed
    /// group is an error.
    fn drop_events(&self) -> Result<(), CliError> {
        self.service.look(self.node);
        loop {
            match self.group.recv_timeout(Duration::ZERO) {
                Ok(Some(Event::Slow(slow))) => {
                    let (member, behind) = (slow.node, slow.behind);
                    eprintln!("slow: {member} is {behind} messages behind: no longer waited for");
                }
                Ok(Some(Event::View(change))) => match change.kind {
                    ViewChangeKind::Failed => {
                        eprintln!("failed: {} is not there: no longer waited for", change.node);
                        self.failed.update(|count| count + 1);
                    }
                    ViewChangeKind::Left => self.left.update(|count| count + 1),
                    ViewChangeKind::Joined => {}
                },
                Ok(Some(_)) => {}
                Ok(None) => return Err(node::closed(self.node, &self.args.group)),
                Err(_) => return Ok(()),
            }
        }
    }

    /// Waits until all is safe, in short steps so that Ctrl-C is heard.
    fn confirm(&self) -> Result<Confirmed, CliError> {
        let deadline = Instant::now() + self.args.linger;
        loop {
            if self.interrupt.is_asked() {
                return Ok(Confirmed::NotAwaited);
            }
            self.drop_events()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.group.confirm(left.min(CONFIRM_STEP)) {
                Ok(safe) => {
                    self.drop_events()?;
                    // Who left may have had everything before; who failed has not said so.
                    return Ok(match (safe.members, self.left.get(), self.failed.get()) {
                        (0, 0, 0) => Confirmed::Alone,
                        (0, 0, _) => Confirmed::AllFailed,
                        _ => Confirmed::Safe(safe),
                    });
                }
                Err(not_safe) if left <= CONFIRM_STEP => return Ok(Confirmed::NotSafe(not_safe)),
                Err(_) => {}
            }
        }
    }

    /// Tells how it went; true if that is a finding.
    fn summary(&self, confirmed: &Confirmed) -> Result<bool, CliError> {
        let seconds = self.took.as_secs_f64();
        let rate = if seconds > 0.0 { self.messages as f64 / seconds } else { 0.0 };
        let messages = self.messages;
        eprintln!(
            "sent {messages} messages to {} in {seconds:.2} s ({rate:.0}/s): {}",
            self.args.group,
            confirmed.words()
        );
        if self.args.json {
            let (members, waiting_for, incomplete) = confirmed.figures();
            let incomplete: Vec<_> = incomplete
                .iter()
                .map(|(node, lost)| json!({ "node": node.to_string(), "lost": lost }))
                .collect();
            output::json(&json!({
                "group": self.args.group,
                "messages": messages,
                "bytes": self.bytes,
                "seconds": seconds,
                "rate": rate,
                "safe": matches!(confirmed, Confirmed::Safe(_)) && incomplete.is_empty(),
                "interrupted": self.interrupt.is_asked(),
                "members": members,
                "waiting_for": waiting_for,
                "incomplete": incomplete,
                "service_away": self.node.is_away(),
            }))?;
        }
        Ok(confirmed.is_finding())
    }
}

impl Confirmed {
    fn words(&self) -> String {
        match self {
            Self::Safe(safe) if !safe.incomplete.is_empty() => {
                let lost: Vec<String> = safe
                    .incomplete
                    .iter()
                    .map(|(node, count)| format!("{node} lost {count}"))
                    .collect();
                lost.join(", ")
            }
            Self::Safe(safe) if safe.members == 0 => "every member has left".to_owned(),
            Self::Safe(safe) if safe.members == 1 => "safe with 1 member".to_owned(),
            Self::Safe(safe) => format!("safe with {} members", safe.members),
            Self::NotSafe(not_safe) => not_safe.to_string(),
            Self::AllFailed => "not safe: every member has failed".to_owned(),
            Self::Alone => "no member was there to get them".to_owned(),
            Self::NotAwaited => "interrupted, not confirmed".to_owned(),
        }
    }

    fn figures(&self) -> (usize, Vec<String>, &[(carom::NodeId, u32)]) {
        match self {
            Self::Safe(safe) => (safe.members, Vec::new(), &safe.incomplete),
            Self::NotSafe(not_safe) => (0, names(not_safe), &[]),
            Self::AllFailed | Self::Alone | Self::NotAwaited => (0, Vec::new(), &[]),
        }
    }

    fn is_finding(&self) -> bool {
        match self {
            Self::Safe(safe) => !safe.incomplete.is_empty(),
            Self::NotSafe(_) | Self::AllFailed => true,
            // What nobody was to wait for.
            Self::Alone | Self::NotAwaited => false,
        }
    }
}

fn names(not_safe: &NotSafe) -> Vec<String> {
    not_safe.waiting_for.iter().map(ToString::to_string).collect()
}

const QUIET: Duration = Duration::from_millis(500);
const TELL_AFTER: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_millis(1);
const CONFIRM_STEP: Duration = Duration::from_millis(250);
const EXAMPLE: &str = "Examples:
  seq 1 100000 | carom pub numbers --rate 20000/s
  tail -f log | carom pub log --wait-for 3

Exit codes: 0 all is safe with the members, 1 somebody lost something or did not confirm,
2 wrong use or environment";

#[cfg(test)]
mod tests {
    use super::*;
    use carom::{GroupId, NodeId, SeqNo};

    #[test]
    fn an_end_without_confirmation_is_a_finding_and_names_who_is_missing() {
        let not_safe = NotSafe { waiting_for: vec![NodeId(0xabc)], closed: false };
        let confirmed = Confirmed::NotSafe(not_safe);
        assert!(confirmed.is_finding());
        assert!(confirmed.words().contains("abc"));
    }

    #[test]
    fn members_that_lost_something_are_a_finding() {
        let safe = |incomplete| {
            Confirmed::Safe(Safe { group: GroupId(1), up_to: SeqNo(9), members: 3, incomplete })
        };
        assert!(!safe(Vec::new()).is_finding());
        assert_eq!(safe(Vec::new()).words(), "safe with 3 members");
        assert!(safe(vec![(NodeId(1), 4)]).is_finding());
        assert!(!Confirmed::NotAwaited.is_finding());
    }
}
