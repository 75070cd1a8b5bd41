//! Strategies for the fields of packets in property tests, where the default does not fit.

use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use proptest::collection::{SizeRange, vec};
use proptest::prelude::*;

use crate::ring::{LockName, Locks, Process};

pub(crate) fn some<T: Arbitrary + 'static>(
    count: impl Into<SizeRange>,
) -> impl Strategy<Value = Vec<T>> {
    vec(any::<T>(), count)
}

pub(crate) fn few<T: Arbitrary + 'static>() -> impl Strategy<Value = Vec<T>> {
    some(0..5)
}

pub(crate) fn bytes() -> impl Strategy<Value = Bytes> {
    some(0..50).prop_map(Bytes::from)
}

/// Omits flow labels and scopes of IPv6 addresses, because these are not on the wire.
pub(crate) fn addresses() -> impl Strategy<Value = SocketAddr> {
    any::<(IpAddr, u16)>().prop_map(SocketAddr::from)
}

pub(crate) fn locks() -> impl Strategy<Value = Locks> {
    vec((0_u64..3, any::<Process>()), 0..5).prop_map(|requests| {
        let mut locks = Locks::default();
        requests.into_iter().for_each(|(name, process)| locks.ask(LockName(name), process));
        locks
    })
}
