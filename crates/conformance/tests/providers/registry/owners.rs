//! Tests a node's knowledge of the owners of its groups' partitions.

use carom_proto::membership::Membership;
use carom_proto::membership::link::{LinkCommand, LinkEnd, LinkEvent, LinkId};
use carom_proto::membership::service::frame::Welcome;
use carom_proto::membership::service::*;
use carom_proto::{Endpoint, Time};

use super::{PARTITIONS, address, encoded, endpoint, group, node_id, seconds, settings};

fn opened(service: &mut Service) -> Vec<(LinkId, Endpoint)> {
    let commands = core::iter::from_fn(|| service.poll_link());
    let opens = commands.filter_map(|command| match command {
        LinkCommand::Open { link, to } => Some((link, to)),
        _ => None,
    });
    opens.collect()
}

pub(super) fn welcome(service: &mut Service, now: Time, link: LinkId, owned: Vec<(u16, Endpoint)>) {
    service.handle_link(now, link, LinkEvent::Opened);
    let owners = Owners { partitions: PARTITIONS, owned };
    let welcome = encoded(&Frame::Welcome(Welcome { process: 1, lease_ms: 3000, owners }));
    service.handle_link(now, link, LinkEvent::Received(&welcome));
}

fn with_two_links(now: Time) -> (Service, LinkId, LinkId) {
    let config =
        ServiceConfig { addresses: vec![address(0), address(1)], ..ServiceConfig::default() };
    let mut service = Service::new(node_id(0), endpoint(0), config, 9);
    service.join(now, group(0), settings(8)).expect("it is new");
    service.handle_timeout(now);
    let [(first, _), (second, _)] = opened(&mut service)[..] else { panic!("two processes") };
    (service, first, second)
}

fn opened_after_the_end_of(service: &mut Service, now: Time, link: LinkId) -> Vec<Endpoint> {
    service.handle_link(now, link, LinkEvent::Closed { why: LinkEnd::ByPeer });
    service.handle_timeout(now + seconds(1));
    opened(service).into_iter().map(|(_, to)| to).collect()
}

pub(super) fn all_at(at: Endpoint) -> Vec<(u16, Endpoint)> {
    (0..PARTITIONS).map(|partition| (partition, at)).collect()
}

/// A process that has just started has not been notified of owners, and may die before it is. The
/// other process sends no update, because nothing has changed.
#[test]
fn what_a_process_said_holds_no_longer_than_its_link() {
    for said_by_the_second in [vec![], vec![(0, address(0))]] {
        let now = Time(1_000_000);
        let (mut service, first, second) = with_two_links(now);
        welcome(&mut service, now, first, all_at(address(1)));
        welcome(&mut service, now, second, said_by_the_second);
        let again = opened_after_the_end_of(&mut service, now, second);
        assert_eq!(again, [address(1)], "the owner of its group");
    }
}

/// The first process may be partitioned from the store, and its report may be old.
#[test]
fn the_process_that_named_owners_last_is_linked_again() {
    let now = Time(1_000_000);
    let (mut service, first, second) = with_two_links(now);
    welcome(&mut service, now, first, all_at(address(0)));
    welcome(&mut service, now, second, all_at(address(1)));
    let again = opened_after_the_end_of(&mut service, now, second);
    assert_eq!(again, [address(1)], "its knowledge is newer");
}
