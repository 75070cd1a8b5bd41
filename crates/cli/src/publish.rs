mod confirmation;
mod pace;
mod promises;
mod source;

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use carom::blocking::{Group, Node};
use carom::{ConfirmError, Event, PublishError, Qos, RateOfFire, SendOptions, ViewChangeKind};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output, units};
use serde_json::json;

use crate::frames::Framing;
use crate::node::{self, NodeArgs, ServiceWatch};
use crate::ring::{self, Limit, OrderedArgs, Part, RingWatch};
use confirmation::Confirmation;
use pace::Pace;
use promises::{Order, Promises, Resilience};
use source::{Item, Source};

/// Publish standard input to the members of a group, one message per line
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Maximum messages per second [default: limited by flow control only]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = units::rate)]
    rate: Option<f64>,
    /// Read frames instead of lines: 4 bytes of length (big-endian), then the message
    #[arg(long)]
    frames: bool,
    /// Maximum wait at the end until all messages are safe with the members
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    linger: Duration,
    /// Number of other members required before the first message
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    wait_for: usize,
    /// Maximum wait for these members, and for the ring of an ordered group. A ring gets at least 3
    /// s to form; a TIME below 3 s starts once it has formed [default: until Ctrl-C]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    wait_timeout: Option<Duration>,
    /// Repair rate: for every R packets, each member sends repairs to C others; the same at all
    /// members
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    #[arg(conflicts_with_all = ["ordered", "quorum", "quorum_of", "no_rejoin"])]
    #[arg(conflicts_with_all = ["order", "resilience"])]
    rate_of_fire: RateOfFire,
    /// Order of the messages in an ordered group [default: total]
    #[arg(long, value_name = "ORDER")]
    order: Option<Order>,
    /// Deliver a message of an ordered group only when K other members, a majority, or all members
    /// are known to hold it. The majority is that of the ring's members or, with --quorum-of, that
    /// of the voters [default: at once]
    #[arg(long, value_name = "K|majority|all", allow_hyphen_values = true)]
    #[arg(value_parser = promises::resilience)]
    resilience: Option<Resilience>,
    #[command(flatten)]
    ordered: OrderedArgs,
    #[command(flatten)]
    node: NodeArgs,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let qos = args.qos()?;
    // The members may need time to confirm the messages.
    let interrupt = ring::listen()?;
    interrupt::into_outcome(run_until(args, qos, interrupt))
}

fn run_until(args: &Args, qos: Option<Qos>, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    let limit = Limit::new(args.wait_timeout);
    let node = args.node.start(args.node.builder(), interrupt)?;
    let (group, limit) = match qos {
        Some(_) => (args.join_ring(&node, interrupt, limit)?, limit),
        None => {
            let group = node::join(&node, &args.group, args.rate_of_fire)?;
            (group, Limit::new(args.wait_timeout))
        }
    };
    let mut publisher = Publisher::new(args, &node, &group, qos, interrupt);
    publisher.wait_for_members(limit)?;
    // Messages sent before an error are still confirmed.
    let sent = publisher.send_all();
    let confirmed = publisher.confirm()?;
    publisher.summary(&confirmed)?;
    let outcome = publisher.outcome(&confirmed);
    drop(publisher);
    group.leave();
    node.close();
    sent.map(|()| outcome)
}

impl Args {
    /// Returns the guarantee of each message, or `None` if the group is not ordered.
    fn qos(&self) -> Result<Option<Qos>, CliError> {
        let is_promised = self.order.is_some() || self.resilience.is_some();
        if !is_promised && self.ordered.profile(Part::Client).is_none() {
            return Ok(None);
        }
        let fix = "remove --resilience, or use --order total";
        if self.order == Some(Order::Source) && self.resilience.is_some() {
            return Err(CliError::new("--order source cannot be combined with --resilience", fix));
        }
        if self.resilience == Some(Resilience::Majority) && !self.ordered.has_majorities() {
            let cause = "--resilience majority cannot be combined with --quorum N";
            return Err(CliError::new(
                cause,
                "remove --quorum on all members: with it, a minority may also continue",
            ));
        }
        if self.resilience == Some(Resilience::Majority) {
            let what = "a majority is counted among the members that this ring currently has";
            self.ordered.ring.warn(what);
        }
        Ok(Some(promises::qos(self.order, self.resilience)))
    }

    fn join_ring(
        &self,
        node: &Node,
        interrupt: &Interrupt,
        limit: Limit,
    ) -> Result<Group, CliError> {
        let (name, profile) = (&self.group, self.ordered.ordered_profile(Part::Client));
        let joined = ring::join_within(node, name, profile, interrupt, limit)?;
        joined.map_err(|why| {
            let fix = format!("start `carom sub {name}` elsewhere, or use a longer --wait-timeout");
            CliError::new(why, fix)
        })
    }
}

struct Publisher<'a> {
    args: &'a Args,
    node: &'a Node,
    group: &'a Group,
    interrupt: &'a Interrupt,
    messages: u64,
    bytes: u64,
    started: Instant,
    took: Duration,
    left: Cell<usize>,
    failed: Cell<usize>,
    service: ServiceWatch,
    /// `Some` only in an ordered group. The next two fields are also used only there.
    qos: Option<Qos>,
    promises: RefCell<Promises>,
    ring: RefCell<RingWatch>,
}

impl<'a> Publisher<'a> {
    fn new(
        args: &'a Args,
        node: &'a Node,
        group: &'a Group,
        qos: Option<Qos>,
        interrupt: &'a Interrupt,
    ) -> Self {
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
            service: ServiceWatch::new(node),
            qos,
            promises: RefCell::default(),
            ring: RefCell::new(RingWatch::new(node.id())),
        }
    }

    /// Waits for `--wait-for` members, and until no more members join, because a member receives
    /// only messages published after its join.
    fn wait_for_members(&self, limit: Limit) -> Result<(), CliError> {
        let started = Instant::now();
        let give_up = limit.of_rest(started);
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
                let (wanted, name) = (counted(wanted, "member"), &self.args.group);
                output::say(format_args!("waiting for {wanted} of {name}, {there} online"));
                told = true;
            }
            if give_up.is_some_and(|at| Instant::now() >= at) {
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
            format!("{there} of {} joined {name} in time", counted(wanted, "member")),
            format!("start `carom sub {name}` elsewhere, or lower --wait-for"),
        )
    }

    /// Sends until the input ends, a message cannot be read or published, or the user interrupts.
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
                    // Unused credit does not accumulate while there is no input.
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

    /// Publishes a message when flow control permits, or returns `false` after an interruption.
    fn publish(&mut self, message: Vec<u8>) -> Result<bool, CliError> {
        let bytes = message.len() as u64;
        let mut message = bytes::Bytes::from(message);
        loop {
            let options = SendOptions { qos: self.qos, ..SendOptions::default() };
            match self.group.try_publish_with(message, options) {
                Ok(published) => {
                    if self.qos.is_some() {
                        self.promises.get_mut().add(published);
                    }
                    self.messages += 1;
                    self.bytes += bytes;
                    return Ok(true);
                }
                Err(PublishError::Full { payload, .. }) => message = payload,
                Err(error) => return Err(self.not_sent(&error)),
            }
            self.drop_events()?;
            if self.interrupt.wait(TICK) {
                return Ok(false);
            }
        }
    }

    fn not_sent(&self, error: &PublishError) -> CliError {
        let number = self.messages + 1;
        let noun = Framing::of(self.args.frames).noun();
        if matches!(error, PublishError::Closed) {
            // A pending event gives a more precise reason.
            let told = self.drop_events().err();
            return told.unwrap_or_else(|| node::closed(self.node, &self.args.group));
        }
        CliError::new(format!("{noun} {number}: {error}"), error.fix())
    }

    /// Drops received messages. Reports lagging and failed members, and changes of the ring or the
    /// registry. Fails if the group is closed.
    fn drop_events(&self) -> Result<(), CliError> {
        self.service.look(self.node);
        self.promises.borrow_mut().look();
        loop {
            match self.group.recv_timeout(Duration::ZERO) {
                Ok(Some(Event::Slow(slow))) => {
                    let (member, behind) = (slow.node, slow.behind);
                    let behind = counted(behind, "packet");
                    output::say(format_args!(
                        "slow: {member} is {behind} behind; no longer waiting for it"
                    ));
                }
                Ok(Some(Event::View(change))) => match change.kind {
                    ViewChangeKind::Failed => {
                        output::say(format_args!(
                            "failed: {}; no longer waiting for it",
                            change.node
                        ));
                        self.failed.update(|count| count + 1);
                    }
                    ViewChangeKind::Left => self.left.update(|count| count + 1),
                    ViewChangeKind::Joined => {}
                },
                Ok(Some(Event::Ring(event))) => self.ring.borrow_mut().tell(&event.news),
                Ok(Some(_)) => {}
                Ok(None) if self.ring.borrow().is_out => return Err(self.removed()),
                Ok(None) => return Err(node::closed(self.node, &self.args.group)),
                Err(_) => return Ok(()),
            }
        }
    }

    fn removed(&self) -> CliError {
        let kept = self.promises.borrow().stand(self.qos.unwrap_or_default(), 0, false);
        let (name, messages) = (&self.args.group, counted(self.messages, "message"));
        CliError::new(
            format!("removed from the ring of {name} after {messages}: {}", kept.words()),
            "remove --no-rejoin to rejoin it, and check the network with `carom doctor`",
        )
    }

    fn await_promises(&self, qos: Qos) -> Result<Confirmation, CliError> {
        let deadline = Instant::now() + self.args.linger;
        loop {
            self.drop_events()?;
            let open = self.promises.borrow_mut().look();
            let is_interrupted = self.interrupt.is_asked();
            if open == 0 || is_interrupted || Instant::now() >= deadline {
                let members = self.group.members().len();
                let stand = self.promises.borrow().stand(qos, members, is_interrupted);
                return Ok(Confirmation::Ordered(stand));
            }
            self.interrupt.wait(TICK);
        }
    }

    /// Waits until all messages are confirmed, for at most `--linger`. The wait is divided into
    /// short steps, so that Ctrl-C takes effect. One last step follows after Ctrl-C.
    fn confirm(&self) -> Result<Confirmation, CliError> {
        if let Some(qos) = self.qos {
            return self.await_promises(qos);
        }
        let deadline = Instant::now() + self.args.linger;
        loop {
            let is_interrupted = self.interrupt.is_asked();
            self.drop_events()?;
            let left = deadline.saturating_duration_since(Instant::now());
            match self.group.confirm(left.min(CONFIRM_STEP)) {
                Ok(safe) if safe.members > 0 || !safe.incomplete.is_empty() => {
                    self.drop_events()?;
                    return Ok(Confirmation::Confirmed(safe));
                }
                // A member that left after it had received everything counts as a confirmation.
                Ok(_) | Err(ConfirmError::Nobody) => {
                    self.drop_events()?;
                    return Ok(match (self.left.get(), self.failed.get()) {
                        (0, 0) if self.args.wait_for == 0 => Confirmation::Alone,
                        (0, 1..) => Confirmation::AllFailed,
                        _ => Confirmation::AllLeft,
                    });
                }
                Err(_) if is_interrupted => return Ok(Confirmation::NotAwaited),
                Err(not_safe) if left <= CONFIRM_STEP => {
                    return Ok(Confirmation::ConfirmError(not_safe));
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the outcome. An interrupted run succeeds only if it sent messages and all are safe.
    fn outcome(&self, confirmed: &Confirmation) -> Outcome {
        let is_sent = self.messages > 0;
        match confirmed.is_finding() && is_sent {
            true => Outcome::Finding,
            false if !self.interrupt.is_asked() || (is_sent && confirmed.is_safe()) => {
                Outcome::Fine
            }
            false => Outcome::INTERRUPTED,
        }
    }

    fn summary(&self, confirmed: &Confirmation) -> Result<(), CliError> {
        let seconds = self.took.as_secs_f64();
        let rate = if seconds > 0.0 { self.messages as f64 / seconds } else { 0.0 };
        let messages = self.messages;
        output::say(format_args!(
            "sent {} to {} in {seconds:.2} s ({rate:.0}/s): {}",
            counted(messages, "message"),
            self.args.group,
            confirmed.words()
        ));
        if self.args.json {
            let (members, waiting_for, incomplete) = confirmed.figures();
            let incomplete: Vec<_> = incomplete
                .iter()
                .map(|(node, lost)| json!({ "node": node.to_string(), "lost": lost }))
                .collect();
            let mut object = json!({
                "group": self.args.group,
                "messages": messages,
                "bytes": self.bytes,
                "seconds": seconds,
                "rate": rate,
                "safe": confirmed.is_safe(),
                "interrupted": self.interrupt.is_asked(),
                "members": members,
                "waiting_for": waiting_for,
                "incomplete": incomplete,
                "service_away": self.node.is_away(),
            });
            if let Confirmation::Ordered(kept) = confirmed {
                object["qos"] = kept.qos.to_string().into();
                object["delivered"] = kept.kept.into();
                object["in_doubt"] = kept.in_doubt.into();
                object["not_known"] = kept.open.into();
            }
            output::json(&object)?;
        }
        Ok(())
    }
}

const QUIET: Duration = Duration::from_millis(500);
const TELL_AFTER: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);
const TICK: Duration = Duration::from_millis(1);
const CONFIRM_STEP: Duration = Duration::from_millis(250);
const EXAMPLE: &str = "Examples:
  seq 1 100000 | carom pub numbers --rate 20000/s
  tail -f log | carom pub log --wait-for 3
  carom pub accounts --order total --resilience majority < bookings

Exit codes: 0 all messages are safe with the members, 1 a member lost messages, failed, left before
it confirmed, or did not confirm, 2 usage or environment error, 130 interrupted before all messages
were confirmed. With --wait-for 0, the exit code is also 0 if there is no other member. No message
is safe then, and the summary states this (in JSON, safe is false and members is 0)";
