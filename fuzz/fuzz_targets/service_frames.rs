//! Fuzz target: arbitrary bytes as a stream of the registry's frames. Reading must not panic or
//! depend on the chunks, and every frame must re-encode to the same bytes.
#![no_main]

use carom_proto::codec::Field as _;
use carom_proto::membership::service::{Change, Frame, FrameReader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece, bytes) = input;
    let whole = read_all(bytes, bytes.len().max(1));
    assert_eq!(read_all(bytes, usize::from(piece).max(1)), whole, "the chunks changed the result");
    let mut again = Vec::new();
    whole.iter().for_each(|frame| frame.encode(&mut again));
    assert!(bytes.starts_with(&again), "encoding has changed a frame");
    let mut rest = bytes;
    while let Ok(change) = Change::take(&mut rest) {
        let again = change.to_bytes();
        let read = bytes.len() - rest.len();
        assert!(bytes[..read].ends_with(&again), "encoding has changed a view change");
    }
});

/// Returns the frames before the first error, read in chunks of `piece` bytes.
fn read_all(bytes: &[u8], piece: usize) -> Vec<Frame> {
    let mut reader = FrameReader::default();
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece) {
        reader.push(piece);
        loop {
            match reader.next_frame() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return frames,
            }
        }
    }
    frames
}
