//! A multicast stream within the process, and helpers for all tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use carom_files::{
    BlockSink, Offer, ReceiveOptions, ReceiverRow, Receiving, SendError, SendOptions, Sending,
    SinkError, Source, StartWhen, State, Summary,
};

/// A fault of the stream, which returns the messages that a listener receives for a block.
///
/// The arguments are the number of the listener, the number of the block, and the block.
pub(crate) type Fault = Box<dyn FnMut(usize, u64, &Bytes) -> Vec<Bytes> + Send>;

pub(crate) type Listeners = Arc<Mutex<Vec<Option<Arc<Receiving>>>>>;

pub(crate) struct Wire {
    pub(crate) listeners: Listeners,
    fault: Fault,
    /// Called with the number of each block before the block is sent.
    before: Box<dyn FnMut(u64) -> Result<(), SinkError> + Send>,
    blocks: u64,
}

impl Wire {
    pub(crate) fn whole() -> Self {
        Self::with(|_, _, block| vec![block.clone()])
    }

    pub(crate) fn with(
        fault: impl FnMut(usize, u64, &Bytes) -> Vec<Bytes> + Send + 'static,
    ) -> Self {
        let before = Box::new(|_| Ok(()));
        Self { listeners: Listeners::default(), fault: Box::new(fault), before, blocks: 0 }
    }

    pub(crate) fn heard_by(self, listeners: Listeners) -> Self {
        Self { listeners, ..self }
    }

    pub(crate) fn before(
        mut self,
        before: impl FnMut(u64) -> Result<(), SinkError> + Send + 'static,
    ) -> Self {
        self.before = Box::new(before);
        self
    }

    pub(crate) fn at(self, number: u64, mut then: impl FnMut() + Send + 'static) -> Self {
        self.before(move |block| {
            if block == number {
                then();
            }
            Ok(())
        })
    }
}

impl BlockSink for Wire {
    fn send(&mut self, block: Bytes) -> Result<(), SinkError> {
        assert!(block.len() <= self.largest());
        (self.before)(self.blocks)?;
        let listeners = self.listeners.lock().expect("no test panics with it").clone();
        for (number, listener) in listeners.iter().enumerate() {
            for block in (self.fault)(number, self.blocks, &block) {
                if let Some(listener) = listener {
                    listener.on_block(block);
                }
            }
        }
        self.blocks += 1;
        Ok(())
    }

    fn largest(&self) -> usize {
        60_000
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        Ok(())
    }
}

pub(crate) struct Places {
    _folder: tempfile::TempDir,
    pub(crate) from: PathBuf,
    pub(crate) to: PathBuf,
}

impl Places {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let (from, to) = (folder.path().join("from"), folder.path().join("to"));
        fs::create_dir(&from).expect("the folder is new");
        fs::create_dir(&to).expect("the folder is new");
        Self { _folder: folder, from, to }
    }

    pub(crate) fn file(&self, name: &str, bytes: usize) -> PathBuf {
        let path = self.from.join(name);
        fs::write(&path, noise(name, bytes)).expect("it can be written");
        path
    }

    pub(crate) fn folder(&self, receiver: usize) -> PathBuf {
        self.to.join(receiver.to_string())
    }
}

pub(crate) fn noise(seed: &str, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    blake3::Hasher::new().update(seed.as_bytes()).finalize_xof().fill(&mut noise);
    noise
}

pub(crate) fn with_receivers(receivers: usize) -> SendOptions {
    SendOptions {
        listen: "127.0.0.1:0".parse().expect("an address"),
        start: StartWhen { receivers: Some(receivers), after: None },
        patience: Duration::from_secs(60),
        ..SendOptions::default()
    }
}

pub(crate) fn offered(bytes: usize, options: SendOptions) -> (Places, Sending) {
    let places = Places::new();
    let file = places.file("data", bytes);
    let sending = open(&[&file], options);
    (places, sending)
}

pub(crate) fn open(paths: &[&Path], options: SendOptions) -> Sending {
    let sources = paths.iter().map(|path| Source::Path(path.to_path_buf())).collect();
    Sending::open(sources, options).expect("it can be sent")
}

pub(crate) fn into(places: &Places, receiver: usize) -> ReceiveOptions {
    ReceiveOptions {
        name: format!("receiver {receiver}"),
        listen: "127.0.0.1:0".parse().expect("an address"),
        settle: Duration::from_millis(20),
        patience: Duration::from_secs(60),
        ..ReceiveOptions::new(places.folder(receiver))
    }
}

pub(crate) fn receive(
    offer: &Offer,
    listeners: &Listeners,
    options: ReceiveOptions,
) -> Arc<Receiving> {
    let receiving = Arc::new(Receiving::start(offer, options).expect("it can be received"));
    listeners.lock().expect("no test panics with it").push(Some(Arc::clone(&receiving)));
    receiving
}

pub(crate) fn run(sending: Sending, mut wire: Wire) -> JoinHandle<Result<Summary, SendError>> {
    std::thread::spawn(move || sending.run(&mut wire))
}

pub(crate) fn finish(sending: Sending, wire: Wire) -> Summary {
    run(sending, wire).join().expect("no panic").expect("it is sent")
}

pub(crate) fn assert_received(places: &Places, receiver: usize, bytes: usize) {
    let found = fs::read(places.folder(receiver).join("data")).expect("it is there");
    assert_eq!(blake3::hash(&found), blake3::hash(&noise("data", bytes)));
}

pub(crate) fn send_to(places: &Places, paths: &[&Path], wire: Wire, receivers: usize) -> Summary {
    let sending = open(paths, with_receivers(receivers));
    let receive = |at| receive(sending.offer(), &wire.listeners, into(places, at));
    let receiving: Vec<_> = (0..receivers).map(receive).collect();
    let summary = finish(sending, wire);
    for receiving in receiving {
        let received = receiving.wait().expect("it is received");
        assert!(received.sender_knows);
    }
    summary
}

pub(crate) fn send_also_to(sending: Sending, options: ReceiveOptions) -> Summary {
    let wire = Wire::whole();
    receive(sending.offer(), &wire.listeners, options);
    finish(sending, wire)
}

pub(crate) fn failure<'a>(summary: &'a Summary, name: &str) -> &'a str {
    let State::Failed(reason) = &row(summary, name).state else { panic!("{summary:?}") };
    reason
}

pub(crate) fn row<'a>(summary: &'a Summary, name: &str) -> &'a ReceiverRow {
    summary.receivers.iter().find(|row| row.name == name).expect("it is in the summary")
}

pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within a minute: {what}");
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).into_iter().flatten();
    let names = names.map(|entry| entry.expect("it can be read").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
