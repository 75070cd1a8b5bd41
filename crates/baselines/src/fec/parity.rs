//! Reed-Solomon parity of sets of symbols, over shards of equal length.
//!
//! A shard is the length of a symbol in 2 bytes, the symbol, and zeros up to a common even length.

use bytes::Bytes;
use carom_proto::SeqNo;
use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

use super::packet::Set;
use crate::block::Block;

pub(crate) const LENGTH_BYTES: usize = 2;

#[derive(Debug)]
pub(super) struct PendingSet {
    pub(super) set: Set,
    shard_bytes: usize,
    shards: Vec<(u8, Bytes)>,
}

/// Computes the `count` parity shards of these symbols.
///
/// # Panics
/// Panics if there are no symbols, if `count` is 0, or if there are more symbols or shards than the
/// code supports. The limits of the configuration are far below that.
pub(super) fn parity_of(blocks: &[Block], count: u8) -> Vec<Vec<u8>> {
    let longest = blocks.iter().map(|block| block.bytes().len()).max().unwrap_or(0);
    let shard_bytes = (LENGTH_BYTES + longest).next_multiple_of(2);
    let (data, parity) = (blocks.len(), usize::from(count));
    let mut encoder = ReedSolomonEncoder::new(data, parity, shard_bytes)
        .expect("the numbers of shards are bounded and the length is even");
    for block in blocks {
        let shard = shard_of(block, shard_bytes);
        encoder.add_original_shard(shard).expect("the shards have the announced number and length");
    }
    let encoded = encoder.encode().expect("all shards were added");
    encoded.recovery_iter().map(<[u8]>::to_vec).collect()
}

impl PendingSet {
    pub(super) fn new(set: Set, shard_bytes: usize) -> Self {
        Self { set, shard_bytes, shards: Vec::new() }
    }

    pub(super) fn fits(&self, set: Set, shard_bytes: usize) -> bool {
        self.set == set && self.shard_bytes == shard_bytes
    }

    pub(super) fn add(&mut self, index: u8, shard: &[u8]) {
        if self.shards.iter().all(|(other, _)| *other != index) {
            self.shards.push((index, Bytes::copy_from_slice(shard)));
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.shards.len() * self.shard_bytes
    }

    pub(super) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Decodes the symbols that `block_of` does not return. Returns `None` if there are too few
    /// usable symbols and shards. An invalid symbol is returned as `Err` with its sequence number.
    pub(super) fn solve<'a>(
        &self,
        block_of: impl Fn(SeqNo) -> Option<&'a Block>,
    ) -> Option<Vec<Result<(SeqNo, Block), SeqNo>>> {
        let known: Vec<Option<&Block>> = self.set.seqnos().map(block_of).collect();
        let there = known.iter().flatten().count();
        if there + self.shards.len() < known.len() {
            return None;
        }
        let counts = (known.len(), usize::from(self.set.parity));
        let mut decoder = ReedSolomonDecoder::new(counts.0, counts.1, self.shard_bytes).ok()?;
        for (place, block) in known.iter().enumerate() {
            // A symbol longer than the shards contradicts them. It is omitted, and decoded again.
            if let Some(block) =
                block.filter(|it| LENGTH_BYTES + it.bytes().len() <= self.shard_bytes)
            {
                decoder.add_original_shard(place, shard_of(block, self.shard_bytes)).ok()?;
            }
        }
        for (index, shard) in &self.shards {
            decoder.add_recovery_shard(usize::from(*index), shard).ok()?;
        }
        let decoded = decoder.decode().ok()?;
        let solved = decoded.restored_original_iter().map(|(place, shard)| {
            let seqno = self.set.first.plus(place as u32);
            block_in(shard).map(|block| (seqno, block)).ok_or(seqno)
        });
        Some(solved.collect())
    }
}

fn shard_of(block: &Block, shard_bytes: usize) -> Vec<u8> {
    let bytes = block.bytes();
    let mut shard = Vec::with_capacity(shard_bytes);
    shard.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
    shard.extend_from_slice(bytes);
    shard.resize(shard_bytes, 0);
    shard
}

/// Returns the symbol in a shard, or `None` if no symbol encodes to this shard.
fn block_in(shard: &[u8]) -> Option<Block> {
    let (length, rest) = shard.split_first_chunk::<LENGTH_BYTES>()?;
    let (block, padding) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    if padding.iter().any(|byte| *byte != 0) {
        return None;
    }
    Block::copy(block).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_proto::Time;

    fn blocks(count: usize) -> Vec<Block> {
        let payload = |number: usize| vec![number as u8; 5 + number * 7];
        (0..count).map(|number| Block::of_message(Time(9), None, &payload(number))).collect()
    }

    fn pending(blocks: &[Block], parity: u8, arrived: &[u8]) -> PendingSet {
        let shards = parity_of(blocks, parity);
        let set = Set { first: SeqNo(u32::MAX), data: blocks.len() as u8, parity };
        let mut pending = PendingSet::new(set, shards[0].len());
        for index in arrived {
            pending.add(*index, &shards[usize::from(*index)]);
            pending.add(*index, &shards[usize::from(*index)]);
        }
        pending
    }

    #[test]
    fn any_r_of_the_r_plus_c_give_back_all_blocks() {
        let blocks = blocks(8);
        for pattern in 0..1_u32 << 8 {
            let lost = pattern.count_ones() as u8;
            if !(1..=5).contains(&lost) {
                continue;
            }
            let arrived: Vec<u8> = (5 - lost..5).collect();
            let pending = pending(&blocks, 5, &arrived);
            assert_eq!(pending.shards(), usize::from(lost));
            let is_lost = |place: usize| pattern & 1 << place != 0;
            let block_of = |seqno: SeqNo| {
                let place = seqno.distance_from(pending.set.first) as usize;
                (!is_lost(place)).then(|| &blocks[place])
            };
            let solved = pending.solve(block_of).expect("enough shards");
            let expected = (0..8).filter(|place| is_lost(*place));
            let expected: Vec<_> = expected
                .map(|place| Ok((pending.set.first.plus(place as u32), blocks[place].clone())))
                .collect();
            assert_eq!(solved, expected);
        }
    }

    #[test]
    fn one_packet_too_few_gives_nothing() {
        let blocks = blocks(4);
        let pending = pending(&blocks, 2, &[1]);
        assert_eq!(pending.solve(|seqno| (seqno.0 == 1).then(|| &blocks[2])), None);
    }

    #[test]
    fn parity_that_was_never_computed_yields_no_block() {
        let set = Set { first: SeqNo(1), data: 1, parity: 1 };
        let mut pending = PendingSet::new(set, 4);
        pending.add(0, &[0xFF; 4]);
        assert_eq!(pending.solve(|_| None), Some(vec![Err(SeqNo(1))]));
    }
}
