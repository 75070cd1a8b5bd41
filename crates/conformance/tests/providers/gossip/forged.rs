//! Tests datagrams forged by a host on the LAN.
//!
//! Claims about other nodes have no effect, and little is sent to addresses that have not answered.

use carom_conformance::gossip_forgery::{self, identity, packet, swim};

use super::*;

const ATTACKER: usize = 100;
/// Host number of an uninvolved address, which no node has.
const BYSTANDER: usize = 200;

struct Forger {
    net: Rig,
    forged_bytes: u64,
    changes: Vec<usize>,
}

fn datagram(kind: u8, flags: u8, sender: NodeId, body: &[u8]) -> Vec<u8> {
    packet(kind, flags, Origin { node: sender, incarnation: Incarnation(77) }, body)
}

fn hello(flags: u8, node: NodeId, there: Endpoint) -> Vec<u8> {
    datagram(2, flags, node, &[&[0; 8][..], &identity(node, 0, there)].concat())
}

/// Replaces the incarnation with the sender's incarnation that the nodes know.
fn of_known_start(mut datagram: Vec<u8>) -> Vec<u8> {
    datagram[24..32].copy_from_slice(&Incarnation::default().0.to_be_bytes());
    wire::seal(&mut datagram, 0);
    datagram
}

/// Encodes a SWIM message of kind `message` (9 is gossip), with updates of identity and state.
fn gossip(from: Vec<u8>, to: NodeId, message: u8, updates: &[(Vec<u8>, u8)]) -> Vec<u8> {
    let sender = NodeId(u64::from_be_bytes(from[..8].try_into().unwrap()));
    datagram(1, 0, sender, &swim(&from, &identity(to, 0, endpoint(0)), message, updates))
}

/// Encodes a push of one row of `owner`'s table: a subscription of the group "all", or its end.
fn changes(sender: NodeId, owner: NodeId, version: u32, row: Option<GroupSettings>) -> Vec<u8> {
    changes_of(sender, owner, version, "all", row)
}

fn changes_of(
    sender: NodeId,
    owner: NodeId,
    version: u32,
    group: &str,
    row: Option<GroupSettings>,
) -> Vec<u8> {
    let body = gossip_forgery::changes(owner, version, GroupId::of_name(group), row);
    datagram(4, 0, sender, &body)
}

impl Forger {
    fn new() -> Self {
        let mut net = agreed(4, 0.0, 11);
        net.run_for(seconds(3));
        let changes = net.live().map(|node| node.changes.len()).collect();
        Self { net, forged_bytes: 0, changes }
    }

    fn send(&mut self, datagram: &[u8]) {
        for host in 0..4 {
            self.forged_bytes += datagram.len() as u64;
            self.net.forge(host, ATTACKER, 7400, datagram);
        }
    }

    fn send_gossip(&mut self, from: &[u8], message: u8, updates: &[(Vec<u8>, u8)]) {
        (0..4).for_each(|to| self.send(&gossip(from.to_vec(), node_id(to), message, updates)));
    }

    /// Silences host 1, and sends these datagrams to the others from the attacker for 6 s.
    fn send_while_silent(&mut self, forged: impl Fn(usize) -> Vec<Vec<u8>>) {
        self.net.silence(1);
        for _ in 0..60 {
            self.net.run_for(millis(100));
            for to in [0, 2, 3] {
                for datagram in forged(to) {
                    self.net.forge(to, ATTACKER, 7400, &datagram);
                }
            }
        }
    }

    fn assert_nothing_moved(&mut self) {
        self.assert_whole_after(seconds(10));
        for (host, before) in self.net.live().zip(&self.changes) {
            assert_eq!(host.changes.len(), *before, "a view of {:?} changed", host.id);
            assert!(host.refused.is_empty(), "{:?} lost a group", host.id);
        }
    }

    fn assert_whole_after(&mut self, span: Duration) {
        let (before, _) = self.net.traffic();
        self.net.run_for(span);
        self.net.check();
        assert!(self.net.agrees_on(&GROUPS, in_group), "a view is incomplete");
        let rate = (self.net.traffic().0 - before) / span.as_secs();
        assert!(rate < 600, "{rate} datagrams a second");
    }

    fn assert_at_most_twice_to(&self, host: usize) {
        let sent: u64 = (0..4).map(|from| self.net.bytes_from_to(from, host)).sum();
        let forged = self.forged_bytes;
        assert!(sent <= 2 * forged, "{sent} bytes for {forged}");
    }
}

fn stranger() -> Vec<u8> {
    identity(NodeId(666), 0, endpoint(ATTACKER))
}

#[test]
fn a_death_under_the_highest_bump_begins_no_storm() {
    let mut forger = Forger::new();
    for from in [stranger(), identity(node_id(0), 0, endpoint(0))] {
        forger.send_gossip(&from, 9, &[(identity(node_id(1), u32::MAX, endpoint(1)), 2)]);
    }
    forger.assert_nothing_moved();
}

#[test]
fn forged_address_under_the_highest_bump_draws_no_traffic() {
    let mut forger = Forger::new();
    let alive = identity(node_id(1), u32::MAX, endpoint(BYSTANDER));
    forger.send_gossip(&stranger(), 9, &[(alive, 0)]);
    forger.assert_nothing_moved();
    assert!((0..4).all(|from| forger.net.bytes_from_to(from, BYSTANDER) == 0));
}

#[test]
fn a_goodbye_of_another_counts_only_if_the_node_is_silent() {
    let mut forger = Forger::new();
    for sender in [NodeId(666), node_id(0), node_id(1)] {
        forger.send(&datagram(6, 0, sender, &node_id(1).0.to_be_bytes()));
    }
    forger.assert_nothing_moved();
    forger.net.silence(1);
    forger.send(&datagram(6, 0, NodeId(666), &node_id(1).0.to_be_bytes()));
    forger.net.run_for(seconds(1));
    let members = forger.net.view(0, "all").members().len();
    assert_eq!(members, 2, "the silent node is not removed");
}

#[test]
fn settings_in_the_name_of_another_close_no_group() {
    let mut forger = Forger::new();
    let other = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(9, 5)));
    for sender in [node_id(2), NodeId(666)] {
        for version in 3..6 {
            forger.send(&changes(sender, node_id(2), version, Some(other)));
        }
    }
    forger.assert_nothing_moved();
}

#[test]
fn settings_of_a_newcomer_close_no_group_that_works() {
    let mut forger = Forger::new();
    forger.send_gossip(&stranger(), 9, &[]);
    let other = GroupSettings::new("all", Profile::TimeCritical(RateOfFire::new(9, 5)));
    forger.send(&changes(NodeId(666), NodeId(666), 1, Some(other)));
    forger.assert_whole_after(seconds(10));
    assert!(forger.net.live().all(|host| host.refused.is_empty()));
    let late = forger.net.add_gossip(with_seeds(&[0]));
    forger.net.run_for(seconds(2));
    forger.net.join_name(late, "all").expect("most members have these settings");
}

#[test]
fn subscription_is_ended_by_its_owner_only() {
    let mut forger = Forger::new();
    for sender in [node_id(1), node_id(2), NodeId(666)] {
        forger.send(&changes(sender, node_id(1), 1000, None));
    }
    forger.assert_nothing_moved();
    forger.net.leave_name(1, "all");
    forger.net.run_for(seconds(2));
    assert_eq!(
        forger.net.view(0, "all").members().len(),
        2,
        "its own versions continue to increase"
    );
}

#[test]
fn a_death_is_believed_only_after_the_node_was_asked() {
    let mut forger = Forger::new();
    forger.send_gossip(&stranger(), 9, &[(identity(node_id(1), 0, endpoint(1)), 2)]);
    forger.assert_nothing_moved();
    let asked: u64 = (0..4).map(|host| forger.net.stat(host, "reports_refuted")).sum();
    assert!(asked >= 2, "{asked} reports refuted");
}

#[test]
fn you_are_dead_and_false_answers_end_in_whole_views() {
    let mut forger = Forger::new();
    for _ in 0..200 {
        forger.send_gossip(&stranger(), 11, &[]);
        forger.send_gossip(&identity(node_id(2), 0, endpoint(2)), 11, &[]);
    }
    forger.assert_whole_after(seconds(10));
    let rejoins: u64 = (0..4).map(|host| forger.net.stat(host, "rejoins")).sum();
    assert!(rejoins <= 4 * 9, "{rejoins} new identities");
}

#[test]
fn a_flood_of_named_joiners_sends_their_addresses_little() {
    let mut forger = Forger::new();
    for part in 0..167_u64 {
        let named: Vec<_> = (0..30)
            .map(|place| (identity(NodeId(10_000 + 30 * part + place), 0, endpoint(BYSTANDER)), 0))
            .collect();
        let datagram = gossip(stranger(), node_id(0), 9, &named);
        forger.forged_bytes += datagram.len() as u64;
        forger.net.forge(0, ATTACKER, 7400, &datagram);
    }
    forger.assert_whole_after(seconds(10));
    forger.assert_at_most_twice_to(BYSTANDER);
    let up = forger.net.stat(0, "nodes_up");
    assert!(up <= 4, "{up} nodes up");
}

#[test]
fn a_member_is_where_it_speaks_from() {
    let mut forger = Forger::new();
    let elsewhere = identity(NodeId(666), 0, endpoint(BYSTANDER));
    for _ in 0..20 {
        forger.send(&hello(1, NodeId(666), endpoint(BYSTANDER)));
        forger.send(&gossip(elsewhere.clone(), node_id(0), 9, &[]));
        let entry = [&elsewhere[..], &[0; 8]].concat();
        forger.send(&datagram(3, 1, NodeId(666), &[&[0; 4][..], &entry].concat()));
    }
    forger.assert_nothing_moved();
    forger.assert_at_most_twice_to(BYSTANDER);
    assert!(forger.net.live().all(|host| !host.met.contains(&NodeId(666))));
}

/// The source address is that of a member, or one that no node has. The claimed sender is unknown.
#[test]
fn datagrams_with_the_address_of_another_host_draw_little_there() {
    for victim in [BYSTANDER, 1] {
        let there = |node| identity(NodeId(node), 0, endpoint(victim));
        let to = identity(node_id(0), 0, endpoint(0));
        let asking = |node| hello(1, NodeId(node), endpoint(victim));
        let challenging =
            |node| datagram(2, 1, NodeId(node), &[&[7; 8][..], &there(node)].concat());
        let announcement =
            |node| datagram(1, 0, NodeId(node), &[&there(node)[..], &[0, 0], &to, &[7]].concat());
        let digest =
            |node| datagram(3, 3, NodeId(node), &[&[0; 4][..], &there(node), &[0; 8]].concat());
        let pull = |node| {
            let wanted = [0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0];
            datagram(5, 0, NodeId(node), &[&node_id(0).0.to_be_bytes()[..], &wanted].concat())
        };
        let suspicion =
            |node| datagram(7, 0, NodeId(node), &[&there(node)[..], &to, &[0, 0]].concat());
        let challenge = |node| datagram(8, 0, NodeId(node), &[7; 8]);
        let response = |node| datagram(9, 0, NodeId(node), &[&[7; 16][..], &there(node)].concat());
        let kinds: [&dyn Fn(u64) -> Vec<u8>; 8] = [
            &asking,
            &challenging,
            &announcement,
            &digest,
            &pull,
            &suspicion,
            &challenge,
            &response,
        ];
        // A member receives datagrams without any attack as well.
        let usual = sent_to(victim, |_, _| ());
        for forged in kinds {
            for nodes in [1, 200] {
                let mut bytes = 0;
                let sent = sent_to(victim, |net, number| {
                    let datagram = forged(667 + number % nodes);
                    bytes += datagram.len() as u64;
                    net.feed(0, endpoint(victim), &datagram);
                });
                assert!(
                    sent <= usual * 11 / 10 + 2 * bytes,
                    "{sent}, usually {usual}, for {bytes}"
                );
            }
        }
    }
}

/// Returns the number of bytes that host 0 sends to the address of `victim` in 12 s. In the first 2
/// s, `forge` is called 200 times.
fn sent_to(victim: usize, mut forge: impl FnMut(&mut Rig, u64)) -> u64 {
    let mut forger = Forger::new();
    let before = forger.net.bytes_from_to(0, victim);
    for number in 0..200 {
        forge(&mut forger.net, number);
        forger.net.run_for(millis(10));
    }
    forger.assert_nothing_moved();
    forger.net.bytes_from_to(0, victim) - before
}

#[test]
fn datagrams_with_the_address_and_id_of_a_member_move_nothing() {
    let mut forger = Forger::new();
    for number in 0..40 {
        let there = identity(node_id(1), 0, endpoint(1));
        let digest = datagram(3, 3, node_id(1), &[&[0; 4][..], &there, &[0; 8]].concat());
        let started = changes(node_id(1), node_id(1), 1 + number, None);
        for datagram in [digest, started, datagram(6, 0, node_id(1), &node_id(1).0.to_be_bytes())] {
            for host in [0, 2, 3] {
                forger.net.feed(host, endpoint(1), &datagram);
            }
        }
        forger.net.run_for(millis(100));
    }
    forger.assert_nothing_moved();
}

#[test]
fn addresses_that_answer_fill_no_memory() {
    let net = cluster_of(4, 0.0, 3, &Config { max_nodes: 8, ..with_seeds(&[0]) });
    let mut net = agreed_after(net, 4, "few nodes");
    for port in 9000..10_000 {
        let mut source = endpoint(ATTACKER);
        source.0.set_port(port);
        net.forge(0, ATTACKER, port, &hello(0, NodeId(666), source));
        net.check();
    }
    net.run_for(seconds(5));
    assert!(net.agrees_on(&GROUPS, in_group), "a view is incomplete");
}

#[test]
fn address_of_an_answering_node_cannot_be_taken() {
    let mut forger = Forger::new();
    for _ in 0..100 {
        let there = identity(node_id(1), 1, endpoint(ATTACKER));
        forger.send(&gossip(there.clone(), node_id(0), 9, &[]));
        forger.send(&hello(1, node_id(1), endpoint(ATTACKER)));
        forger.net.run_for(millis(100));
    }
    forger.assert_nothing_moved();
    forger.assert_at_most_twice_to(ATTACKER);
}

#[test]
fn forged_engine_datagrams_keep_a_dead_node_in_no_view() {
    let mut forger = Forger::new();
    forger.net.silence(1);
    for _ in 0..60 {
        forger.net.run_for(millis(100));
        for host in [0, 2, 3] {
            forger
                .net
                .with(host, |node, now| node.membership.heard(now, endpoint(ATTACKER), node_id(1)));
        }
    }
    forger.assert_whole_after(seconds(1));
}

#[test]
fn silent_node_rejoins_despite_forged_gossip_about_it() {
    for (state, bump) in
        [(Some(0), u32::MAX), (Some(2), u32::MAX), (Some(0), 7), (Some(2), 9), (None, u32::MAX)]
    {
        let mut forger = Forger::new();
        forger.send_while_silent(|to| {
            let there = identity(node_id(1), bump, endpoint(ATTACKER));
            let digest = [&[0; 4][..], &there, &[0; 8]].concat();
            vec![match state {
                Some(state) => gossip(there.clone(), node_id(to), 9, &[(there, state)]),
                None => datagram(3, 1, node_id(1), &digest),
            }]
        });
        forger.net.revive(1);
        forger.assert_whole_after(seconds(10));
    }
}

#[test]
fn owners_subscriptions_replace_those_forged_in_its_silence() {
    let other = GroupSettings::new("all", Profile::Bulk);
    for (row, bump) in [(None, 1), (Some(other), 1), (None, 7)] {
        let mut forger = Forger::new();
        forger.send_while_silent(|to| {
            let there = identity(node_id(1), bump, endpoint(ATTACKER));
            let alive = gossip(there, node_id(to), 9, &[]);
            let changes = changes(node_id(1), node_id(1), 1000, row);
            vec![of_known_start(alive), of_known_start(changes)]
        });
        forger.net.revive(1);
        forger.assert_whole_after(seconds(10));
    }
}

#[test]
fn goodbye_forged_before_a_node_is_heard_does_not_exclude_it() {
    let mut forger = Forger::new();
    let goodbye = of_known_start(datagram(6, 0, node_id(4), &node_id(4).0.to_be_bytes()));
    forger.send(&goodbye);
    let late = forger.net.add_gossip(with_seeds(&[0]));
    forger.net.join_name(late, "all").unwrap();
    forger.net.join_name(late, GROUPS[1 + late % 3]).unwrap();
    forger.assert_whole_after(seconds(10));
}

#[test]
fn goodbye_forged_while_a_node_is_silent_does_not_exclude_it() {
    let mut forger = Forger::new();
    let there = identity(node_id(1), 1, endpoint(ATTACKER));
    forger.send_while_silent(|to| vec![of_known_start(gossip(there.clone(), node_id(to), 9, &[]))]);
    let goodbye = datagram(6, 0, node_id(1), &node_id(1).0.to_be_bytes());
    forger.send(&of_known_start(goodbye));
    forger.net.run_for(seconds(3));
    assert!(!forger.net.view(0, "all").contains(node_id(1)), "its goodbye is believed");
    forger.net.revive(1);
    forger.assert_whole_after(seconds(10));
}

#[test]
fn newcomers_settings_do_not_close_an_old_group_of_one_member() {
    let mut forger = Forger::new();
    let group = settings("lonely");
    forger.net.join_name(0, "lonely").unwrap();
    forger.net.run_for(seconds(12));
    forger.send(&gossip(stranger(), node_id(0), 9, &[]));
    let other = GroupSettings { profile: Profile::Bulk, ..group };
    let forged = changes_of(NodeId(666), NodeId(666), 1, "lonely", Some(other));
    forger.send(&forged);
    forger.net.run_for(seconds(2));
    assert_eq!(forger.net.node(0).refused, []);
    assert!(forger.net.stat(0, "contradictions_ignored") > 0);
}
