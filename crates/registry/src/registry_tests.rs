use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carom_proto::membership::service::PartitionState;
use carom_proto::membership::service::server::{Commit, CommitId};
use redb::StorageBackend;
use redb::backends::InMemoryBackend;

use super::*;

/// Storage whose `sync_data` panics, like a damaged database, once it is broken.
#[derive(Debug)]
struct Breakable(InMemoryBackend, Arc<AtomicBool>);

impl StorageBackend for Breakable {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        assert!(!self.1.load(Ordering::Relaxed), "the database panics");
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }
}

#[test]
fn store_that_is_damaged_while_it_serves_ends_the_process() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let config = ServerConfig::default();
    let (breaks, partitions) = (Arc::clone(&is_broken), config.partitions);
    let disk = move || Breakable(InMemoryBackend::new(), Arc::clone(&breaks));
    let store = EmbeddedStore::on(disk, &config.cluster, partitions).expect("it opens");
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let parts = ProcessParts::new(config, any_port, None, None, Some(7)).expect("an address");
    let (sender, reports) = mpsc::channel(REPORTS);
    let mut writer = Writer::start(store, partitions, parts.address, sender).expect("it is sound");
    is_broken.store(true, Ordering::Relaxed);
    let commit = Commit { id: CommitId(1), partition: 0, after: 0, changes: Vec::new() };
    writer.commit(commit, &PartitionState::default());
    let registry = parts.launch(writer, reports).expect("it serves");
    let give_up = Instant::now() + Duration::from_secs(30);
    while !registry.has_ended() {
        assert!(Instant::now() < give_up, "it serves without a store");
        thread::sleep(Duration::from_millis(5));
    }
    let error = registry.stop().expect_err("it has no store");
    assert!(matches!(error, RegistryError::Store(StoreError::Damaged { .. })), "{error:?}");
    assert!(error.fix().contains("--new-store"), "{}", error.fix());
}
