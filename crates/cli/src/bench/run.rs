use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use carom::{Event, NodeId};
use carom_bench::{HEADER_BYTES, Header, Latencies, Magic, Schedule, clock};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, counted, output, units};

use super::args::GroupArgs;
use super::control::{self, Begin, Control, Groups, IDLE, Payload, Report};
use super::result::{Arrived, Phase, Results};
use crate::waiting;

#[derive(clap::Args)]
pub(crate) struct Sending {
    #[command(flatten)]
    pub(super) common: GroupArgs,
    /// Messages per second [default: a run at 1000/s, then one limited by flow control only]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true, value_parser = units::rate)]
    rate: Option<f64>,
    /// Size of a message, at least 32 bytes
    #[arg(long, value_name = "SIZE", default_value = "256", value_parser = units::bytes)]
    size: usize,
    /// Number of messages of each run [default: those of 2 s]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    messages: Option<u32>,
    /// Number of receivers required before the first message
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    wait_for: usize,
    /// Maximum wait for these receivers
    #[arg(long, value_name = "TIME", default_value = "5s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    wait_timeout: Duration,
    /// Print a histogram of the latencies of each receiver
    #[arg(long)]
    histogram: bool,
    /// Print one JSON object at the end
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Sending) -> Result<Outcome, CliError> {
    if args.size < HEADER_BYTES {
        let cause = format!("--size {} is invalid: expected at least {HEADER_BYTES}", args.size);
        return Err(CliError::new(cause, format!("use --size {HEADER_BYTES} or more")));
    }
    let interrupt = interrupt::listen()?;
    interrupt::into_outcome(measure(args, interrupt))
}

fn measure(args: &Sending, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    let groups = Groups::join(&args.common, interrupt)?;
    let limit = groups.data.payload_limit();
    if args.size > limit {
        let cause = format!("--size {} is invalid: expected at most {limit}", args.size);
        return Err(CliError::new(cause, "use a smaller --size"));
    }
    let sender = Sender::new(args, groups, interrupt);
    sender.wait_for_receivers()?;
    let rates = match args.rate {
        Some(rate) => vec![Some(rate)],
        None => vec![Some(LATENCY_RATE), None],
    };
    let mut results = Results::new(args.common.group.clone(), args.common.profile, args.size);
    for rate in rates {
        results.phases.push(sender.phase(rate)?);
        if interrupt.is_asked() {
            break;
        }
    }
    results.is_interrupted = interrupt.is_asked();
    match args.json {
        true => output::json(&results.json(args.histogram))?,
        false => output::lines(&results.text(args.histogram))?,
    }
    sender.close();
    Ok(match results.is_interrupted {
        true => Outcome::INTERRUPTED,
        false => Outcome::of(!results.is_complete()),
    })
}

/// A payload of the control group, with its sender and the time of its arrival.
struct Arrival {
    from: NodeId,
    payload: Payload,
    at_ns: u64,
}

struct Sender<'a> {
    args: &'a Sending,
    groups: Groups,
    interrupt: &'a Interrupt,
    arrivals: Receiver<Arrival>,
    is_over: Arc<AtomicBool>,
    listener: thread::JoinHandle<()>,
}

impl<'a> Sender<'a> {
    fn new(args: &'a Sending, groups: Groups, interrupt: &'a Interrupt) -> Self {
        let (to, arrivals) = channel();
        let (control, is_over) = (groups.control.clone(), Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        // A thread takes the time of each echo, even while the sender sleeps.
        let listener = thread::spawn(move || {
            while !over.load(Relaxed) {
                let event = control.recv_timeout(IDLE);
                let at_ns = clock::monotonic_ns();
                let Ok(Some(Event::Message(message))) = event else { continue };
                let Some(payload) = Payload::parse(&message.payload) else { continue };
                if to.send(Arrival { from: message.sender, payload, at_ns }).is_err() {
                    return;
                }
            }
        });
        Self { args, groups, interrupt, arrivals, is_over, listener }
    }

    /// Ends the node. The listener needs at most one idle interval.
    fn close(self) {
        self.is_over.store(true, Relaxed);
        self.listener.join().expect("the listener does not panic");
        self.groups.node.close();
    }

    /// Waits for `--wait-for` members, and until no more members join.
    fn wait_for_receivers(&self) -> Result<(), CliError> {
        let (wanted, started) = (self.args.wait_for.max(1), Instant::now());
        let (mut known, mut quiet_since) = (Vec::new(), started);
        loop {
            let members = self.groups.data.members();
            if members != known {
                (known, quiet_since) = (members, Instant::now());
            }
            if known.len() >= wanted && quiet_since.elapsed() >= QUIET {
                return Ok(());
            }
            if started.elapsed() >= self.args.wait_timeout && known.len() < wanted {
                let (name, wanted) = (&self.args.common.group, counted(wanted, "receiver"));
                return Err(CliError::new(
                    format!("{} of {wanted} joined {name} in time", known.len()),
                    "run `carom bench serve` on other hosts, or use a longer --wait-timeout",
                ));
            }
            if self.interrupt.wait(IDLE) {
                return Err(CliError::interrupted());
            }
        }
    }

    /// Runs one phase: announces it, sends, and collects the reports.
    fn phase(&self, rate: Option<f64>) -> Result<Phase, CliError> {
        let mut magic = Magic(RandomState::new().hash_one(clock::monotonic_ns()).to_be_bytes());
        // An echo must not begin like a control message, which is a JSON object.
        magic.0[0] = 0;
        let members = self.groups.data.members().len();
        let per_second = rate.unwrap_or(ASSUMED_RATE) * members as f64;
        let echo_every = (per_second / ECHO_RATE).ceil().max(1.0) as u32;
        let begin = Begin { magic: magic.to_string(), clock: control::clock(), echo_every };
        let mut receivers = BTreeMap::new();
        self.exchange(&Control::Begin(begin), members, |arrival| match arrival.payload {
            Payload::Control(Control::Ready { magic: ready }) if ready == magic.to_string() => {
                receivers.insert(arrival.from, Arrived::default()).is_none()
            }
            _ => false,
        });
        if receivers.is_empty() && !self.interrupt.is_asked() {
            let cause = format!("no member of {} answered", self.args.common.group);
            return Err(CliError::new(cause, "run `carom bench serve` on the other hosts"));
        }
        // A member that did not answer is shown without a report.
        for member in self.groups.data.members() {
            receivers.entry(member).or_default();
        }
        let (sent, took) = self.send_all(rate, magic)?;
        // Members that do not confirm are found by their reports.
        let confirmed = self.groups.data.as_async().confirm(CONFIRM);
        let _ = waiting::until(confirmed, || self.interrupt.is_asked());
        let end = Control::End { magic: magic.to_string(), sent };
        let mut echoes: BTreeMap<NodeId, Latencies> = BTreeMap::new();
        self.exchange(&end, receivers.len(), |arrival| match arrival.payload {
            Payload::Echo(header) if header.magic == magic => {
                let round_trip = arrival.at_ns.saturating_sub(header.sent_ns);
                echoes.entry(arrival.from).or_default().record(round_trip / 2);
                false
            }
            Payload::Control(Control::Report(report)) if report.magic == magic.to_string() => {
                let receiver = receivers.entry(arrival.from).or_default();
                receiver.report.replace(report).is_none()
            }
            _ => false,
        });
        for (node, receiver) in &mut receivers {
            receiver.latencies = latencies(receiver.report.as_ref(), echoes.remove(node));
        }
        Ok(Phase { rate, sent, took, receivers })
    }

    /// Repeats `control` until `count` arrivals are accepted, the time is over, or the user
    /// interrupts.
    fn exchange(&self, control: &Control, count: usize, mut accept: impl FnMut(Arrival) -> bool) {
        let (mut left, started) = (count, Instant::now());
        let mut next = started;
        while left > 0 && started.elapsed() < PATIENCE && !self.interrupt.is_asked() {
            if Instant::now() >= next {
                self.groups.publish(control);
                next = Instant::now() + REPEAT;
            }
            if let Ok(arrival) = self.arrivals.recv_timeout(IDLE) {
                left -= usize::from(accept(arrival));
            }
        }
    }

    /// Sends all messages of a phase. Returns their number and the time that it took.
    fn send_all(&self, rate: Option<f64>, magic: Magic) -> Result<(u64, Duration), CliError> {
        let started = Instant::now();
        let schedule = Schedule::new(started, rate);
        let planned = rate.map(|rate| (rate * SPAN.as_secs_f64()).ceil() as u32);
        let count = self.args.messages.or(planned).unwrap_or(u32::MAX);
        let mut reported = started;
        let mut sent = 0;
        while sent < count && !self.interrupt.is_asked() {
            if self.args.messages.is_none() && rate.is_none() && started.elapsed() >= SPAN {
                break;
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                output::say(format_args!("sent {}", counted(sent, "message")));
            }
            while self.groups.data.try_recv().is_some() {}
            if let Some(left) = schedule.left(sent, Instant::now()) {
                // A sleep in short steps lets Ctrl-C take effect at any rate.
                thread::sleep(left.min(IDLE));
                continue;
            }
            if !self.send(magic, sent)? {
                break;
            }
            sent += 1;
        }
        Ok((sent.into(), started.elapsed()))
    }

    /// Sends a message when flow control permits. Returns `false` after an interruption.
    fn send(&self, magic: Magic, number: u32) -> Result<bool, CliError> {
        let mut message = vec![0; self.args.size];
        let header = |sent_ns| Header { magic, sender: 0, number, sent_ns };
        header(0).write(&mut message);
        header(clock::monotonic_ns()).write_time(&mut message);
        let published = self.groups.data.as_async().publish(message);
        match waiting::until(published, || self.interrupt.is_asked()) {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => {
                Err(CliError::new(format!("message {number}: {error}"), error.fix()))
            }
        }
    }
}

/// Returns the latencies that the receiver measured by the sender's clock, or those of the echoes.
fn latencies(report: Option<&Report>, echoes: Option<Latencies>) -> Latencies {
    match report.filter(|report| report.has_clock) {
        None => echoes.unwrap_or_default(),
        Some(report) => {
            let mut latencies = Latencies::default();
            report.latency.iter().for_each(|(ns, count)| latencies.record_many(*ns, *count));
            latencies
        }
    }
}

const LATENCY_RATE: f64 = 1_000.0;
/// Rate from which the interval of echoes is computed if there is no rate.
const ASSUMED_RATE: f64 = 200_000.0;
/// Echoes per second of all receivers together, few enough not to disturb the measurement.
const ECHO_RATE: f64 = 500.0;
const SPAN: Duration = Duration::from_secs(2);
const QUIET: Duration = Duration::from_millis(500);
const CONFIRM: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(3);
const REPEAT: Duration = Duration::from_millis(300);
const REPORT_EVERY: Duration = Duration::from_secs(3);
