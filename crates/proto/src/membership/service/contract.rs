//! Contract between the drivers and the clients of the registry that are in no group.

use crate::membership::{LinkCommand, LinkEvent, LinkId};
use crate::wire::Datagram;
use crate::{Endpoint, Time, Transmit, Wakeup};

/// A client of the registry that is in no group. It is driven like a
/// [`Membership`](crate::membership::Membership) provider.
pub trait Client {
    /// Processes an event of a connection.
    fn handle_link(&mut self, now: Time, link: LinkId, event: LinkEvent<'_>);

    /// Processes a datagram of [`crate::wire::Protocol::Membership`] that was received from
    /// `source`. The default implementation ignores it.
    fn handle_datagram(&mut self, _now: Time, _source: Endpoint, _datagram: &Datagram<'_>) {}

    /// Processes the timers that are due at `now`.
    fn handle_timeout(&mut self, now: Time);

    /// Sends a goodbye to all connected registry processes, and closes the connections.
    fn shut_down(&mut self);

    /// Appends the next outgoing datagram to `out` and returns its destination and class.
    fn poll_transmit(&mut self, _out: &mut Vec<u8>) -> Option<Transmit> {
        None
    }

    /// Returns the next command for a connection.
    fn poll_link(&mut self) -> Option<LinkCommand>;

    /// Returns the time at which [`Client::handle_timeout`] must next be called, and the reason.
    fn poll_timeout(&self) -> Option<Wakeup>;
}
