//! From a stream of bytes to frames.

use super::frame::{Frame, FrameError, MAX_FRAME_BYTES};

/// Collects the bytes of one link and gives out whole frames.
///
/// It keeps less than one frame beyond what was given at once. After an error the stream has lost
/// its meaning: the link has to be closed.
#[derive(Debug)]
pub struct FrameReader {
    waiting: Vec<u8>,
    /// Bytes at the front of `waiting` that were given out already.
    taken: usize,
    most: usize,
}

const LENGTH_BYTES: usize = 4;

impl FrameReader {
    /// A reader that takes frames of more than `most` bytes for nonsense.
    pub fn up_to(most: usize) -> Self {
        Self { waiting: Vec::new(), taken: 0, most }
    }

    /// The next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.waiting.drain(..self.taken);
        self.taken = 0;
        self.waiting.extend_from_slice(bytes);
    }

    /// The next frame that is there in full.
    ///
    /// # Errors
    /// The stream is not the protocol's; or the frame has settings of a group that are not known
    /// here, and the next call returns the one after it: [`FrameError::Settings`].
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

    /// Bytes that wait for the rest of their frame.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.len() - self.taken
    }
}

impl Default for FrameReader {
    /// A reader of all frames that there are.
    fn default() -> Self {
        Self::up_to(MAX_FRAME_BYTES)
    }
}
