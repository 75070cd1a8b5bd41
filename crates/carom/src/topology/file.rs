use std::collections::BTreeMap;
use std::ops::Range;

use carom_proto::rdcm::topology::{LinkSpeed, Topology, TopologyError, Vertex};
use serde::Deserialize;
use toml::Spanned;

use super::fault::{Fault, TopologyFileError};
use super::placement::Placement;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    bcube: Option<Spanned<BCube>>,
    fat_tree: Option<Spanned<FatTree>>,
    vl2: Option<Spanned<Vl2>>,
    tree: Option<Spanned<Tree>>,
    #[serde(default)]
    switches: Vec<Spanned<String>>,
    #[serde(default)]
    racks: BTreeMap<Spanned<String>, Vec<Spanned<String>>>,
    #[serde(default)]
    hosts: BTreeMap<Spanned<String>, Spanned<String>>,
    #[serde(default)]
    links: Vec<Spanned<Vec<Spanned<String>>>>,
    #[serde(default)]
    hosts_forward: bool,
    host_speed: Option<Spanned<String>>,
    switch_speed: Option<Spanned<String>>,
}

struct FileLink {
    ends: [Vertex; 2],
    speed: LinkSpeed,
}

/// Speeds of links for which the file gives none.
struct Speeds {
    hosts: u32,
    of_host: LinkSpeed,
    of_switch: LinkSpeed,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct BCube {
    ports: u32,
    k: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FatTree {
    ports: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Vl2 {
    aggregation_ports: u32,
    intermediate_ports: u32,
    rack_hosts: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    fanouts: Vec<u32>,
}

pub(super) struct Lines<'a>(pub(super) &'a str);

impl File {
    pub(super) fn topology(
        &self,
        lines: &Lines<'_>,
    ) -> Result<(Topology, Placement), TopologyFileError> {
        if self.hosts.is_empty() && self.racks.values().all(Vec::is_empty) {
            return Err(TopologyFileError::whole(Fault::NoHosts));
        }
        match self.generated() {
            Some((span, generated)) => self.place(lines, lines.of(span), generated),
            None => self.build(lines),
        }
    }

    fn generated(&self) -> Option<(Range<usize>, Result<Topology, TopologyError>)> {
        let bcube = self.bcube.as_ref().map(|it| {
            let BCube { ports, k } = *it.get_ref();
            (it.span(), Topology::bcube(ports, k))
        });
        let fat_tree =
            self.fat_tree.as_ref().map(|it| (it.span(), Topology::fat_tree(it.get_ref().ports)));
        let vl2 = self.vl2.as_ref().map(|it| {
            let Vl2 { aggregation_ports, intermediate_ports, rack_hosts } = *it.get_ref();
            (it.span(), Topology::vl2(aggregation_ports, intermediate_ports, rack_hosts))
        });
        let tree = self.tree.as_ref().map(|it| (it.span(), Topology::tree(&it.get_ref().fanouts)));
        bcube.or(fat_tree).or(vl2).or(tree)
    }

    fn is_mixed(&self) -> bool {
        let generated = [
            self.bcube.is_some(),
            self.fat_tree.is_some(),
            self.vl2.is_some(),
            self.tree.is_some(),
        ];
        let own = [
            !self.switches.is_empty(),
            !self.racks.is_empty(),
            !self.links.is_empty(),
            self.hosts_forward,
            self.host_speed.is_some(),
            self.switch_speed.is_some(),
        ];
        own.contains(&true) || generated.iter().filter(|is_there| **is_there).count() > 1
    }

    fn place(
        &self,
        lines: &Lines<'_>,
        line: usize,
        generated: Result<Topology, TopologyError>,
    ) -> Result<(Topology, Placement), TopologyFileError> {
        if self.is_mixed() {
            return Err(TopologyFileError::at(line, Fault::Mixed));
        }
        let topology =
            generated.map_err(|error| TopologyFileError::at(line, Fault::Shape(error)))?;
        let mut placement = Placement::new(line);
        let all: BTreeMap<&str, Vertex> =
            (0..topology.hosts()).map(|it| (topology.name(Vertex(it)), Vertex(it))).collect();
        for (name, node) in &self.hosts {
            let Some(vertex) = all.get(name.get_ref().as_str()) else {
                let ends = [0, topology.hosts() - 1].map(|it| topology.name(Vertex(it)).to_owned());
                let fault = Fault::NoSuchHost { name: name.get_ref().clone(), hosts: ends };
                return Err(TopologyFileError::at(lines.of(name.span()), fault));
            };
            placement.name(name.get_ref(), lines.of(name.span()), *vertex)?;
            placement.place(node.get_ref(), lines.of(node.span()), *vertex);
        }
        Ok((topology, placement))
    }

    fn build(&self, lines: &Lines<'_>) -> Result<(Topology, Placement), TopologyFileError> {
        let nodes = self.racks.values().flatten().map(|node| (node, node));
        let hosts: Vec<_> = nodes.chain(&self.hosts).collect();
        let switches: Vec<_> = self.racks.keys().chain(&self.switches).collect();
        let mut placement = Placement::new(1);
        let mut names = Vec::new();
        for (name, node) in &hosts {
            let vertex = Vertex(names.len() as u32);
            placement.name(name.get_ref(), lines.of(name.span()), vertex)?;
            placement.place(node.get_ref(), lines.of(node.span()), vertex);
            names.push(name.get_ref().clone());
        }
        for name in &switches {
            placement.name(name.get_ref(), lines.of(name.span()), Vertex(names.len() as u32))?;
            names.push(name.get_ref().clone());
        }
        // If the file contains only racks, they are placed below one switch.
        let core = (self.switches.is_empty() && self.links.is_empty() && self.hosts.is_empty())
            .then_some(Vertex(names.len() as u32));
        names.extend(core.map(|_| CORE.to_owned()));
        let below = names.split_off(hosts.len());
        let mut topology = Topology::new(names, below, self.hosts_forward)
            .map_err(|error| placement.wrong_shape(error))?;
        let speeds = self.speeds(lines, hosts.len() as u32)?;
        for FileLink { ends: [a, b], speed } in self.all_links(lines, &placement, core, &speeds)? {
            let linked = topology.link_of_speed(a, b, speed);
            linked.map_err(|error| placement.wrong_shape(error))?;
        }
        Ok((topology, placement))
    }

    fn speeds(&self, lines: &Lines<'_>, hosts: u32) -> Result<Speeds, TopologyFileError> {
        let speed = |given: &Option<Spanned<String>>| match given {
            Some(text) => lines.speed(text),
            None => Ok(LinkSpeed::GIGABIT),
        };
        let (of_host, of_switch) = (speed(&self.host_speed)?, speed(&self.switch_speed)?);
        Ok(Speeds { hosts, of_host, of_switch })
    }

    fn all_links(
        &self,
        lines: &Lines<'_>,
        placement: &Placement,
        core: Option<Vertex>,
        speeds: &Speeds,
    ) -> Result<Vec<FileLink>, TopologyFileError> {
        let vertex = |name: &Spanned<String>| {
            let unknown = || Fault::Unknown { name: name.get_ref().clone() };
            let found = placement.vertex(name.get_ref());
            found.ok_or_else(|| TopologyFileError::at(lines.of(name.span()), unknown()))
        };
        let mut links = Vec::new();
        for (rack, nodes) in &self.racks {
            let above = vertex(rack)?;
            for node in nodes {
                links.push(speeds.link([vertex(node)?, above]));
            }
            links.extend(core.map(|core| speeds.link([above, core])));
        }
        for link in &self.links {
            let (a, b, speed) = match link.get_ref().as_slice() {
                [a, b] => (a, b, None),
                [a, b, speed] => (a, b, Some(lines.speed(speed)?)),
                other => {
                    let fault = Fault::LinkParts { parts: other.len() };
                    return Err(TopologyFileError::at(lines.of(link.span()), fault));
                }
            };
            if a.get_ref() == b.get_ref() {
                let fault = Fault::Loop { name: a.get_ref().clone() };
                return Err(TopologyFileError::at(lines.of(a.span()), fault));
            }
            let link = speeds.link([vertex(a)?, vertex(b)?]);
            links.push(FileLink { speed: speed.unwrap_or(link.speed), ..link });
        }
        Ok(links)
    }
}

impl Speeds {
    fn link(&self, ends: [Vertex; 2]) -> FileLink {
        let has_host = ends.iter().any(|end| end.0 < self.hosts);
        FileLink { ends, speed: if has_host { self.of_host } else { self.of_switch } }
    }
}

impl Lines<'_> {
    fn of(&self, span: Range<usize>) -> usize {
        let before = self.0.get(..span.start).unwrap_or(self.0);
        1 + before.matches('\n').count()
    }

    fn speed(&self, text: &Spanned<String>) -> Result<LinkSpeed, TopologyFileError> {
        let refused = |error| TopologyFileError::at(self.of(text.span()), Fault::Speed(error));
        text.get_ref().parse().map_err(refused)
    }

    pub(super) fn refused(&self, error: &toml::de::Error) -> TopologyFileError {
        let line = error.span().map(|span| self.of(span));
        let message = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let fault = match message.strip_prefix("unknown field `").and_then(|it| it.split_once('`'))
        {
            None => Fault::Form { message, known: Vec::new() },
            Some((key, expected)) => {
                let known = expected.split('`').skip(1).step_by(2).map(str::to_owned).collect();
                Fault::Form { message: format!("unknown key '{key}'"), known }
            }
        };
        TopologyFileError { line, fault }
    }
}

const CORE: &str = "core";
