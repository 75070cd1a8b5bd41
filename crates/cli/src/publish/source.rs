//! Reads standard input ahead on a thread, so that Ctrl-C takes effect at any time.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::BufReader;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use carom_terminal::{CliError, plain};

use crate::frames::{Found, Framing};

pub(crate) enum Item {
    Message(Vec<u8>),
    End,
    Broken(CliError),
}

pub(crate) struct Source {
    batches: Receiver<Vec<Item>>,
    ahead: RefCell<VecDeque<Item>>,
}

impl Source {
    pub(crate) fn stdin(framing: Framing, limit: usize) -> Self {
        Self::reading(BufReader::with_capacity(BUFFER_BYTES, std::io::stdin()), framing, limit)
    }

    /// Starts to read `from`. The thread ends when the input or the process ends.
    fn reading(
        from: BufReader<impl std::io::Read + Send + 'static>,
        framing: Framing,
        limit: usize,
    ) -> Self {
        let (to, batches) = sync_channel(BATCHES);
        std::thread::spawn(move || read_all(from, framing, limit, &to));
        Self { batches, ahead: RefCell::default() }
    }

    pub(crate) fn next(&self) -> Option<Item> {
        if self.is_empty() {
            match self.batches.try_recv() {
                Ok(batch) => self.ahead.borrow_mut().extend(batch),
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => return Some(Item::End),
            }
        }
        self.ahead.borrow_mut().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.borrow().is_empty()
    }

    pub(crate) fn wait(&self, timeout: Duration) {
        match self.batches.recv_timeout(timeout) {
            Ok(batch) => self.ahead.borrow_mut().extend(batch),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.ahead.borrow_mut().push_back(Item::End),
        }
    }
}

/// Sends all messages of one read as one batch, so that many short lines cost one wake-up.
fn read_all(
    mut from: BufReader<impl std::io::Read>,
    framing: Framing,
    limit: usize,
    to: &SyncSender<Vec<Item>>,
) {
    let mut number = 0_u64;
    let mut batch = Vec::new();
    loop {
        number += 1;
        let (item, last) = match framing.read(&mut from, limit) {
            Ok(Found::Message(message)) => (Item::Message(message), false),
            Ok(Found::End) => (Item::End, true),
            Ok(Found::TooLarge(size)) => {
                (Item::Broken(too_large(framing, number, size, limit)), true)
            }
            Err(error) => (Item::Broken(unreadable(framing, number, &error)), true),
        };
        batch.push(item);
        let whole = holds_another(from.buffer(), framing);
        if last || !whole || batch.len() >= BATCH {
            let sent = to.send(std::mem::take(&mut batch));
            if last || sent.is_err() {
                return;
            }
        }
    }
}

/// Returns `true` if the next message can be read without waiting for input.
fn holds_another(buffer: &[u8], framing: Framing) -> bool {
    match framing {
        Framing::Lines => buffer.contains(&b'\n'),
        Framing::Frames => buffer
            .split_first_chunk::<4>()
            .is_some_and(|(length, rest)| rest.len() >= u32::from_be_bytes(*length) as usize),
    }
}

fn too_large(framing: Framing, number: u64, size: u64, limit: usize) -> CliError {
    let noun = framing.noun();
    CliError::new(
        format!("{noun} {number} is {size} bytes long: expected at most {limit}"),
        match framing {
            Framing::Lines => "split it, for example with `fold -b`",
            Framing::Frames => "split it into several frames",
        },
    )
}

fn unreadable(framing: Framing, number: u64, error: &std::io::Error) -> CliError {
    let cause =
        format!("cannot read {} {number} from standard input: {}", framing.noun(), plain(error));
    let fix = match framing {
        Framing::Lines => "check the source of the input",
        Framing::Frames => "write each frame as 4 bytes of length (big-endian), then the message",
    };
    CliError::new(cause, fix)
}

const BUFFER_BYTES: usize = 64 << 10;
const BATCH: usize = 1024;
const BATCHES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &'static [u8], framing: Framing, limit: usize) -> (usize, Option<String>) {
        let source = Source::reading(BufReader::new(bytes), framing, limit);
        let mut count = 0;
        loop {
            match source.next() {
                Some(Item::Message(_)) => count += 1,
                Some(Item::End) => return (count, None),
                Some(Item::Broken(error)) => {
                    return (count, Some(error.to_string()));
                }
                None => source.wait(Duration::from_secs(60)),
            }
        }
    }

    #[test]
    fn every_line_comes_and_then_the_end() {
        assert_eq!(all(b"1\n2\n\n4", Framing::Lines, 10), (4, None));
        assert_eq!(all(b"", Framing::Lines, 10), (0, None));
    }

    #[test]
    fn overlong_line_is_reported_with_number_size_and_limit() {
        let (count, cause) = all(b"ok\n12345678\nnever sent\n", Framing::Lines, 4);
        let cause = cause.expect("it does not fit");
        assert_eq!(count, 1);
        let (cause, fix) = cause.split_once('\n').expect("a cause and a fix");
        assert!(cause.starts_with("error: line 2 is 8 bytes long"), "{cause}");
        assert!(cause.ends_with("at most 4"), "{cause}");
        assert_eq!(fix, "fix: split it, for example with `fold -b`");
    }

    #[test]
    fn a_frame_cut_short_is_an_error() {
        let (count, cause) = all(&[0, 0, 0, 1, 7, 0, 0], Framing::Frames, 4);
        assert_eq!(count, 1);
        assert!(cause.is_some_and(|cause| cause.contains("frame 2")));
    }
}
