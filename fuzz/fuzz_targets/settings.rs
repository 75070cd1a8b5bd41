//! Fuzz target: arbitrary bytes as the settings of a group. Decoding must not panic. Decoded
//! settings must be within their bounds and re-encode to the same bytes.
#![no_main]

use carom_proto::codec::Field as _;
use carom_proto::settings::SETTINGS_BYTES;
use carom_proto::{GroupSettings, Profile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut rest = bytes;
    let Ok(settings) = GroupSettings::take(&mut rest) else { return };
    assert_eq!(rest.len(), bytes.len() - SETTINGS_BYTES);
    if let Profile::TimeCritical(rate) = settings.profile {
        assert!(rate.validate().is_ok(), "settings out of bounds were accepted");
    }
    assert_eq!(settings.to_bytes(), bytes[..SETTINGS_BYTES], "encoding has changed the settings");
});
