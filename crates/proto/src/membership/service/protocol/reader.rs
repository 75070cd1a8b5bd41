use super::frame::{Frame, FrameError, MAX_FRAME_BYTES};

/// Collects the bytes of one connection and returns complete frames.
///
/// If it is emptied after each push, it holds less than one frame and the bytes of one push.
#[derive(Debug)]
pub struct FrameReader {
    waiting: Vec<u8>,
    taken: usize,
    most: usize,
}

const LENGTH_BYTES: usize = 4;

impl FrameReader {
    /// Creates a reader that rejects frames of more than `most` bytes.
    pub fn up_to(most: usize) -> Self {
        Self { waiting: Vec::new(), taken: 0, most }
    }

    /// Appends the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.taken);
        self.taken = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// Returns the next complete frame, or `None` if more bytes are needed.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid frame. After [`FrameError::Settings`], the
    /// stream is still usable: the frame has unknown group settings, and the next call returns the
    /// frame after it.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let rest = &self.waiting[self.taken..];
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length) as usize;
        if length == 0 || length > self.most {
            return Err(FrameError::Length);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(body);
        if matches!(frame, Ok(_) | Err(FrameError::Settings(_))) {
            self.taken += LENGTH_BYTES + length;
        }
        frame.map(Some)
    }

    /// Returns the number of buffered bytes after the last frame that was returned.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len() - self.taken
    }
}

impl Default for FrameReader {
    fn default() -> Self {
        Self::up_to(MAX_FRAME_BYTES)
    }
}
