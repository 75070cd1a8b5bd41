use std::time::{Duration, Instant};

use carom::Event;
use carom_bench::{HEADER_BYTES, Header, clock};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output};

use super::args::GroupArgs;
use super::control::{self, Control, Groups, IDLE, Payload};
use super::session::Session;
use crate::node;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) common: GroupArgs,
}

struct Server {
    groups: Groups,
    clock: String,
    session: Option<Session>,
    /// Number of messages sent in the run that has ended and is not yet reported, and the time of
    /// the last delivery.
    ended: Option<(u64, Instant)>,
}

pub(super) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen()?;
    let groups = Groups::join(&args.common, interrupt)?;
    let (name, profile) = (&args.common.group, args.common.profile.name());
    output::say(format_args!(
        "joined {name}, profile {profile}, at {}; run `carom bench` on another host",
        groups.node.endpoint()
    ));
    let mut server = Server { groups, clock: control::clock(), session: None, ended: None };
    server.serve(interrupt, name)?;
    server.groups.node.close();
    Ok(Outcome::Fine)
}

impl Server {
    fn serve(&mut self, interrupt: &Interrupt, name: &str) -> Result<(), CliError> {
        while !interrupt.is_asked() {
            match self.groups.data.recv_timeout(IDLE) {
                Ok(Some(Event::Message(message))) => self.on_message(&message.payload),
                Ok(None) => return Err(node::closed(&self.groups.node, name)),
                Ok(Some(_)) | Err(_) => {}
            }
            while let Some(event) = self.groups.control.try_recv() {
                if let Event::Message(message) = event
                    && let Some(Payload::Control(control)) = Payload::parse(&message.payload)
                {
                    self.on_control(control);
                }
            }
            self.report();
        }
        Ok(())
    }

    fn on_message(&mut self, message: &[u8]) {
        let at_ns = clock::monotonic_ns();
        let (Some(session), Some(header)) = (&mut self.session, Header::read(message)) else {
            return;
        };
        if session.add(&header, message, at_ns) {
            // An echo that does not fit the queue would measure only the queue.
            let _ = self.groups.control.try_publish(message[..HEADER_BYTES].to_vec());
        }
        if let Some((_, last)) = &mut self.ended {
            *last = Instant::now();
        }
    }

    fn on_control(&mut self, control: Control) {
        let is_known = |session: &Session, magic: &str| session.magic() == magic;
        match control {
            Control::Begin(begin) => {
                let magic = begin.magic.clone();
                if !self.session.as_ref().is_some_and(|session| is_known(session, &magic)) {
                    self.session = Some(Session::new(begin, &self.clock));
                    self.ended = None;
                }
                self.groups.publish(&Control::Ready { magic });
            }
            Control::End { magic, sent } => {
                if self.session.as_ref().is_some_and(|session| is_known(session, &magic)) {
                    self.ended.get_or_insert((sent, Instant::now()));
                }
            }
            Control::Ready { .. } | Control::Report(_) => {}
        }
    }

    /// Reports a run that has ended once everything has arrived, or nothing more arrives.
    fn report(&mut self) {
        let (Some(session), Some((sent, last))) = (&self.session, self.ended) else { return };
        if session.delivered() >= sent || last.elapsed() >= QUIET {
            self.groups.publish(&Control::Report(session.report()));
            self.ended = None;
        }
    }
}

const QUIET: Duration = Duration::from_secs(1);
