//! Encoding of frames.

use bytes::BufMut;

use super::{
    Frame, Hello, JoinRefusal, MAGIC, MAX_FRAME_BYTES, Owners, Refusal, Role, Unserved, VERSION,
};
use crate::membership::service::protocol::fields::put_text;
use crate::{GroupId, wire};

impl Frame {
    /// Appends the frame to `out`, starting with its length.
    ///
    /// # Panics
    /// The frame is larger than [`MAX_FRAME_BYTES`]. The creator of a frame must keep to its
    /// limits.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u32(0);
        out.put_u8(self.kind());
        self.encode_fields(out);
        let length = out.len() - start - 4;
        assert!(length <= MAX_FRAME_BYTES, "a frame of {length} bytes");
        out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    }

    pub(super) fn kind(&self) -> u8 {
        match self {
            Self::Hello(_) => 1,
            Self::Welcome(_) => 2,
            Self::Refused(_) => 3,
            Self::Join { .. } => 4,
            Self::Joined { .. } => 5,
            Self::JoinRefused { .. } => 6,
            Self::Leave { .. } => 7,
            Self::Left { .. } => 8,
            Self::Resync { .. } => 9,
            Self::Unchanged { .. } => 10,
            Self::Snapshot(_) => 11,
            Self::Update(_) => 12,
            Self::Alive => 13,
            Self::Owners(_) => 14,
            Self::Expired { .. } => 15,
            Self::Goodbye => 16,
            Self::Elsewhere { .. } => 17,
            Self::Report { .. } => 18,
            Self::Watch(_) => 19,
            Self::Successor { .. } => 20,
            Self::Observe { .. } => 21,
            Self::Observed { .. } => 22,
            Self::Manage(_) => 23,
            Self::Managed(_) => 24,
        }
    }

    fn encode_fields(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.encode(out),
            Self::Welcome(welcome) => {
                out.put_u16(VERSION);
                out.put_u64(welcome.process);
                out.put_u32(welcome.lease_ms);
                welcome.owners.encode(out);
            }
            Self::Refused(refusal) => refusal.encode(out),
            Self::Join { request, group, settings } => {
                put_request(out, *request, *group);
                settings.encode(out);
            }
            Self::Joined { request, group, version } => {
                put_request(out, *request, *group);
                out.put_u64(*version);
            }
            Self::JoinRefused { request, group, why } => {
                put_request(out, *request, *group);
                why.encode(out);
            }
            Self::Leave { request, group }
            | Self::Left { request, group }
            | Self::Elsewhere { request, group } => put_request(out, *request, *group),
            Self::Resync { group, have: version } | Self::Unchanged { group, version } => {
                out.put_u32(group.0);
                out.put_u64(*version);
            }
            Self::Alive | Self::Goodbye => {}
            Self::Owners(owners) => owners.encode(out),
            Self::Expired { incarnation } => out.put_u32(*incarnation),
            Self::Observe { group } => out.put_u32(group.0),
            Self::Observed { partition } => out.put_u16(*partition),
            Self::Manage(bytes) | Self::Managed(bytes) => out.put_slice(bytes),
            Self::Report { node, incarnation, silent_ms } => {
                out.put_u64(node.0);
                out.put_u32(*incarnation);
                out.put_u32(*silent_ms);
            }
            Self::Snapshot(_) | Self::Update(_) | Self::Watch(_) | Self::Successor { .. } => {
                self.encode_lists(out);
            }
        }
    }

    fn encode_lists(&self, out: &mut Vec<u8>) {
        match self {
            Self::Snapshot(snapshot) => {
                out.put_u32(snapshot.group.0);
                out.put_u64(snapshot.version);
                out.put_u8(u8::from(snapshot.more));
                snapshot.settings.encode(out);
                out.put_u32(snapshot.members.len() as u32);
                snapshot.members.iter().for_each(|member| member.encode(out));
            }
            Self::Update(update) => {
                out.put_u32(update.group.0);
                out.put_u64(update.after);
                out.put_u64(update.version);
                out.put_u32(update.changes.len() as u32);
                for change in &update.changes {
                    out.put_u8(change.kind as u8);
                    change.member.encode(out);
                }
            }
            Self::Watch(nodes) => {
                out.put_u32(nodes.len() as u32);
                for node in nodes {
                    out.put_u8(u8::from(node.watched));
                    node.member.encode(out);
                }
            }
            Self::Successor { next, within_ms } => {
                out.put_u32(*within_ms);
                out.put_u32(u32::from(next.is_some()));
                next.iter().for_each(|member| member.encode(out));
            }
            _ => unreachable!("the other frames have no list"),
        }
    }
}

fn put_request(out: &mut Vec<u8>, request: u32, group: GroupId) {
    out.put_u32(request);
    out.put_u32(group.0);
}

impl Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(MAGIC);
        out.put_u16(VERSION);
        out.put_u8(match self.role {
            Role::Node => 1,
            Role::Detector => 2,
            Role::Observer => 3,
        });
        put_text(out, &self.cluster);
        self.member.encode(out);
        put_text(out, &self.rack);
    }
}

impl Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Version { ours, theirs } => {
                out.put_u8(1);
                out.put_u16(*ours);
                out.put_u16(*theirs);
            }
            Self::Cluster { ours } => {
                out.put_u8(2);
                put_text(out, ours);
            }
            Self::Full => out.put_u8(3),
            Self::Nonsense => out.put_u8(4),
        }
    }
}

impl JoinRefusal {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Contradiction { existing, given, by } => {
                out.put_u8(1);
                existing.encode(out);
                given.encode(out);
                out.put_u64(by.0);
            }
            Self::Unserved(why) => out.put_u8(match why {
                Unserved::StoreFull => 2,
                Unserved::StoreFailed => 3,
                Unserved::TooManyGroups => 4,
                Unserved::TooManyMembers => 5,
                Unserved::Busy => 6,
                Unserved::Settings => 7,
            }),
        }
    }
}

impl Owners {
    fn encode(&self, out: &mut Vec<u8>) {
        out.put_u16(self.partitions);
        out.put_u32(self.owned.len() as u32);
        for (partition, owner) in &self.owned {
            out.put_u16(*partition);
            wire::put_endpoint(out, *owner);
        }
    }
}
