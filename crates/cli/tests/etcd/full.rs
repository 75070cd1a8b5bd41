use serde_json::json;

use carom_proto::NodeId;
use carom_proto::membership::service::Unserved;
use carom_proto::membership::service::frame::JoinRefusal;

use super::PARTITIONS;
use super::cluster::Etcd;
use super::process::start;
use super::raw::{RawNode, group_name};
use super::service::Registry;

const QUOTA: usize = 4 << 20;
const PIECE: usize = 1 << 18;
const GROUPS: u32 = 100;

impl Etcd {
    fn fill(&self) {
        // Key and value are base64.
        let filler = json!({ "key": "ZmlsbGVy", "value": "A".repeat(PIECE) });
        for _ in 0..10 * QUOTA / PIECE {
            if let Err(error) = self.try_ask("kv/put", &filler) {
                assert!(error.contains("database space exceeded"), "{error}");
                return;
            }
        }
        panic!("etcd never ran out of space");
    }

    /// Makes room as an operator would: compacts the history, defragments, and clears the alarm.
    fn make_room(&self) {
        let deleted = self.ask("kv/deleterange", &json!({ "key": "ZmlsbGVy" }));
        let revision = &deleted["header"]["revision"];
        self.ask("kv/compaction", &json!({ "revision": revision, "physical": true }));
        self.ask("maintenance/defragment", &json!({}));
        let member = &deleted["header"]["member_id"];
        let alarm = json!({ "action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE" });
        self.ask("maintenance/alarm", &alarm);
    }
}

#[test]
fn full_etcd_refuses_joins_and_keeps_stored_members() {
    let Some(etcd) = Etcd::start_small(QUOTA) else { return };
    let mut registry = Registry::start_more_patient(&etcd.urls());
    registry.await_owned(PARTITIONS);
    let mut node = RawNode::open(&registry.address, NodeId(0xA11));
    let id = node.id.to_string();
    (0..GROUPS).for_each(|number| assert_eq!(node.join_answered(number), Ok(())));
    let assert_stored = |registry: &Registry| {
        for number in 0..GROUPS {
            assert!(registry.members(&group_name(number)).contains(&id), "group {number}");
        }
    };
    etcd.fill();
    let full = Err(JoinRefusal::Unserved(Unserved::StoreFull));
    assert_eq!(node.join_answered(GROUPS), full);
    let sub = ["sub", "new", "--interface", "127.0.0.1", "--registry", &registry.address];
    start(&sub).assert_refused("its store is full", "");
    assert_stored(&registry);
    assert!(registry.members(&group_name(GROUPS)).is_empty());

    etcd.make_room();
    assert_eq!(node.join_answered(GROUPS), Ok(()));
    registry.running.kill();
    let fresh = Registry::start_patient(&etcd.urls());
    fresh.await_owned(PARTITIONS);
    assert_stored(&fresh);
    assert!(fresh.members(&group_name(GROUPS)).contains(&id));
}
