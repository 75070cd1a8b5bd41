//! Fuzz target: arbitrary bytes as standard input, in lines or frames. Every message must be within
//! the limit, reading must end, and the messages must survive writing and reading.
#![no_main]

// The command has no library, so its framing is included by file.
#[allow(dead_code, reason = "only reading and writing are used")]
#[path = "../../crates/cli/src/frames.rs"]
mod frames;

use frames::{Found, Framing};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, u16, &[u8])| {
    let (is_framed, limit, bytes) = input;
    let (framing, limit) = (Framing::of(is_framed), usize::from(limit));
    let messages = read_all(framing, bytes, limit);
    let mut again = Vec::new();
    for message in &messages {
        assert!(message.len() <= limit, "a message is larger than the limit");
        framing.write(message, &mut again).expect("writing to a vector succeeds");
    }
    assert_eq!(read_all(framing, &again, limit), messages, "writing has changed the messages");
});

/// Returns the messages before the end, before the first one that is too large, or before an error.
fn read_all(framing: Framing, mut bytes: &[u8], limit: usize) -> Vec<Vec<u8>> {
    let most = bytes.len();
    let mut messages = Vec::new();
    while let Ok(Found::Message(message)) = framing.read(&mut bytes, limit) {
        messages.push(message);
        assert!(messages.len() <= most, "there are more messages than bytes");
    }
    messages
}
