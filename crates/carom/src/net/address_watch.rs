//! Monitors the address of the node's interface.
//!
//! The kernel does not notify a socket that its address was removed: it refuses to send from the
//! address, or peers send their answers to an address that no host has. The addresses are therefore
//! listed periodically.

use std::net::Ipv4Addr;
use std::time::Duration;

use carom_proto::Time;

use super::interfaces::Interface;

#[derive(Debug)]
pub(crate) struct AddressWatch {
    interface: String,
    address: Ipv4Addr,
    is_missing: bool,
    next: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Moved { from: Ipv4Addr, to: Ipv4Addr },
    Missing(Ipv4Addr),
    Back(Ipv4Addr),
}

impl AddressWatch {
    pub(crate) fn new(interface: &str, address: Ipv4Addr) -> Self {
        Self { interface: interface.to_owned(), address, is_missing: false, next: None }
    }

    pub(crate) fn due(&self) -> Option<Time> {
        self.next
    }

    pub(crate) fn check(&mut self, now: Time) -> Option<Change> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        let is_first = self.next.replace(now + CHECK_INTERVAL).is_none();
        if is_first {
            return None;
        }
        self.compare(&Interface::list().ok()?)
    }

    fn compare(&mut self, all: &[Interface]) -> Option<Change> {
        let mut own = all.iter().filter(|it| it.name == self.interface && it.is_up);
        if own.clone().any(|it| it.address == self.address) {
            return std::mem::take(&mut self.is_missing).then_some(Change::Back(self.address));
        }
        match own.next() {
            Some(found) => {
                let from = std::mem::replace(&mut self.address, found.address);
                self.is_missing = false;
                Some(Change::Moved { from, to: found.address })
            }
            None if self.is_missing => None,
            None => {
                self.is_missing = true;
                Some(Change::Missing(self.address))
            }
        }
    }
}

const CHECK_INTERVAL: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(name: &str, last: u8) -> Interface {
        let address = Ipv4Addr::new(10, 0, 0, last);
        let name = name.to_owned();
        Interface { name, address, is_up: true, is_loopback: false, is_multicast: true }
    }

    #[test]
    fn an_address_that_moves_goes_or_comes_back_is_told_once() {
        let [old, new] = [1, 2].map(|last| Ipv4Addr::new(10, 0, 0, last));
        let mut watch = AddressWatch::new("eth0", old);
        assert_eq!(watch.compare(&[interface("eth0", 1), interface("eth0", 2)]), None);
        let elsewhere = interface("eth1", 1);
        assert_eq!(watch.compare(std::slice::from_ref(&elsewhere)), Some(Change::Missing(old)));
        assert_eq!(watch.compare(std::slice::from_ref(&elsewhere)), None);
        assert_eq!(watch.compare(&[interface("eth0", 1)]), Some(Change::Back(old)));
        let moved = Change::Moved { from: old, to: new };
        assert_eq!(watch.compare(&[elsewhere, interface("eth0", 2)]), Some(moved));
        assert_eq!(watch.compare(&[interface("eth0", 2)]), None);
    }
}
