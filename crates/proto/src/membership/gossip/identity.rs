use crate::codec::Field;
use crate::wire::DecodeError;
use crate::{Endpoint, NodeId};

/// Identity of a node in SWIM.
///
/// A node cannot revoke a wrong declaration of its death. The node comes back with a larger `bump`,
/// and all nodes treat it as the same node.
///
/// | offset | bytes | field | meaning |
/// |---|---|---|---|
/// | 0 | 8 | node | [`NodeId`] |
/// | 8 | 4 | bump | number of times the node was wrongly declared dead or moved |
/// | 12 | 2 | port | UDP |
/// | 14 | 1 | family | 4 or 6 |
/// | 15 | 4 or 16 | address | all zero: the source address of the datagram |
#[derive(Clone, Copy, Debug)]
#[cfg_attr(test, derive(proptest_derive::Arbitrary))]
pub(super) struct Identity {
    pub(super) node: NodeId,
    pub(super) bump: u32,
    pub(super) endpoint: Endpoint,
}

crate::fields! {
    Identity { node, bump, endpoint };
}

pub(super) const IDENTITY_BYTES: usize = 31;

/// Ignores the endpoint, because a node may not know its own address.
impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        (self.node, self.bump) == (other.node, other.bump)
    }
}

impl Eq for Identity {}

impl foca::Identity for Identity {
    type Addr = NodeId;

    fn renew(&self) -> Option<Self> {
        Some(Self { bump: self.bump.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> NodeId {
        self.node
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.bump > adversary.bump
    }
}

impl Identity {
    pub(super) fn is_reachable(&self) -> bool {
        !self.endpoint.0.ip().is_unspecified() && self.endpoint.0.port() != 0
    }

    pub(super) fn filled_in(mut self, source: Endpoint) -> Self {
        if self.endpoint.0.ip().is_unspecified() {
            self.endpoint.0.set_ip(source.0.ip());
        }
        self
    }

    pub(super) fn encoded_bytes(&self) -> usize {
        if self.endpoint.0.is_ipv4() { 19 } else { IDENTITY_BYTES }
    }

    pub(super) fn fill_in_front(
        payload: &mut Vec<u8>,
        source: Endpoint,
    ) -> Result<(), DecodeError> {
        let mut rest = &payload[..];
        let identity = Self::take(&mut rest)?;
        if identity.endpoint.0.ip().is_unspecified() {
            let old_bytes = payload.len() - rest.len();
            let mut front = Vec::with_capacity(IDENTITY_BYTES);
            identity.filled_in(source).put(&mut front);
            payload.splice(..old_bytes, front);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::net::SocketAddr;

    use super::*;
    use foca::Identity as _;
    use proptest::prelude::*;

    #[test]
    fn a_renewed_identity_is_the_same_node_and_wins() {
        let endpoint = Endpoint(SocketAddr::from(([10, 0, 0, 1], 7400)));
        let old = Identity { node: NodeId(7), bump: 0, endpoint };
        let new = old.renew().expect("the bump is not at its maximum");
        assert_eq!(new.addr(), old.addr());
        assert_ne!(new, old);
        assert!(new.win_addr_conflict(&old) && !old.win_addr_conflict(&new));
        assert_eq!(Identity { bump: u32::MAX, ..old }.renew(), None);
    }

    #[test]
    fn an_unspecified_address_is_where_the_datagram_came_from() {
        let endpoint = Endpoint(SocketAddr::from(([0, 0, 0, 0], 7400)));
        let identity = Identity { node: NodeId(7), bump: 0, endpoint };
        assert!(!identity.is_reachable());
        let source = Endpoint(SocketAddr::from(([10, 0, 0, 9], 999)));
        let mut payload = identity.to_bytes();
        payload.extend_from_slice(b"rest");
        assert_eq!(Identity::fill_in_front(&mut payload, source), Ok(()));
        let mut rest = &payload[..];
        let filled = Identity::take(&mut rest).expect("it was encoded above");
        assert_eq!(filled.endpoint.0, SocketAddr::from(([10, 0, 0, 9], 7400)));
        assert_eq!((filled, rest), (identity, &b"rest"[..]));
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(identity: Identity) {
            let bytes = identity.to_bytes();
            prop_assert_eq!(bytes.len(), identity.encoded_bytes());
            let decoded = Identity::take(&mut &bytes[..]).expect("it was encoded above");
            prop_assert_eq!((decoded, decoded.endpoint), (identity, identity.endpoint));
        }
    }
}
