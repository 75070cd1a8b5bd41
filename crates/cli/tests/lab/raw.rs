//! A node that consists of a link only: it sends the requests of a test, and returns each answer.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};

use carom_proto::membership::service::frame::{Frame, JoinRefusal};
use carom_proto::membership::service::{FrameReader, Hello, Member, Role};
use carom_proto::{Endpoint, GroupId, GroupSettings, Incarnation, NodeId, Profile, RateOfFire};

use crate::process::PATIENCE;

pub(crate) struct RawNode {
    pub(crate) id: NodeId,
    stream: TcpStream,
    reader: FrameReader,
}

impl RawNode {
    pub(crate) fn connect(address: &str, id: NodeId) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout that is not zero");
        Some(Self { id, stream, reader: FrameReader::default() })
    }

    pub(crate) fn open(address: &str, id: NodeId) -> Self {
        Self::try_open(address, id).expect("the service listens and answers")
    }

    /// Like [`Self::open`], but returns `None` if no process listens at the address, or if the
    /// connection ends. The incarnation is always the same.
    pub(crate) fn try_open(address: &str, id: NodeId) -> Option<Self> {
        let mut node = Self::connect(address, id)?;
        let endpoint = Endpoint(SocketAddr::from((Ipv4Addr::LOCALHOST, 9)));
        let member = Member { node: id, incarnation: 0, start: Incarnation(0), endpoint };
        let (cluster, rack) = (String::new(), String::new());
        node.send(&Frame::Hello(Hello { role: Role::Node, cluster, member, rack }));
        let answer = node.next()?;
        assert!(matches!(answer, Frame::Welcome(_)), "{answer:?}");
        Some(node)
    }

    pub(crate) fn join(&mut self, number: u32) {
        let name = group_name(number);
        let settings = GroupSettings::new(&name, Profile::TimeCritical(RateOfFire::default()));
        self.send(&Frame::Join { request: number, group: GroupId::of_name(&name), settings });
    }

    pub(crate) fn join_answered(&mut self, number: u32) -> Result<(), JoinRefusal> {
        self.join(number);
        loop {
            match self.next().expect("the link stands") {
                Frame::Joined { .. } => return Ok(()),
                Frame::JoinRefused { why, .. } => return Err(why),
                _ => {}
            }
        }
    }

    /// Sends a frame. Does nothing if the link has ended.
    pub(crate) fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub(crate) fn next(&mut self) -> Option<Frame> {
        let mut buffer = [0; 4096];
        loop {
            if let Some(frame) = self.reader.next_frame().expect("valid frames") {
                return Some(frame);
            }
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(count) => self.reader.push(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer arrived"),
                Err(_) => return None,
            }
        }
    }
}

pub(crate) fn group_name(number: u32) -> String {
    format!("group-{number}")
}
