use core::hash::Hasher;

use carom_proto::Time;
use siphasher::sip::SipHasher13;

use crate::ids::HostIx;

#[derive(Clone, Debug)]
pub(crate) struct HistoryHash(SipHasher13);

impl HistoryHash {
    pub(crate) fn new() -> Self {
        Self(SipHasher13::new())
    }

    pub(crate) fn add(&mut self, now: Time, kind: u8, host: HostIx, bytes: &[u8]) {
        self.0.write_u64(now.0);
        self.0.write_u64(u64::from(kind) << 32 | u64::from(host.0));
        self.0.write_u64(bytes.len() as u64);
        self.0.write(bytes);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.0.finish()
    }
}
