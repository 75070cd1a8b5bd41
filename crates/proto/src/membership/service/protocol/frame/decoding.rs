//! Decoding of frames. Exactly the frames that can be encoded are accepted.

use super::super::fields::{
    ENDPOINT_BYTES, MEMBER_BYTES, take_count, take_endpoint, take_flag, take_group, take_node,
    take_settings, take_text, take_u8, take_u16, take_u32, take_u64,
};
use super::{
    ChangeKind, Frame, FrameError, Hello, JoinRefusal, MAGIC, MAX_PARTITIONS, Member, MemberChange,
    Owners, Refusal, Role, Snapshot, UnknownSettings, Unserved, Update, VERSION, Watched, Welcome,
};
use crate::GroupId;

impl Frame {
    /// Decodes one frame from its kind and fields, without the length before them.
    ///
    /// # Errors
    /// The bytes are not a valid frame.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, FrameError> {
        let kind = take_u8(&mut bytes)?;
        match Self::decode_fields(kind, &mut bytes) {
            Ok(_) | Err(FrameError::Settings(_)) if !bytes.is_empty() => Err(FrameError::Length),
            decoded => decoded,
        }
    }

    fn decode_fields(kind: u8, bytes: &mut &[u8]) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Self::Hello(Hello::decode(bytes)?),
            2 => Self::Welcome(Welcome::decode(bytes)?),
            3 => Self::Refused(Refusal::decode(bytes)?),
            4 => {
                let (request, group) = take_request(bytes)?;
                let unknown = FrameError::Settings(UnknownSettings::Join { request, group });
                Self::Join { request, group, settings: take_settings(bytes)?.ok_or(unknown)? }
            }
            5 => {
                let (request, group) = take_request(bytes)?;
                Self::Joined { request, group, version: take_u64(bytes)? }
            }
            6 => {
                let (request, group) = take_request(bytes)?;
                let unknown = UnknownSettings::JoinRefused { request, group };
                let why = JoinRefusal::decode(bytes)?.ok_or(FrameError::Settings(unknown))?;
                Self::JoinRefused { request, group, why }
            }
            7 => {
                let (request, group) = take_request(bytes)?;
                Self::Leave { request, group }
            }
            8 => {
                let (request, group) = take_request(bytes)?;
                Self::Left { request, group }
            }
            9 => Self::Resync { group: take_group(bytes)?, have: take_u64(bytes)? },
            10 => Self::Unchanged { group: take_group(bytes)?, version: take_u64(bytes)? },
            11 => Self::Snapshot(Snapshot::decode(bytes)?),
            12 => Self::Update(Update::decode(bytes)?),
            13 => Self::Alive,
            14 => Self::Owners(Owners::decode(bytes)?),
            15 => Self::Expired { incarnation: take_u32(bytes)? },
            16 => Self::Goodbye,
            17 => {
                let (request, group) = take_request(bytes)?;
                Self::Elsewhere { request, group }
            }
            18 => {
                let (node, incarnation) = (take_node(bytes)?, take_u32(bytes)?);
                Self::Report { node, incarnation, silent_ms: take_u32(bytes)? }
            }
            19 => Self::Watch(take_list(bytes, 1 + MEMBER_BYTES, |bytes| {
                Ok(Watched { watched: take_flag(bytes)?, member: Member::decode(bytes)? })
            })?),
            20 => {
                let within_ms = take_u32(bytes)?;
                let next = match take_list(bytes, MEMBER_BYTES, Member::decode)?[..] {
                    [] => None,
                    [member] => Some(member),
                    _ => return Err(FrameError::Value),
                };
                Self::Successor { next, within_ms }
            }
            21 => Self::Observe { group: GroupId(take_u32(bytes)?) },
            22 => Self::Observed { partition: take_u16(bytes)? },
            23 => Self::Manage(core::mem::take(bytes).to_vec()),
            24 => Self::Managed(core::mem::take(bytes).to_vec()),
            _ => return Err(FrameError::Kind),
        })
    }
}

impl Hello {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        if take_u32(bytes)? != MAGIC {
            return Err(FrameError::Magic);
        }
        take_version(bytes)?;
        let role = match take_u8(bytes)? {
            1 => Role::Node,
            2 => Role::Detector,
            3 => Role::Observer,
            _ => return Err(FrameError::Value),
        };
        let cluster = take_text(bytes)?;
        let member = Member::decode(bytes)?;
        Ok(Self { role, cluster, member, rack: take_text(bytes)? })
    }
}

impl Welcome {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        take_version(bytes)?;
        let (process, lease_ms) = (take_u64(bytes)?, take_u32(bytes)?);
        if lease_ms == 0 {
            return Err(FrameError::Value);
        }
        Ok(Self { process, lease_ms, owners: Owners::decode(bytes)? })
    }
}

impl Refusal {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        Ok(match take_u8(bytes)? {
            1 => Self::Version { ours: take_u16(bytes)?, theirs: take_u16(bytes)? },
            2 => Self::Cluster { ours: take_text(bytes)? },
            3 => Self::Full,
            4 => Self::Nonsense,
            _ => return Err(FrameError::Value),
        })
    }
}

impl JoinRefusal {
    /// Decodes a refusal, or returns `None` if it has settings that this program does not know.
    fn decode(bytes: &mut &[u8]) -> Result<Option<Self>, FrameError> {
        let unserved = match take_u8(bytes)? {
            1 => {
                let settings = (take_settings(bytes)?, take_settings(bytes)?);
                let by = take_node(bytes)?;
                let (Some(existing), Some(given)) = settings else { return Ok(None) };
                return Ok(Some(Self::Contradiction { existing, given, by }));
            }
            2 => Unserved::StoreFull,
            3 => Unserved::StoreFailed,
            4 => Unserved::TooManyGroups,
            5 => Unserved::TooManyMembers,
            6 => Unserved::Busy,
            7 => Unserved::Settings,
            _ => return Err(FrameError::Value),
        };
        Ok(Some(Self::Unserved(unserved)))
    }
}

impl Snapshot {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let (group, version, more) = (take_group(bytes)?, take_u64(bytes)?, take_flag(bytes)?);
        let settings = take_settings(bytes)?;
        let members = take_list(bytes, MEMBER_BYTES, Member::decode)?;
        let unknown = FrameError::Settings(UnknownSettings::Snapshot { group });
        let settings = settings.ok_or(unknown)?;
        Ok(Self { group, version, more, settings, members })
    }
}

impl Update {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let (group, after, version) = (take_group(bytes)?, take_u64(bytes)?, take_u64(bytes)?);
        if after >= version {
            return Err(FrameError::Value);
        }
        let changes = take_list(bytes, 1 + MEMBER_BYTES, |bytes| {
            let kind = ChangeKind::from_wire(take_u8(bytes)?)?;
            Ok(MemberChange { kind, member: Member::decode(bytes)? })
        })?;
        Ok(Self { group, after, version, changes })
    }
}

impl ChangeKind {
    /// Returns the kind with this number.
    ///
    /// # Errors
    /// There is none.
    pub fn from_wire(kind: u8) -> Result<Self, FrameError> {
        Ok(match kind {
            1 => Self::Joined,
            2 => Self::Left,
            3 => Self::Failed,
            4 => Self::Hidden,
            _ => return Err(FrameError::Value),
        })
    }
}

impl Owners {
    fn decode(bytes: &mut &[u8]) -> Result<Self, FrameError> {
        let partitions = take_u16(bytes)?;
        if partitions == 0 || partitions > MAX_PARTITIONS {
            return Err(FrameError::Value);
        }
        let owned = take_list(bytes, 2 + ENDPOINT_BYTES, |bytes| {
            Ok((take_u16(bytes)?, take_endpoint(bytes)?))
        })?;
        let in_order = owned.is_sorted_by(|(a, _), (b, _)| a < b);
        let in_range = owned.last().is_none_or(|(partition, _)| *partition < partitions);
        if in_order && in_range { Ok(Self { partitions, owned }) } else { Err(FrameError::Value) }
    }
}

fn take_version(bytes: &mut &[u8]) -> Result<(), FrameError> {
    match take_u16(bytes)? {
        VERSION => Ok(()),
        given => Err(FrameError::Version { given }),
    }
}

fn take_request(bytes: &mut &[u8]) -> Result<(u32, GroupId), FrameError> {
    Ok((take_u32(bytes)?, take_group(bytes)?))
}

/// Decodes a list whose elements have at least `each` bytes.
fn take_list<T>(
    bytes: &mut &[u8],
    each: usize,
    mut take: impl FnMut(&mut &[u8]) -> Result<T, FrameError>,
) -> Result<Vec<T>, FrameError> {
    let count = take_count(bytes, each)?;
    (0..count).map(|_| take(bytes)).collect()
}
