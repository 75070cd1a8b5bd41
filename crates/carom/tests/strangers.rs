//! Tests that little is sent to addresses that do not answer probes, for packets of all engines.

mod network;

use std::net::UdpSocket;
use std::time::Duration;

use carom::blocking::{Group, Node};
use carom::{NodeId, Profile};
use carom_proto::lateral::packet::Packet as Lateral;
use carom_proto::rdcm::packet::{self as bulk, Packet as Bulk};
use carom_proto::rdcm::sack_set::SackSet;
use carom_proto::ring::{
    Epoch, ListChange, ListChangeKind, LockName, Member, Process, Qos, Quorum, Timestamp,
};
use carom_proto::rmp::packet::{self as ring, Packet as Ordered};
use carom_proto::rmp::{Data, Round, Run, What};
use carom_proto::{GroupId, Incarnation, Origin, PacketId, SeqNo};
use network::{PATIENCE, multicast_port, next_message, on_loopback, start, wait_for};

struct Stranger {
    own: Origin,
    member: NodeId,
    epoch: Epoch,
    groups: [GroupId; 3],
}

#[test]
fn strangers_that_do_not_answer_draw_at_most_twice_their_bytes() {
    let port = multicast_port();
    let nodes = [(); 3].map(|()| start(on_loopback(port)));
    let groups = nodes.each_ref().map(join);
    for (node, groups) in nodes.iter().zip(&groups) {
        let is_in = |group: &Group| group.members().len() == 2;
        wait_for(node, "all members in the groups", |_| groups.iter().all(is_in));
    }
    let epoch = groups_work(&groups, "before");
    let (member, groups_of_all) = (nodes[0].id(), groups[0].each_ref().map(|group| group.id()));
    let packets = |number: usize| {
        let node = NodeId(number as u64);
        let own = Origin { node, incarnation: Incarnation(1) };
        let stranger = Stranger { own, member, epoch, groups: groups_of_all };
        [stranger.lateral(), stranger.ordered(), stranger.bulk()].concat()
    };
    // Each kind of packet has its own source address and is sent in the name of twenty nodes.
    let mut kinds = Vec::new();
    for kind in 0..packets(0).len() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let (mut name, mut sent) = (String::new(), 0);
        for number in 1..=20 {
            let datagram;
            (name, datagram) = packets(100 * kind + number).swap_remove(kind);
            socket.send_to(&datagram, nodes[0].endpoint()).expect("it is sent");
            sent += datagram.len();
        }
        kinds.push((name, socket, sent));
    }
    // Repeated answers count as well, so wait until most timers have fired.
    std::thread::sleep(Duration::from_secs(2));
    for (name, socket, sent) in kinds {
        let came = bytes_that_came(&socket);
        assert!(came <= 2 * sent, "{came} bytes returned for {sent}: {name}");
    }
    assert!(nodes[0].status().stats.net.strangers_withheld > 0);
    groups_work(&groups, "after");
}

/// Returns the number of bytes received by a socket. At least one probe arrives at each address.
fn bytes_that_came(socket: &UdpSocket) -> usize {
    socket.set_read_timeout(Some(PATIENCE)).expect("a time");
    let mut buffer = [0; 1 << 16];
    let first = socket.recv(&mut buffer).expect("a probe");
    socket.set_nonblocking(true).expect("a nonblocking socket");
    first + std::iter::from_fn(|| socket.recv(&mut buffer).ok()).sum::<usize>()
}

fn join(node: &Node) -> [Group; 3] {
    let groups = [
        ("prices", Profile::time_critical()),
        ("bank", Profile::ordered()),
        ("images", Profile::bulk()),
    ];
    groups.map(|(name, profile)| node.join(name, profile).expect("a group"))
}

fn groups_work(groups: &[[Group; 3]; 3], text: &'static str) -> Epoch {
    let mut epoch = None;
    for which in 0..3 {
        groups[0][which].publish(text.as_bytes()).expect("published");
        for receiver in &groups[1..] {
            let message = next_message(&receiver[which]);
            assert_eq!(message.payload, text, "no other node has sent anything");
            epoch = message.place.map(|place| place.ring).or(epoch);
        }
    }
    epoch.expect("an ordered message has a place")
}

impl Stranger {
    fn lateral(&self) -> Vec<(String, Vec<u8>)> {
        let [group, ..] = self.groups;
        let (sender, seqno) = (self.member, SeqNo(1));
        let ids = [PacketId { sender, group, seqno }.into()];
        let symbol = &[7; 16];
        let to = Origin { node: self.member, incarnation: Incarnation(1) };
        let packets = [
            Lateral::Data { seqno: SeqNo(3), confirm: true, symbol },
            Lateral::Repair { ids: &ids, sum: symbol },
            Lateral::Nak { cookie: 0, ids: &ids },
            Lateral::Challenge { cookie: 7, ids: &ids },
            Lateral::Retransmission { origin: self.own.node, seqno, symbol },
            Lateral::HaveNot { ids: &ids, expired: true },
            Lateral::Heartbeat { next: SeqNo(9), first: None, nonce: 0, confirm: true },
            Lateral::Ack { to, settled_to: SeqNo(9), lost: 0 },
            Lateral::Open { nonce: 7 },
        ];
        let encode = |packet: Lateral<'_>| {
            let mut datagram = Vec::new();
            packet.encode(self.own, group, 1, &mut datagram);
            (format!("{packet:?}"), datagram)
        };
        packets.into_iter().map(encode).collect()
    }

    fn ordered(&self) -> Vec<(String, Vec<u8>)> {
        let [_, group, _] = self.groups;
        let encode = |packet: Ordered| {
            let mut datagram = Vec::new();
            packet.encode(&mut datagram, group, self.own, 1);
            (format!("{packet:?}"), datagram)
        };
        let packets = self.requests().into_iter().chain(self.rounds()).chain(self.recoveries());
        packets.map(encode).collect()
    }

    fn requests(&self) -> Vec<Ordered> {
        let (epoch, process) = (self.epoch, self.process());
        let member =
            Member { process, quorum: Quorum::Majority, is_multicast: false, is_voter: false };
        let name_check = GroupId::name_check("bank");
        let kinds = [
            ListChangeKind::Leave,
            ListChangeKind::Join { member, name_check },
            ListChangeKind::Lock { name: LockName(0), waits: true },
        ];
        let mut packets = Vec::new();
        for kind in kinds {
            for epoch in [None, Some(epoch)] {
                let change = ListChange { process, request: 1, kind };
                packets.push(Ordered::ListChangeRequest { epoch, change });
            }
        }
        let data = ring::NonMemberData::Data { epoch: None, is_first: true, data: self.data() };
        let pull = ring::NonMemberData::Pull { number: 1, offset: 0 };
        packets.extend([data, pull].map(Ordered::NonMemberData));
        let delivered = ring::NonMemberAck::Delivered { epoch, number: 1 };
        packets.push(Ordered::NonMemberAck(delivered));
        packets
    }

    fn rounds(&self) -> Vec<Ordered> {
        let (epoch, site) = (self.epoch, self.process());
        let round = |what| Round { at: Timestamp(9), site, next: site, what };
        let change = ListChange { process: site, request: 1, kind: ListChangeKind::Leave };
        let runs = vec![Run { source: self.epoch.creator, first: SeqNo(1), count: 64 }];
        let (from, to, asked) = (Timestamp(1), Timestamp::MAX, Some(self.member));
        vec![
            Ordered::Data(self.data()),
            Ordered::Ack { epoch, round: round(What::Order(runs.clone())) },
            Ordered::Confirm { epoch, at: Timestamp(9) },
            Ordered::Nack(ring::Nack { epoch, asked, from, to, runs }),
            Ordered::Nack(ring::Nack { epoch, asked: None, from, to, runs: Vec::new() }),
            Ordered::NewList(ring::NewList::Change {
                epoch,
                round: round(What::List(vec![change])),
            }),
            Ordered::Part(ring::Part { id: 1, index: 0, count: 2, bytes: vec![7; 30].into() }),
        ]
    }

    fn recoveries(&self) -> Vec<Ordered> {
        let (epoch, creator) = (self.epoch, self.process());
        let ballot = Epoch { version: epoch.version + 1, creator };
        let position = || ring::Position { next: Timestamp(1), ..ring::Position::default() };
        vec![
            Ordered::RecoveryStart {
                epoch,
                ballot,
                position: position(),
                refuted: Vec::new(),
                released: Vec::new(),
            },
            Ordered::RecoveryVote { epoch, ballot, position: position(), accepted: Vec::new() },
            Ordered::RecoveryAckNewList { ballot },
            Ordered::RecoveryAbort { ballot, seen: ballot },
            Ordered::ForceQuorum { epoch, lost: vec![self.member] },
        ]
    }

    fn bulk(&self) -> Vec<(String, Vec<u8>)> {
        let [.., group] = self.groups;
        let (successor, receiver) = (self.own.node, self.member);
        let fragment = bulk::Fragment { is_first: true, is_last: true, bytes: vec![7; 30].into() };
        let data = |way, is_relayed| {
            Bulk::Data(bulk::DataPacket { number: 1, fragment: fragment.clone(), way, is_relayed })
        };
        let leaf = bulk::Seat { ring: 1, predecessor: successor, successor, parent: successor };
        let place = bulk::Place {
            epoch: 1,
            first: 1,
            owed_from: 1,
            receivers: 1,
            leaf,
            proxy: None,
            children_ring: 0,
            children: Vec::new(),
            relays: Vec::new(),
        };
        let report = bulk::Report { epoch: 0, next: 1, limit: 100, by_tree: 0, by_repair: 0 };
        let packets = [
            data(bulk::Way::tree(1), false),
            data(bulk::Way::tree(1), true),
            data(bulk::Way::Repair, false),
            Bulk::Announce { epoch: 0, end: 9 },
            Bulk::Ack(vec![bulk::RingAck::new(1, &SackSet::all_below(1), 1, 9, 0)]),
            Bulk::Report(report),
            Bulk::Place { receiver, place },
            Bulk::Ask(std::iter::once(1..100).collect()),
            Bulk::Cut { ring: 1, successor },
            Bulk::Silent { successor },
            Bulk::Release { ring: 1, epoch: 1, from: 1 },
            Bulk::Farewell { epoch: 1, end: 9 },
            Bulk::FarewellHeard,
        ];
        let encode = |packet: Bulk| {
            let mut datagram = Vec::new();
            packet.encode(group, self.own, 1, &mut datagram);
            (format!("{packet:?}"), datagram)
        };
        packets.into_iter().map(encode).collect()
    }

    fn process(&self) -> Process {
        Process { node: self.own.node, life: 1 }
    }

    fn data(&self) -> ring::DataPacket {
        let whole = Data::whole(SeqNo(1), Qos::TotallyOrdered, vec![7; 30].into());
        let data = Data { is_call: true, ..whole };
        ring::DataPacket { source: self.process(), seqno: SeqNo(1), data }
    }
}
