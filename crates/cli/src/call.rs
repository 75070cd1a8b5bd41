use std::io::{ErrorKind, Read as _, Write as _};
use std::sync::mpsc::channel;
use std::time::Duration;

use carom::RequestError;
use carom::blocking::Node;
use carom::{Handler, RequestOptions};
use carom_terminal::interrupt::{self, Interrupt};
use carom_terminal::{CliError, Outcome, output, units};

use crate::node::NodeArgs;
use crate::serve::reply::{self, Reply};
use crate::waiting;

/// Send standard input as a request to an ordered group, and print the reply (see `carom serve`)
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Group name
    #[arg(value_parser = units::name)]
    pub(crate) group: String,
    /// Handler that should reply, 0 to 5
    #[arg(long, value_name = "N", default_value = "0", allow_hyphen_values = true)]
    #[arg(value_parser = reply::handler)]
    handler: Handler,
    /// Maximum wait for the reply
    #[arg(long, value_name = "TIME", default_value = "10s", allow_hyphen_values = true)]
    #[arg(value_parser = units::duration)]
    timeout: Duration,
    /// Write the reply unparsed, for servers other than `carom serve`
    #[arg(long)]
    raw: bool,
    #[command(flatten)]
    node: NodeArgs,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    let interrupt = interrupt::listen()?;
    interrupt::into_outcome(run_until(args, interrupt))
}

fn run_until(args: &Args, interrupt: &Interrupt) -> Result<Outcome, CliError> {
    let request = read(interrupt)?;
    let node = args.node.start(args.node.builder(), interrupt)?;
    let mut was_anybody_there = false;
    let answered = args.ask(&node, request, interrupt, &mut was_anybody_there);
    let is_unanswered = matches!(answered, Ok(Err(RequestError::Unanswered)));
    let is_nobody_there = is_unanswered && args.is_nobody_there(&node, interrupt)?;
    node.close();
    match answered? {
        Ok(carom::Reply::Handled { payload, .. }) => args.write(&payload),
        Ok(_) => Ok(Outcome::Fine),
        // A member may have executed the request and left since.
        Err(RequestError::Unanswered) if is_nobody_there => {
            let done = match was_anybody_there {
                true => " now: the request may have been executed",
                false => ": the request was not executed",
            };
            output::say(format_args!("group '{}' has no members{done}", args.group));
            Ok(Outcome::Code(UNANSWERED))
        }
        Err(error @ RequestError::Unanswered) => {
            let (handler, name) = (args.handler.number(), &args.group);
            output::say(format_args!("handler {handler} of {name}: {error}"));
            Ok(Outcome::Code(UNANSWERED))
        }
        Err(error) => Err(CliError::new(format!("group '{}': {error}", args.group), error.fix())),
    }
}

impl Args {
    /// Sends the request from `node`, which is in no group, and waits for the reply. Sets
    /// `was_anybody_there` if another node was online.
    fn ask(
        &self,
        node: &Node,
        request: Vec<u8>,
        interrupt: &Interrupt,
        was_anybody_there: &mut bool,
    ) -> Result<Result<carom::Reply, RequestError>, CliError> {
        let (handler, patience) = (Some(self.handler), Some(self.timeout));
        let options = RequestOptions { handler, patience, ..RequestOptions::default() };
        let asked = node.as_async().request(&self.group, request, options);
        let answered = waiting::until(asked, || {
            *was_anybody_there |= !node.status().members.is_empty();
            interrupt.is_asked()
        });
        answered.ok_or_else(CliError::interrupted)
    }

    fn is_nobody_there(&self, node: &Node, interrupt: &Interrupt) -> Result<bool, CliError> {
        if node.status().members.is_empty() {
            return Ok(true);
        }
        let looked = node.as_async().query(&self.group, LOOK_PATIENCE);
        let rings =
            waiting::until(looked, || interrupt.is_asked()).ok_or_else(CliError::interrupted)?;
        Ok(rings.is_ok_and(|rings| rings.is_empty()))
    }

    fn write(&self, payload: &[u8]) -> Result<Outcome, CliError> {
        if self.raw {
            return write_out(payload).map(|()| Outcome::Fine);
        }
        let Some(reply) = Reply::parse(payload) else {
            let cause =
                format!("the reply from {} is not in the format of `carom serve`", self.group);
            return Err(CliError::new(cause, "use --raw for servers other than `carom serve`"));
        };
        write_out(&reply.output)?;
        if reply.code != 0 {
            output::say(format_args!(
                "the command that serves {} failed with code {}",
                self.group, reply.code
            ));
        }
        Ok(Outcome::of(reply.code != 0))
    }
}

/// Reads all of standard input on a separate thread, so that Ctrl-C takes effect during the read.
fn read(interrupt: &Interrupt) -> Result<Vec<u8>, CliError> {
    let (to, from) = channel();
    std::thread::spawn(move || {
        let mut input = Vec::new();
        // One byte above the limit, so that the group rejects an oversized request.
        let read = std::io::stdin().lock().take(MOST_BYTES + 1).read_to_end(&mut input);
        to.send(read.map(|_| input))
    });
    loop {
        match from.recv_timeout(STEP) {
            Ok(read) => return read.map_err(|error| CliError::io("standard input", &error)),
            Err(_) if interrupt.is_asked() => return Err(CliError::interrupted()),
            Err(_) => {}
        }
    }
}

fn write_out(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(output::not_written(&error)),
        _ => Ok(()),
    }
}

const MOST_BYTES: u64 = 16 << 20;
const UNANSWERED: u8 = 3;
/// Timeout of the ring query. A member that is online answers within 100 ms.
const LOOK_PATIENCE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(20);
const EXAMPLE: &str = "Examples:
  echo hello | carom call quotes
  carom call quotes --handler 2 --timeout 2s < question.json > answer.json

Exit codes: 0 the reply was written, 1 the command of the server failed (its output is written in
any case), 2 usage or environment error, 3 no reply in time, or the group has no members";
