use std::net::SocketAddr;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::frame::plain_text;
use crate::id::TransferId;
use crate::limits::{MAX_ADDRESSES, MAX_OFFER_BYTES, MAX_TEXT_BYTES};

/// First bytes of an encoded offer: its kind and version.
const MAGIC: [u8; 4] = *b"CFO1";

/// The announcement of a transfer. It fits in one datagram.
///
/// The application multicasts the offer repeatedly for the duration of the transfer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Id of the transfer.
    pub id: TransferId,
    /// Addresses of the sender. A receiver uses the first address that accepts a connection.
    pub addresses: Vec<SocketAddr>,
    /// Name for display: the first source, and the number of further sources.
    pub name: String,
    /// Total size of all files, in bytes, including holes.
    pub total_bytes: u64,
    /// Number of files, directories and symlinks.
    pub entries: u32,
}

/// The error for bytes that are not an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the bytes are not an offer")]
pub struct NoOffer;

impl Offer {
    /// Encodes the offer in at most [`MAX_OFFER_BYTES`] bytes.
    ///
    /// # Panics
    /// Panics if there are too many addresses or the name is too long.
    pub fn encode(&self) -> Bytes {
        assert!(self.is_bounded(), "an offer has few addresses and a short name");
        let encoded = postcard::to_extend(self, MAGIC.to_vec()).expect("a Vec never fails");
        assert!(encoded.len() <= MAX_OFFER_BYTES, "an offer within its bounds fits in a datagram");
        encoded.into()
    }

    /// Decodes an offer. Replaces control characters in the name, which could move a terminal's
    /// cursor.
    ///
    /// # Errors
    /// Returns [`NoOffer`] if the bytes are not a valid offer.
    pub fn decode(bytes: &[u8]) -> Result<Self, NoOffer> {
        if bytes.len() > MAX_OFFER_BYTES {
            return Err(NoOffer);
        }
        let rest = bytes.strip_prefix(&MAGIC).ok_or(NoOffer)?;
        let (offer, rest): (Self, _) = postcard::take_from_bytes(rest).map_err(|_| NoOffer)?;
        let is_whole = rest.is_empty() && offer.is_bounded();
        is_whole.then(|| Self { name: plain_text(&offer.name), ..offer }).ok_or(NoOffer)
    }

    fn is_bounded(&self) -> bool {
        self.addresses.len() <= MAX_ADDRESSES && self.name.len() <= MAX_TEXT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn largest() -> Offer {
        Offer {
            id: TransferId([0xFF; 32]),
            addresses: vec![SocketAddr::from(([0xFFFF; 8], u16::MAX)); MAX_ADDRESSES],
            name: "n".repeat(MAX_TEXT_BYTES),
            total_bytes: u64::MAX,
            entries: u32::MAX,
        }
    }

    #[test]
    fn the_largest_offer_fits_a_datagram_and_is_read_again() {
        let encoded = largest().encode();
        assert!(encoded.len() <= MAX_OFFER_BYTES);
        assert_eq!(Offer::decode(&encoded), Ok(largest()));
    }

    #[test]
    fn a_name_that_is_read_moves_no_cursor() {
        let offer = Offer { name: "a\u{1b}[2J\r\u{9b}1A\u{fc}".to_owned(), ..largest() };
        let read = Offer::decode(&offer.encode()).expect("it is an offer");
        assert_eq!(read.name, "a\u{fffd}[2J\u{fffd}\u{fffd}1A\u{fc}");
    }

    proptest! {
        #[test]
        fn bytes_that_are_no_offer_are_refused(mut bytes: Vec<u8>, begins: bool) {
            if begins {
                bytes.splice(0..0, MAGIC);
            }
            if let Ok(offer) = Offer::decode(&bytes) {
                prop_assert!(offer.is_bounded());
            }
        }

        #[test]
        fn what_follows_an_offer_makes_it_none(tail in prop::collection::vec(any::<u8>(), 1..9)) {
            let bytes = [&largest().encode()[..], &tail].concat();
            prop_assert_eq!(Offer::decode(&bytes), Err(NoOffer));
        }
    }
}
