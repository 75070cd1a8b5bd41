//! Transfers a file from a sender to a receiver. A bulk group carries the blocks, and the receiver
//! verifies them.
//!
//! `cargo run --example file_transfer`

#![expect(clippy::print_stdout, reason = "this is what the user asked for")]

use std::error::Error;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use carom::blocking::{Group, Node};
use carom::{Event, Profile, StartError};
use carom_files::{BlockSink, Offer, ReceiveOptions, Receiving, SendOptions, Sending};
use carom_files::{SinkError, Source};

struct Stream(Group);

impl BlockSink for Stream {
    fn send(&mut self, block: Bytes) -> Result<(), SinkError> {
        self.0.publish(block).map(|_| ()).map_err(|error| SinkError(error.to_string()))
    }

    fn largest(&self) -> usize {
        self.0.payload_limit().min(60_000)
    }

    /// Waits up to 10 s until the receivers have all blocks. Later, they fetch missing pieces.
    fn flush(&mut self) -> Result<(), SinkError> {
        let _ = self.0.confirm(Duration::from_secs(10));
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (from, to) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let image = from.path().join("disk.img");
    std::fs::write(&image, vec![7; 4 << 20])?;

    let (sender, receiver) = (start()?, start()?);
    let stream = sender.join("images", Profile::bulk())?;
    let images = receiver.join("images", Profile::bulk())?;
    stream.wait_for_members(1)?;

    let listen = SocketAddr::new(sender.endpoint().ip(), 0);
    let options = SendOptions { listen, ..SendOptions::default() };
    let sending = Sending::open(vec![Source::Path(image)], options)?;
    stream.publish(sending.offer().encode())?;
    let sending = thread::spawn(move || sending.run(&mut Stream(stream)));

    // The first message is the offer. All others are blocks.
    let Some(offer) = next_message(&images) else { return Err("the group is closed".into()) };
    let receiving = Receiving::start(&Offer::decode(&offer)?, ReceiveOptions::new(to.path()))?;
    let received = thread::scope(|threads| {
        threads.spawn(|| {
            while let Some(block) = next_message(&images) {
                receiving.on_block(block);
            }
        });
        let received = receiving.wait();
        receiver.close(); // Ends the thread above.
        received
    })?;
    sending.join().expect("the sender does not panic")?;

    let (sent, written) = (from.path().join("disk.img"), to.path().join("disk.img"));
    assert_eq!(std::fs::read(sent)?, std::fs::read(written)?);
    println!(
        "{} bytes by multicast, {} fetched from the sender",
        received.stream_bytes, received.sender_bytes
    );
    Ok(())
}

/// Returns the next message of the group, or `None` if the node is closed.
fn next_message(group: &Group) -> Option<Bytes> {
    loop {
        if let Event::Message(message) = group.recv()? {
            return Some(message.payload);
        }
    }
}

/// Starts a node that communicates only within this machine.
fn start() -> Result<Node, StartError> {
    Node::start(Node::builder().interface("127.0.0.1").port(0).multicast_port(7426))
}
