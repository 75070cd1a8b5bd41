//! The wire form of group settings.

use alloc::vec::Vec;

use crate::codec::Field;
use crate::ring::Quorum;
use crate::settings::{GroupSettings, Profile, RateOfFire, SETTINGS_BYTES};
use crate::wire::DecodeError;

const TIME_CRITICAL: u8 = 1;
const ORDERED: u8 = 2;
const BULK: u8 = 3;
const GUEST: u8 = 255;

/// `profile` u8, `r` u8, `c` u8, one zero byte, `name_check` u32.
///
/// The fields `r` and `c` are 0 for bulk delivery and guests. In ordered groups,
/// [`Quorum::to_wire`] takes their place.
impl<'a> Field<'a> for GroupSettings {
    fn put(&self, out: &mut Vec<u8>) {
        let (profile, parameters) = match self.profile {
            Profile::TimeCritical(RateOfFire { r, c }) => (TIME_CRITICAL, [r, c]),
            Profile::Ordered(quorum) => (ORDERED, quorum.to_wire().to_be_bytes()),
            Profile::Bulk => (BULK, [0, 0]),
            Profile::Guest => (GUEST, [0, 0]),
        };
        (profile, parameters, 0_u8, self.name_check).put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (profile, [r, c], zero, name_check): (_, _, u8, _) = Field::take(bytes)?;
        let rate = RateOfFire::new(r, c);
        let profile = match profile {
            TIME_CRITICAL if rate.validate().is_ok() => Some(Profile::TimeCritical(rate)),
            ORDERED => Quorum::from_wire(u16::from_be_bytes([r, c])).map(Profile::Ordered),
            BULK if [r, c] == [0, 0] => Some(Profile::Bulk),
            GUEST if [r, c] == [0, 0] => Some(Profile::Guest),
            _ => None,
        };
        match profile {
            Some(profile) if zero == 0 => Ok(Self { profile, name_check }),
            _ => Err(DecodeError::Value),
        }
    }
}

/// Decodes settings like [`Field::take`]. Returns `None` if this program does not support them.
pub(crate) fn take_settings(bytes: &mut &[u8]) -> Result<Option<GroupSettings>, DecodeError> {
    let (mut settings, rest) = bytes.split_at_checked(SETTINGS_BYTES).ok_or(DecodeError::Length)?;
    *bytes = rest;
    Ok(GroupSettings::take(&mut settings).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(r in 1..=32_u8, c: u8, name in ".*") {
            let settings = GroupSettings::new(&name, Profile::TimeCritical(RateOfFire::new(r, c)));
            let bytes = settings.to_bytes();
            prop_assert_eq!(bytes.len(), SETTINGS_BYTES);
            prop_assert_eq!(GroupSettings::take(&mut &bytes[..]), Ok(settings));
        }

        #[test]
        fn an_ordered_group_says_how_many_must_remain(quorum: u16, name in ".*") {
            let settings = |it| GroupSettings::new(&name, Profile::Ordered(it));
            let mut bytes = settings(Quorum::All).to_bytes();
            bytes[1..3].copy_from_slice(&quorum.to_be_bytes());
            let decoded = GroupSettings::take(&mut &bytes[..]);
            prop_assert_eq!(decoded.ok(), Quorum::from_wire(quorum).map(settings));
        }

        #[test]
        fn bulk_delivery_and_a_guest_have_no_parameters_on_the_wire(r: u8, c: u8, name in ".*") {
            for (profile, byte) in [(Profile::Bulk, 3), (Profile::Guest, 255)] {
                let settings = GroupSettings::new(&name, profile);
                let mut bytes = settings.to_bytes();
                prop_assert_eq!(&bytes[..4], &[byte, 0, 0, 0]);
                prop_assert_eq!(GroupSettings::take(&mut &bytes[..]), Ok(settings));
                (bytes[1], bytes[2]) = (r, c);
                prop_assert_eq!(GroupSettings::take(&mut &bytes[..]).is_ok(), (r, c) == (0, 0));
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..16)) {
            let _ = GroupSettings::take(&mut &bytes[..]);
        }
    }
}
