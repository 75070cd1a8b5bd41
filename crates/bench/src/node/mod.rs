//! One node of a system under test, run by a harness.
//!
//! The harness starts the node with the arguments of [`Assignment`]. The node prints `ready`; the
//! harness writes `go`; a sender prints `sent` after its last message, and a receiver `complete`
//! once it has everything. On `stop`, the node writes its [files](crate::record) and ends.

mod assignment;
mod carom;
mod endpoint;
mod error;
mod harness;
mod raw;
mod recorder;
mod settings;
mod stamped;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

pub use assignment::{Assignment, Role, System};
pub use error::NodeError;

use crate::clock;
use crate::message::Header;
use crate::record::{NodeFiles, Record};
use crate::schedule::Schedule;
use endpoint::{Background, Endpoint};
use harness::Harness;
use recorder::Recorder;

/// Runs a node until the harness stops it.
///
/// # Errors
/// Returns an error if the arguments or the settings are not valid, the system fails, or the
/// harness ends without stopping the node.
pub fn run(system: System, work: &Assignment) -> Result<(), NodeError> {
    work.check()?;
    let harness = Harness::on_standard_input();
    let recorder = Arc::new(Recorder::new(work, system.delivers_own(work)?));
    let mut endpoint: Box<dyn Endpoint> = match system {
        System::Carom => Box::new(carom::Carom::start(work, &recorder)?),
        System::Raw => Box::new(raw::Raw::start(work, &recorder)?),
    };
    harness::report("ready")?;
    harness.wait_for("go")?;
    let background = endpoint.background().map(|background| {
        let (work, stopped) = (work.clone(), harness.stopped());
        thread::spawn(move || send_background(&work, background, &stopped))
    });
    let sent = match work.role.sends() {
        true => send_all(work, &mut *endpoint, &harness)?,
        false => Vec::new(),
    };
    harness.wait_for("stop")?;
    if let Some(background) = background {
        background.join().expect("the background transfer does not panic")?;
    }
    let mut report = endpoint.finish();
    let mut files = NodeFiles { sent, ..NodeFiles::default() };
    let counters = recorder.take(&mut files);
    report.counters.extend(counters.into_iter().map(|(name, count)| (name.to_owned(), count)));
    files.report = report;
    files.write(&work.dir)?;
    Ok(())
}

fn send_all(
    work: &Assignment,
    endpoint: &mut dyn Endpoint,
    harness: &Harness,
) -> Result<Vec<Record>, NodeError> {
    let mut sent = Vec::with_capacity(work.messages as usize);
    let schedule = Schedule::new(Instant::now(), Some(work.rate));
    for number in 0..work.messages {
        if harness.is_stopped() {
            return Ok(sent);
        }
        schedule.wait(number);
        let mut message = vec![0; work.size];
        let header = |sent_ns| Header { magic: work.magic, sender: work.index, number, sent_ns };
        header(0).write(&mut message);
        let at_ns = clock::monotonic_ns();
        header(at_ns).write_time(&mut message);
        sent.push(Record { sender: work.index, number, at_ns });
        endpoint.send(number % work.groups, message)?;
    }
    harness::report("sent")?;
    Ok(sent)
}

/// Sends the background transfer until it is complete or the node is stopped.
fn send_background(
    work: &Assignment,
    mut background: Background,
    stopped: &AtomicBool,
) -> Result<(), NodeError> {
    let magic = work.magic.of_background();
    for number in 0..work.background_messages() {
        if stopped.load(Ordering::Relaxed) {
            break;
        }
        let mut message = vec![0; work.size];
        Header { magic, sender: work.index, number, sent_ns: 0 }.write(&mut message);
        background.send(message)?;
    }
    Ok(())
}
