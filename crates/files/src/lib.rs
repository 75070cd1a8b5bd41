//! Transfers files from one sender to many receivers over a multicast stream.
//!
//! A [`Sending`] offers files, directories or the data of a reader. Each [`Receiving`] stores them
//! in a directory. The application provides the multicast stream that carries the data: the sender
//! writes messages to a [`BlockSink`], and the receiving application passes each message of the
//! stream to [`Receiving::on_block`]. Everything else uses TCP: the manifest, the reports on
//! received pieces, and the pieces that the stream did not deliver. Receivers fetch these pieces
//! from each other, or from the sender if no other receiver has them.
//!
//! The stream may lose, duplicate, reorder and corrupt messages. Files get their final names only
//! after each piece has been verified against a hash in the manifest. The transfer id is a hash
//! over the manifest without modes and times. `docs/files.md` describes formats, states and trust.
//!
//! In this example, the stream is a queue within the process:
//!
//! ```
//! use carom_files::*;
//! use std::sync::mpsc::{Sender, channel};
//!
//! struct Queue(Sender<bytes::Bytes>);
//! impl BlockSink for Queue {
//!     fn send(&mut self, block: bytes::Bytes) -> Result<(), SinkError> {
//!         self.0.send(block).map_err(|_| SinkError("the channel is closed".into()))
//!     }
//!     fn largest(&self) -> usize {
//!         60_000
//!     }
//!     fn flush(&mut self) -> Result<(), SinkError> {
//!         Ok(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (from, to) = (tempfile::tempdir()?, tempfile::tempdir()?);
//! std::fs::write(from.path().join("greeting"), "hello")?;
//! let options = SendOptions { listen: "127.0.0.1:0".parse()?, ..SendOptions::default() };
//! let sending = Sending::open(vec![Source::Path(from.path().join("greeting"))], options)?;
//!
//! let receiving = Receiving::start(sending.offer(), ReceiveOptions::new(to.path()))?;
//! let (queue, blocks) = channel();
//! let sender = std::thread::spawn(move || sending.run(&mut Queue(queue)));
//! blocks.iter().for_each(|block| receiving.on_block(block));
//! receiving.wait()?;
//! assert!(sender.join().expect("it does not panic")?.is_success());
//! assert_eq!(std::fs::read(to.path().join("greeting"))?, b"hello");
//! # Ok(())
//! # }
//! ```

mod block;
mod block_sink;
mod door;
mod error;
pub mod frame;
mod holes;
mod id;
mod limits;
mod manifest;
mod names;
mod offer;
mod peers;
mod piece;
mod progress;
mod receiver;
mod scan;
mod sender;
mod summary;

pub use block::{BLOCK_HEADER_BYTES, Block};
pub use block_sink::{BlockSink, SinkError};
pub use error::{ReceiveError, SendError, SourceError, Unsendable};
pub use holes::{Holes, Segment};
pub use id::TransferId;
pub use limits::*;
pub use manifest::{Entry, Kind, Manifest, ManifestError, Modified};
pub use names::{EntryPath, NameError, check_link};
pub use offer::{NoOffer, Offer};
pub use piece::{Hash, PieceSet, Place};
pub use progress::{Event, Reporter, events};
pub use receiver::{Kept, ReceiveOptions, Receiving, kept, recover, try_writing};
pub use scan::{Findings, Source};
pub use sender::{SendHandle, SendOptions, Sending, StartWhen};
pub use summary::{Received, ReceiverRow, State, Summary};
