//! Fuzz target: arbitrary bytes as a manifest, an offer, a block and a frame. Decoding must not
//! panic. Decoded values must be within their bounds and survive encoding and decoding.
#![no_main]

use carom_files::frame::{self, FromReceiver, FromSender, Opening, PieceAnswer};
use carom_files::{Block, MAX_FRAME_BYTES, Manifest, Offer, PieceSet, TransferId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(manifest) = Manifest::decode(bytes) {
        for piece in 0..manifest.pieces() {
            let place = manifest.place(piece).expect("the piece exists");
            assert!(place.bytes > 0 && place.bytes <= manifest.piece_bytes());
        }
        let again = Manifest::decode(&manifest.encode());
        assert_eq!(again, Ok(manifest), "encoding keeps the value");
    }
    if let Ok(offer) = Offer::decode(bytes) {
        assert_eq!(Offer::decode(&offer.encode()), Ok(offer), "encoding keeps the value");
    }
    if let Some(block) = Block::decode(&bytes.to_vec().into()) {
        let mut id = TransferId([0; 32]);
        id.0[..16].copy_from_slice(&block.tag);
        let again = Block::encode(&id, block.piece, block.offset, &block.data);
        assert_eq!(again, bytes, "encoding keeps the bytes");
    }
    let _ = PieceSet::from_bytes(bytes, 8 * bytes.len() as u32);
    // A wrong length hides the rest, so each input is also tried with a valid length.
    let framed = [&(bytes.len() as u32).to_be_bytes(), bytes].concat();
    let _ = frame::read::<Opening>(&mut &framed[..], MAX_FRAME_BYTES);
    let _ = frame::read::<FromReceiver>(&mut &framed[..], MAX_FRAME_BYTES);
    let _ = frame::read::<FromSender>(&mut &framed[..], MAX_FRAME_BYTES);
    let _ = frame::read::<PieceAnswer>(&mut &framed[..], MAX_FRAME_BYTES);
    let _ = frame::read::<FromSender>(&mut &bytes[..], MAX_FRAME_BYTES);
});
