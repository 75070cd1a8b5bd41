use alloc::vec::Vec;

use bytes::Bytes;

use crate::codec::Field;
use crate::ring::RequestId;
use crate::rmp::seen::MAX_WAITING;

/// Header before the payload of a request or reply.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 1 | 1 request, 2 reply, 3 notice that a caller outside the ring has its reply |
/// | 1 | 4 | number of the request |
/// | 5 | 4 | request: the smallest number that the caller still waits for |
/// | 5 | 8 | reply or notice: the caller |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Envelope {
    Request { number: u32, oldest: u32 },
    Reply(RequestId),
    Answered(RequestId),
}

pub(crate) const ENVELOPE_BYTES: usize = 13;

crate::fields! {
    RequestId { number, caller };
}

crate::variants! {
    Envelope {
        1 => Request { number, oldest },
        2 => Reply(id),
        3 => Answered(id),
    } if |envelope| match envelope {
        Envelope::Request { number, oldest } => number.wrapping_sub(*oldest) < MAX_WAITING,
        _ => true,
    };
}

impl Envelope {
    pub(crate) fn wrap(self, payload: &[u8]) -> Bytes {
        let mut out = Vec::with_capacity(ENVELOPE_BYTES + payload.len());
        (self, payload).put(&mut out);
        out.into()
    }

    pub(crate) fn open(message: Bytes) -> Option<(Self, Bytes)> {
        let mut payload = &message[..];
        let envelope = Self::take(&mut payload).ok()?;
        Some((envelope, message.slice_ref(payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn opened_envelope_equals_the_wrapped_one() {
        let id = RequestId { caller: NodeId(7), number: 3 };
        let request = Envelope::Request { number: 3, oldest: u32::MAX - 40 };
        for envelope in [request, Envelope::Reply(id), Envelope::Answered(id)] {
            let whole = envelope.wrap(b"what");
            assert_eq!(Envelope::open(whole.clone()), Some((envelope, Bytes::from("what"))));
            assert_eq!(Envelope::open(whole.slice(..5)), None);
        }
        assert_eq!(Envelope::open(Bytes::from_static(&[9; 20])), None);
        for oldest in [4, 1 << 31, 3_u32.wrapping_sub(MAX_WAITING)] {
            let request = Envelope::Request { number: 3, oldest };
            assert_eq!(Envelope::open(request.wrap(b"what")), None, "{oldest}");
        }
    }
}
