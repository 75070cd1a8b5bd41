//! The record of datagrams that a filter drops.

mod clocks;
mod dropped;
mod file;
mod recorder;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use dropped::Dropped;
use recorder::{Progress, Recorder};

use crate::error::Error;
use crate::filter::Filter;

/// A running record of the datagrams that a filter drops.
///
/// Each datagram is written whole to a pcap file, as a raw IP packet. Of a datagram in several IP
/// fragments that is lost at an uplink, the record has the first one.
///
/// The time stamps are those of `CLOCK_MONOTONIC`, which all hosts of a lab share and programs use
/// for intervals. The kernel stamps each drop by `CLOCK_REALTIME` in whole microseconds, and the
/// difference of the two clocks is taken when the record is read. The result is accurate to 2 µs,
/// unless the system's clock is set between the drop and the reading, some milliseconds later.
/// Kernels before 5.18 stamp no drops: there, the time is that of the reading.
#[derive(Debug)]
pub struct DropLog {
    filter: Filter,
    path: PathBuf,
    progress: Arc<Progress>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl DropLog {
    /// Starts to record what the filter drops, as raw IP packets in the file `path`.
    pub(crate) fn start(filter: Filter, path: &Path) -> Result<Self, Error> {
        let progress = Arc::<Progress>::default();
        let recorder = Self::recorder(&filter, path, &progress)?;
        let thread =
            thread::Builder::new().name("drop-log".to_owned()).spawn(move || recorder.run());
        let thread = thread.map_err(|error| Error::io("cannot start a thread", &error))?;
        Ok(Self { filter, path: path.to_owned(), progress, thread: Some(thread) })
    }

    /// Logs what the filter drops. The recorder has everything from then on, also what is dropped
    /// before it runs.
    fn recorder(filter: &Filter, path: &Path, progress: &Arc<Progress>) -> Result<Recorder, Error> {
        let open = || Recorder::open(filter.log_group(), path, Arc::clone(progress));
        // This fails during another log, which must not lose its rule.
        let recorder = filter.namespace().enter(open)??;
        // The rule of an abandoned log would deliver uncounted packets to the new one.
        filter.end_abandoned_log()?;
        recorder.discard()?;
        filter.start_log()?;
        Ok(recorder)
    }

    /// Ends the record. Returns the dropped datagrams in their order.
    ///
    /// Fails if the record lacks a datagram that nft has logged.
    pub fn finish(self) -> Result<Vec<Dropped>, Error> {
        let path = self.path.clone();
        self.complete()?;
        Dropped::read(&path)
    }

    /// Ends the record without reading it, for a caller that reads the file by itself or keeps it.
    ///
    /// Fails if the record lacks a datagram that nft has logged.
    pub fn complete(mut self) -> Result<(), Error> {
        let give_up = Instant::now() + PATIENCE;
        let logged = self.filter.stop_log()?;
        let recorded = || self.progress.recorded.load(Ordering::Acquire);
        while recorded() < logged && Instant::now() < give_up {
            thread::sleep(TURN);
        }
        self.progress.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        let recorded = self.progress.recorded.load(Ordering::Acquire);
        if recorded != logged {
            let cause = format!("{}: {recorded} of {logged} drops recorded", self.path.display());
            return Err(Error::new(cause, "use a lower rate, or fewer hosts per processor"));
        }
        Ok(())
    }
}

impl Drop for DropLog {
    fn drop(&mut self) {
        self.progress.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // The record was abandoned, so that its errors have no reader.
            let _ = thread.join();
        }
    }
}

const TURN: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(3);
