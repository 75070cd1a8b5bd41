use std::collections::BTreeMap;
use std::net::IpAddr;

use carom_proto::NodeId;
use carom_proto::rdcm::Hosts;
use carom_proto::rdcm::topology::{Topology, TopologyError, Vertex};

use super::fault::{Fault, TopologyFileError};
use crate::net::seeds;

pub(super) struct Placement {
    /// Line of the statement that describes the network as a whole.
    line: usize,
    names: BTreeMap<String, Named>,
    lines: BTreeMap<Vertex, usize>,
    nodes: Vec<PlacedNode>,
}

struct Named {
    line: usize,
    vertex: Vertex,
}

struct PlacedNode {
    node: String,
    line: usize,
    host: Vertex,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Id(NodeId),
    Address(IpAddr, Option<u16>),
}

impl Placement {
    pub(super) fn new(line: usize) -> Self {
        Self { line, names: BTreeMap::new(), lines: BTreeMap::new(), nodes: Vec::new() }
    }

    pub(super) fn name(
        &mut self,
        name: &str,
        line: usize,
        vertex: Vertex,
    ) -> Result<(), TopologyFileError> {
        if let Some(former) = self.names.insert(name.to_owned(), Named { line, vertex }) {
            let (first, line) = (former.line.min(line), former.line.max(line));
            let fault = Fault::NameTwice { name: name.to_owned(), first };
            return Err(TopologyFileError::at(line, fault));
        }
        self.lines.insert(vertex, line);
        Ok(())
    }

    pub(super) fn place(&mut self, node: &str, line: usize, host: Vertex) {
        self.nodes.push(PlacedNode { node: node.to_owned(), line, host });
    }

    pub(super) fn vertex(&self, name: &str) -> Option<Vertex> {
        self.names.get(name).map(|named| named.vertex)
    }

    pub(super) fn wrong_shape(&self, error: TopologyError) -> TopologyFileError {
        TopologyFileError::at(self.line, Fault::Shape(error))
    }

    pub(super) fn hosts(&self) -> Result<Hosts, TopologyFileError> {
        let mut hosts = Hosts::default();
        let mut seen: BTreeMap<Key, usize> = BTreeMap::new();
        for PlacedNode { node, line, host } in &self.nodes {
            let fault = |reason| Fault::Node { node: node.clone(), reason };
            let keys = keys(node).map_err(|it| TopologyFileError::at(*line, fault(it)))?;
            for key in keys {
                if let Some(former) = seen.insert(key, *line) {
                    let (first, line) = (former.min(*line), former.max(*line));
                    let fault = Fault::NodeTwice { node: node.clone(), first };
                    return Err(TopologyFileError::at(line, fault));
                }
                match key {
                    Key::Id(id) => hosts.place_node(id, *host),
                    Key::Address(ip, port) => hosts.place_address(ip, port, *host),
                }
            }
        }
        Ok(hosts)
    }

    pub(super) fn check_connected(&self, topology: &Topology) -> Result<(), TopologyFileError> {
        let mut is_reached = vec![false; topology.len()];
        let mut edge = vec![Vertex(0)];
        is_reached[0] = true;
        while let Some(vertex) = edge.pop() {
            for (next, _) in topology.neighbours(vertex) {
                let was_reached = std::mem::replace(&mut is_reached[next.0 as usize], true);
                if !was_reached && topology.forwards(*next) {
                    edge.push(*next);
                }
            }
        }
        let Some(lost) = is_reached.iter().position(|is_reached| !is_reached) else {
            return Ok(());
        };
        let lost = Vertex(lost as u32);
        let [from, to] = [Vertex(0), lost].map(|it| topology.name(it).to_owned());
        Err(TopologyFileError::at(self.line_of(lost), Fault::NotConnected { from, to }))
    }

    pub(super) fn check_links(
        &self,
        topology: &Topology,
        most: usize,
    ) -> Result<(), TopologyFileError> {
        for vertex in (0..topology.len() as u32).map(Vertex) {
            let links = topology.neighbours(vertex).len();
            if links > most {
                let name = topology.name(vertex).to_owned();
                let fault = Fault::Links { name, links, most };
                return Err(TopologyFileError::at(self.line_of(vertex), fault));
            }
        }
        Ok(())
    }

    fn line_of(&self, vertex: Vertex) -> usize {
        self.lines.get(&vertex).copied().unwrap_or(self.line)
    }
}

fn keys(node: &str) -> Result<Vec<Key>, String> {
    if node.len() == ID_DIGITS
        && let Ok(id) = u64::from_str_radix(node, 16)
    {
        return Ok(vec![Key::Id(NodeId(id))]);
    }
    let mut found = seeds::resolve_one(node, ANY_PORT)?;
    found.sort_unstable();
    found.dedup();
    let port = |port| (port != ANY_PORT).then_some(port);
    Ok(found.into_iter().map(|it| Key::Address(it.ip(), port(it.port()))).collect())
}

const ID_DIGITS: usize = 16;
const ANY_PORT: u16 = 0;
