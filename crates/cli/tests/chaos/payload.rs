//! The content of a message: its name, and bytes derived from it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::record::Process;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
pub(crate) struct Payload {
    pub(crate) host: u32,
    pub(crate) start: u32,
    pub(crate) number: u64,
}

impl Payload {
    pub(crate) fn sender(self) -> Process {
        Process { host: self.host, start: self.start }
    }

    /// Returns the bytes of the message. Most are small; every 16th one needs several packets.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let name = format!("{} {} {} ", self.host, self.start, self.number);
        let mix = self.mix();
        let size = match self.number % 16 {
            0 => 2_000 + mix % 20_000,
            _ => 40 + mix % 400,
        };
        let filler = name.bytes().cycle().zip(0_u64..);
        let filler = filler.map(|(byte, at)| byte ^ (mix.rotate_left(at as u32 % 64) as u8));
        let rest = (size as usize).saturating_sub(name.len());
        name.bytes().chain(filler.take(rest)).collect()
    }

    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let mut words = bytes.splitn(4, |byte| *byte == b' ');
        let mut next = || std::str::from_utf8(words.next()?).ok();
        let host = next()?.parse().ok()?;
        let start = next()?.parse().ok()?;
        let number = next()?.parse().ok()?;
        let name = Self { host, start, number };
        (name.bytes() == bytes).then_some(name)
    }

    fn mix(self) -> u64 {
        let seed = (u64::from(self.host) << 48) ^ (u64::from(self.start) << 32) ^ self.number;
        seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11
    }
}

impl fmt::Display for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{} of {}", self.number, self.sender())
    }
}
