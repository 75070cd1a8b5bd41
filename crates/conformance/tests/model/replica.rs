//! One member: the engine, with a clock that the model advances.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{Qos, Quorum};
use carom_proto::rmp::packet::Packet;
use carom_proto::rmp::{Config, Rmp, Round, What};
use carom_proto::wire::{Datagram, Header};
use carom_proto::{
    Destination, Engine as _, Event, GroupId, GroupSettings, NodeId, Profile, SendOptions, SeqNo,
    Time, ViewChange, ViewChangeKind,
};

pub(crate) const GROUP: GroupId = GroupId(7);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) quorum: Quorum,
    pub(crate) tries: u32,
    pub(crate) flaw: Option<(usize, Flaw)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flaw {
    /// Delivers every message as if it did not have to be stable.
    DeliversEarly,
    /// Assigns the same place to two sources' packets, in two ACKs.
    ReusesPlaces,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Input {
    Join,
    Leave,
    Send(u64, Qos),
    Datagram(Bytes),
    Clock(Time),
    Timeout,
    There(usize),
    Gone(usize),
}

#[derive(Clone, Debug)]
pub(crate) enum Note {
    Joined,
    Left,
    Sent(u64, SeqNo, Qos),
    Told(Event),
}

#[derive(Debug, Default)]
pub(crate) struct Output {
    pub(crate) datagrams: Vec<(Destination, Vec<u8>)>,
    pub(crate) notes: Vec<Note>,
}

#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) engine: Rmp,
    pub(crate) now: Time,
    terms: Terms,
    flaw: Option<Flaw>,
}

pub(crate) fn node(member: usize) -> NodeId {
    NodeId(member as u64 + 1)
}

pub(crate) fn payload(number: u64) -> Bytes {
    Bytes::copy_from_slice(&number.to_be_bytes())
}

pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

pub(crate) fn packet(datagram: &[u8]) -> Packet {
    let (header, body) = Header::decode(datagram).expect("an engine encoded it");
    Packet::decode(&header, body).expect("an engine encoded it")
}

impl Replica {
    pub(crate) fn new(member: usize, terms: Terms) -> Self {
        // The model may act at once where a ring acts after failed attempts or with a delay.
        let config = Config {
            tries: terms.tries,
            join_tries: 2,
            recovery_tries: 1,
            batch_delay: Duration::from_micros(1),
            ..Config::default()
        };
        let flaw = terms.flaw.filter(|(flawed, _)| *flawed == member).map(|(_, flaw)| flaw);
        let engine = Rmp::new(node(member), config, member as u64);
        Self { engine, now: Time(1_000_000_000), terms, flaw }
    }

    pub(crate) fn give(&mut self, input: &Input) -> Output {
        let mut output = Output::default();
        self.put(input, &mut output.notes);
        let mut datagram = Vec::new();
        while let Some(transmit) = self.engine.poll_transmit(&mut datagram) {
            let whole = std::mem::take(&mut datagram);
            let flawed = self.flawed(whole);
            output.datagrams.extend(flawed.map(|it| (transmit.destination.clone(), it)));
        }
        while let Some(event) = self.engine.poll_event() {
            output.notes.push(Note::Told(event));
        }
        while self.engine.poll_ended().is_some() {}
        self.engine.check();
        output
    }

    fn put(&mut self, input: &Input, notes: &mut Vec<Note>) {
        let (engine, now) = (&mut self.engine, &mut self.now);
        match input {
            Input::Join => {
                let settings = GroupSettings::new("model", Profile::Ordered(self.terms.quorum));
                engine.join(*now, GROUP, settings).expect("the engine is not in the group");
                notes.push(Note::Joined);
            }
            Input::Leave => {
                engine.leave(*now, GROUP);
                notes.push(Note::Left);
            }
            Input::Send(number, qos) => {
                let options = SendOptions { qos: Some(*qos), ..SendOptions::default() };
                if let Ok(seqno) = engine.send(*now, GROUP, payload(*number), options) {
                    notes.push(Note::Sent(*number, seqno, *qos));
                }
            }
            Input::Datagram(datagram) => {
                let heard = Self::misheard(self.flaw, datagram);
                engine.handle_datagram(*now, &Datagram::parse(&heard).expect("a datagram"));
            }
            Input::Clock(time) => {
                *now = (*now).max(*time);
                engine.handle_timeout(*now);
            }
            Input::Timeout => {
                if let Some(wakeup) = engine.poll_timeout() {
                    *now = (*now).max(wakeup.at);
                    engine.handle_timeout(*now);
                }
            }
            Input::There(member) => self.see(*member, ViewChangeKind::Joined),
            Input::Gone(member) => self.see(*member, ViewChangeKind::Failed),
        }
    }

    fn see(&mut self, member: usize, kind: ViewChangeKind) {
        let change = ViewChange { group: GROUP, node: node(member), kind, version: 0 };
        self.engine.handle_view(self.now, &change);
    }

    fn misheard(flaw: Option<Flaw>, datagram: &Bytes) -> Bytes {
        let (Some(Flaw::DeliversEarly), Packet::Data(mut data)) = (flaw, packet(datagram)) else {
            return datagram.clone();
        };
        data.data.qos = data.data.qos.min(Qos::TotallyOrdered);
        encode_as(datagram, &Packet::Data(data)).into()
    }

    fn flawed(&self, datagram: Vec<u8>) -> impl Iterator<Item = Vec<u8>> + use<> {
        let mut instead = Vec::new();
        if let (Some(Flaw::ReusesPlaces), Packet::Ack { epoch, round }) =
            (self.flaw, packet(&datagram))
            && round.runs().len() > 1
        {
            for run in round.runs() {
                let round = Round { what: What::Order(vec![*run]), ..round.clone() };
                instead.push(encode_as(&datagram, &Packet::Ack { epoch, round }));
            }
        } else {
            instead.push(datagram);
        }
        instead.into_iter()
    }
}

fn encode_as(datagram: &[u8], packet: &Packet) -> Vec<u8> {
    let (header, _) = Header::decode(datagram).expect("an engine encoded it");
    let mut out = Vec::new();
    packet.encode(&mut out, header.group, header.origin(), header.view);
    out
}
