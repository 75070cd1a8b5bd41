use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

/// The label at the start of a message, from which the rest of the message is derived.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 4 | number of the publisher |
/// | 4 | 4 | number of the group |
/// | 8 | 4 | counter of the publisher in the group |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) publisher: u32,
    pub(crate) group: u32,
    pub(crate) counter: u32,
}

impl Label {
    pub(crate) const BYTES: usize = 12;

    pub(crate) fn message(self, bytes: usize) -> Vec<u8> {
        let mut message = Vec::with_capacity(bytes.max(Self::BYTES));
        for field in [self.publisher, self.group, self.counter] {
            message.extend_from_slice(&field.to_be_bytes());
        }
        let filler = self.filler();
        while message.len() < bytes {
            let rest = bytes - message.len();
            message.extend_from_slice(&filler[..rest.min(filler.len())]);
        }
        message
    }

    pub(crate) fn of(message: &[u8]) -> Option<Self> {
        let (fields, rest) = message.split_at_checked(Self::BYTES)?;
        let field = |at: usize| Some(u32::from_be_bytes(*fields.get(at..)?.first_chunk()?));
        let label = Self { publisher: field(0)?, group: field(4)?, counter: field(8)? };
        let filler = label.filler();
        let intact = rest.chunks(filler.len()).all(|chunk| *chunk == filler[..chunk.len()]);
        intact.then_some(label)
    }

    fn filler(self) -> [u8; 8] {
        let mixed = u64::from(self.publisher) << 48 ^ u64::from(self.group) << 32;
        (mixed ^ u64::from(self.counter)).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
    }
}

/// The message counters that one member of one group has received, by publisher.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    seen: BTreeMap<u32, FixedBitSet>,
}

impl Ledger {
    pub(crate) fn note(&mut self, publisher: u32, counter: u32) -> bool {
        let (seen, counter) = (self.seen.entry(publisher).or_default(), counter as usize);
        let is_new = !seen.contains(counter);
        seen.grow_and_insert(counter);
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_tells_its_label_and_shows_any_damage() {
        let label = Label { publisher: 7, group: 31, counter: 123_456 };
        for bytes in [12, 13, 20, 1024] {
            let message = label.message(bytes);
            assert_eq!(message.len(), bytes);
            assert_eq!(Label::of(&message), Some(label));
            for place in Label::BYTES..bytes {
                let mut damaged = message.clone();
                damaged[place] ^= 0x10;
                assert_eq!(Label::of(&damaged), None, "byte {place} of {bytes}");
            }
        }
        assert_eq!(Label::of(&[0; 11]), None);
    }

    #[test]
    fn every_message_is_new_once_for_each_publisher() {
        let mut ledger = Ledger::default();
        for publisher in [0, 9] {
            for counter in [0, 63, 64, 1_000] {
                assert!(ledger.note(publisher, counter));
                assert!(!ledger.note(publisher, counter));
            }
        }
    }
}
