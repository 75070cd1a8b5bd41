//! Message framing on standard input and output: lines, or frames with a length.
//!
//! A frame is the message's length as a 4-byte big-endian number, followed by the message.

use std::io::{self, BufRead, ErrorKind, Read as _, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Lines,
    Frames,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Message(Vec<u8>),
    /// Size, in bytes, of a message above the limit, after which nothing more can be read.
    TooLarge(u64),
    End,
}

impl Framing {
    pub(crate) fn of(frames: bool) -> Self {
        if frames { Self::Frames } else { Self::Lines }
    }

    pub(crate) fn noun(self) -> &'static str {
        match self {
            Self::Lines => "line",
            Self::Frames => "frame",
        }
    }

    /// Reads the next message of at most `limit` bytes. Fails if the stream ends within a frame.
    pub(crate) fn read(self, from: &mut impl BufRead, limit: usize) -> io::Result<Found> {
        match self {
            Self::Lines => read_line(from, limit),
            Self::Frames => read_frame(from, limit),
        }
    }

    pub(crate) fn write(self, message: &[u8], to: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Lines => {
                to.write_all(message)?;
                to.write_all(b"\n")
            }
            Self::Frames => {
                let length = u32::try_from(message.len())
                    .map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
                to.write_all(&length.to_be_bytes())?;
                to.write_all(message)
            }
        }
    }
}

/// Reads a line above the limit to its end in bounded memory, so that its size can be reported.
fn read_line(from: &mut impl BufRead, limit: usize) -> io::Result<Found> {
    let mut line = Vec::new();
    from.by_ref().take(limit as u64 + 1).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Found::Message(line));
    }
    if line.len() <= limit {
        return Ok(if line.is_empty() { Found::End } else { Found::Message(line) });
    }
    let mut size = line.len() as u64;
    loop {
        let rest = from.fill_buf()?;
        let end = rest.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(rest.len());
        size += taken as u64;
        if end.is_some() || rest.is_empty() {
            return Ok(Found::TooLarge(size));
        }
        from.consume(taken);
    }
}

fn read_frame(from: &mut impl BufRead, limit: usize) -> io::Result<Found> {
    if from.fill_buf()?.is_empty() {
        return Ok(Found::End);
    }
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    if length as usize > limit {
        return Ok(Found::TooLarge(u64::from(length)));
    }
    let mut message = vec![0; length as usize];
    from.read_exact(&mut message)?;
    Ok(Found::Message(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(framing: Framing, mut bytes: &[u8], limit: usize) -> Vec<Found> {
        let mut found = Vec::new();
        loop {
            let next = framing.read(&mut bytes, limit).expect("reading from a slice cannot fail");
            let last = !matches!(next, Found::Message(_));
            found.push(next);
            if last {
                return found;
            }
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for framing in [Framing::Lines, Framing::Frames] {
            let mut bytes = Vec::new();
            for message in [&b"one"[..], b"", b"three"] {
                framing.write(message, &mut bytes).expect("writing to a vector cannot fail");
            }
            let message = |text: &[u8]| Found::Message(text.to_vec());
            let expected = [message(b"one"), message(b""), message(b"three"), Found::End];
            assert_eq!(messages(framing, &bytes, 5), expected);
        }
    }

    #[test]
    fn the_last_line_needs_no_line_feed() {
        let found = messages(Framing::Lines, b"a\nb", 10);
        assert_eq!(found[1], Found::Message(b"b".to_vec()));
    }

    #[test]
    fn a_message_over_the_limit_is_told_with_its_size() {
        let long = messages(Framing::Lines, b"ok\n1234567890\nnext\n", 4);
        assert_eq!(long[1], Found::TooLarge(10));
        assert_eq!(messages(Framing::Lines, b"1234567890", 4), [Found::TooLarge(10)]);
        assert_eq!(messages(Framing::Lines, b"1234\n", 4)[0], Found::Message(b"1234".to_vec()));
        let frame = [0, 0, 1, 0, b'x'];
        assert_eq!(messages(Framing::Frames, &frame, 4), [Found::TooLarge(256)]);
    }

    #[test]
    fn a_stream_that_ends_within_a_frame_is_an_error() {
        let error = Framing::Frames.read(&mut &[0, 0, 0, 2, b'x'][..], 4).err();
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::UnexpectedEof));
    }
}
