use std::time::{Duration, Instant};

use carom_proto::membership::service::PartitionState;
use carom_proto::membership::service::server::{Commit, CommitId};

use super::*;
use crate::embedded::tests::Disk;

#[test]
fn store_that_is_damaged_while_it_serves_ends_the_process() {
    let config = ServerConfig::default();
    let (disk, partitions) = (Disk::of_bytes(64 << 20), config.partitions);
    let breaks = disk.clone();
    let store = EmbeddedStore::on(move || disk.clone(), &config.cluster, partitions);
    let store = store.expect("it opens");
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let options = Options { listen: any_port, http: None, ..Options::new("") };
    let parts = ProcessParts::new(config, &options).expect("an address");
    let (sender, reports) = mpsc::channel(REPORTS);
    let mut writer = Writer::start(store, partitions, parts.address, sender).expect("it is sound");
    breaks.break_down();
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
