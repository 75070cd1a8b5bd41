//! Wire form of frames. The decoder accepts exactly the frames that can be encoded.

use super::super::fields::{long_list, member_or_none, one_group};
use super::{
    ChangeKind, Frame, FrameError, Hello, JoinRefusal, MAGIC, MAX_FRAME_BYTES, MAX_PARTITIONS,
    Member, MemberChange, Owners, Refusal, Role, Snapshot, UnknownSettings, Unserved, Update,
    VERSION, Watched, Welcome,
};
use crate::NodeId;
use crate::codec::{Field, Variants, rest_bytes};
use crate::settings_codec::take_settings;
use crate::wire::DecodeError;

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const JOIN: u8 = 4;
const JOIN_REFUSED: u8 = 6;
const SNAPSHOT: u8 = 11;
const CONTRADICTION: u8 = 1;

crate::variants! {
    Frame {
        HELLO => Hello(hello),
        WELCOME => Welcome(welcome),
        3 => Refused(refusal),
        JOIN => Join { request, group with one_group, settings },
        5 => Joined { request, group with one_group, version },
        JOIN_REFUSED => JoinRefused { request, group with one_group, why },
        7 => Leave { request, group with one_group },
        8 => Left { request, group with one_group },
        9 => Resync { group with one_group, have },
        10 => Unchanged { group with one_group, version },
        SNAPSHOT => Snapshot(snapshot),
        12 => Update(update),
        13 => Alive,
        14 => Owners(owners),
        15 => Expired { incarnation },
        16 => Goodbye,
        17 => Elsewhere { request, group with one_group },
        18 => Report { node, incarnation, silent_ms },
        19 => Watch(nodes with long_list),
        20 => Successor { within_ms, next with member_or_none },
        21 => Observe { group },
        22 => Observed { partition },
        23 => Manage(request with rest_bytes),
        24 => Managed(answer with rest_bytes),
    };

    Role {
        1 => Node,
        2 => Detector,
        3 => Observer,
    };

    Refusal {
        1 => Version { ours, theirs },
        2 => Cluster { ours },
        3 => Full,
        4 => Nonsense,
    };

    Unserved {
        2 => StoreFull,
        3 => StoreFailed,
        4 => TooManyGroups,
        5 => TooManyMembers,
        6 => Busy,
        7 => Settings,
    };

    ChangeKind {
        1 => Joined,
        2 => Left,
        3 => Failed,
        4 => Hidden,
    };
}

crate::fields! {
    Hello { role, cluster, member, rack };
    Welcome { process, lease_ms, owners } if |welcome| welcome.lease_ms > 0;
    Owners { partitions, owned with long_list } if |owners| {
        let owned = &owners.owned;
        (1..=MAX_PARTITIONS).contains(&owners.partitions)
            && owned.is_sorted_by(|(a, _), (b, _)| a < b)
            && owned.last().is_none_or(|(partition, _)| *partition < owners.partitions)
    };
    Snapshot { group with one_group, version, more, settings, members with long_list };
    Update { group with one_group, after, version, changes with long_list }
        if |update| update.after < update.version;
    MemberChange { kind, member };
    Watched { watched, member };
}

impl<'a> Field<'a> for JoinRefusal {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Contradiction { existing, given, by } => {
                (CONTRADICTION, *existing, *given, *by).put(out);
            }
            Self::Unserved(why) => why.put(out),
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        if bytes.first() != Some(&CONTRADICTION) {
            return Unserved::take(bytes).map(Self::Unserved);
        }
        let (_, existing, given, by) = <(u8, _, _, _)>::take(bytes)?;
        Ok(Self::Contradiction { existing, given, by })
    }
}

impl Frame {
    /// Appends the frame to `out`, starting with its length.
    ///
    /// # Panics
    /// Panics if the frame is larger than [`MAX_FRAME_BYTES`], which its creator must prevent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        (0_u32, self.tag()).put(out);
        match self {
            Self::Hello(_) => (MAGIC, VERSION).put(out),
            Self::Welcome(_) => VERSION.put(out),
            _ => {}
        }
        self.put_fields(out);
        let length = out.len() - start - 4;
        assert!(length <= MAX_FRAME_BYTES, "a frame of {length} bytes");
        out[start..start + 4].copy_from_slice(&(length as u32).to_be_bytes());
    }

    /// Decodes one frame from its kind and fields, without the length before them.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid frame.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, FrameError> {
        let kind = u8::take(&mut bytes)?;
        if kind == HELLO && u32::take(&mut bytes)? != MAGIC {
            return Err(FrameError::Magic);
        }
        if kind == HELLO || kind == WELCOME {
            let given = u16::take(&mut bytes)?;
            if given != VERSION {
                return Err(FrameError::Version { given });
            }
        }
        match Self::take_body(kind, bytes) {
            Err(DecodeError::Value) => Err(unknown_settings(kind, bytes)?),
            decoded => Ok(decoded?),
        }
    }
}

/// Returns the error for a frame that is valid apart from unknown settings.
fn unknown_settings(kind: u8, mut bytes: &[u8]) -> Result<FrameError, DecodeError> {
    let bytes = &mut bytes;
    let unknown = match kind {
        JOIN => {
            let (request, group) = (u32::take(bytes)?, one_group::take(bytes)?);
            take_settings(bytes)?;
            UnknownSettings::Join { request, group }
        }
        JOIN_REFUSED => {
            let (request, group) = (u32::take(bytes)?, one_group::take(bytes)?);
            if u8::take(bytes)? != CONTRADICTION {
                return Err(DecodeError::Value);
            }
            take_settings(bytes)?;
            take_settings(bytes)?;
            NodeId::take(bytes)?;
            UnknownSettings::JoinRefused { request, group }
        }
        SNAPSHOT => {
            let group = one_group::take(bytes)?;
            let (_version, _more): (u64, bool) = Field::take(bytes)?;
            take_settings(bytes)?;
            long_list::take::<Member>(bytes)?;
            UnknownSettings::Snapshot { group }
        }
        _ => return Err(DecodeError::Value),
    };
    if bytes.is_empty() { Ok(FrameError::Settings(unknown)) } else { Err(DecodeError::Length) }
}
