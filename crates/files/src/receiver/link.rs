use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::error::ReceiveError;
use crate::frame::{self, FromReceiver, FromSender, plain_text};
use crate::progress::Event;
use crate::receiver::fetches::Fetch;
use crate::receiver::greeting::{MAX_FROM_SENDER, greet};
use crate::receiver::shared::{Report, Shared};

const RETRY: Duration = Duration::from_millis(300);

pub(crate) fn follow(shared: &Arc<Shared>, first: TcpStream) {
    let mut stream = first;
    loop {
        let error = read_all(shared, &stream);
        tracing::debug!(%error, "lost the connection to the sender");
        let _ = stream.shutdown(Shutdown::Both);
        if !shared.unlink() {
            return;
        }
        shared.report(Event::SenderLost);
        match find_again(shared) {
            Some(found) => stream = found,
            None => return,
        }
    }
}

fn read_all(shared: &Shared, stream: &TcpStream) -> io::Error {
    loop {
        let frame = match frame::read(&mut &*stream, MAX_FROM_SENDER) {
            Ok(frame) => frame,
            Err(error) => return error,
        };
        match frame {
            FromSender::Alive => {}
            FromSender::Welcome { .. } => return frame::nonsense("unexpected welcome frame"),
            FromSender::Refused { reason } => {
                shared.fail(ReceiveError::Refused(plain_text(&reason)));
            }
            FromSender::Aborted { reason, discard } => {
                shared.aborted(plain_text(&reason), discard);
            }
            FromSender::StreamOver => {
                shared.change(|life| life.over_at = Some(Instant::now()));
            }
            FromSender::Fetch { piece, source, address } => {
                let fetch = Fetch { piece, source, address };
                if !shared.change(|life| life.fetches.push(fetch)) {
                    return frame::nonsense("too many assigned fetches");
                }
            }
            FromSender::Done => shared.done(),
        }
    }
}

fn find_again(shared: &Arc<Shared>) -> Option<TcpStream> {
    let lost_at = Instant::now();
    while lost_at.elapsed() < shared.options.patience {
        let addresses = shared.addresses()?;
        let id = shared.manifest().id();
        match greet(&addresses, id, &shared.options, true) {
            Ok(greeted) => match shared.link(&greeted) {
                Ok(()) => return Some(greeted.stream),
                Err(error) => tracing::debug!(%error, "lost the connection to the sender again"),
            },
            Err(error) => tracing::debug!(%error, "cannot reconnect to the sender"),
        }
        shared.pause(RETRY)?;
    }
    shared.fail(ReceiveError::SenderGone);
    None
}

pub(crate) fn report_all(shared: &Arc<Shared>) {
    let mut reported_at = Instant::now();
    while let Some(report) = shared.next_report(reported_at) {
        reported_at = Instant::now();
        let Report { link, frames, is_last } = report;
        let is_sent = link.as_ref().is_some_and(|link| write_all(link, &frames).is_ok());
        if let (Some(link), false) = (&link, is_sent) {
            // The reading thread detects this and reconnects.
            let _ = link.shutdown(Shutdown::Both);
        }
        if is_last {
            shared.change(|life| life.last_word(is_sent));
        }
    }
}

fn write_all(mut link: &TcpStream, frames: &[FromReceiver]) -> io::Result<()> {
    frames.iter().try_for_each(|frame| frame::write(&mut link, frame))
}
