use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use carom_registry::{GroupStatus, MulticastStatus, NodeStatus, Status as Report};
use carom_terminal::{CliError, Outcome, counted, output, plain, units};
use comfy_table::{Table, presets};
use serde::de::DeserializeOwned;

use super::address::default_http;

#[derive(clap::Args)]
pub(super) struct Members {
    /// Group name
    #[arg(value_parser = units::name)]
    group: String,
    #[command(flatten)]
    service: Service,
}

#[derive(clap::Args)]
pub(super) struct Service {
    /// HTTP address of the service's status and metrics
    #[arg(long, value_name = "ADDR:PORT", default_value_t = default_http())]
    http: SocketAddr,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Service {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let Some(status) = self.get::<Report>("status", None)? else {
            return Err(CliError::new("the service has no status page", NOT_A_SERVICE));
        };
        if self.json {
            return output::json(&status).map(|()| Outcome::Fine);
        }
        show(&status)?;
        Ok(Outcome::Fine)
    }
}

impl Members {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let group = self.service.get::<GroupStatus>("members", Some(&self.group))?;
        let Some(group) = group else {
            output::say(format_args!("group '{}' has no members", self.group));
            return Ok(Outcome::Finding);
        };
        if self.service.json {
            return output::json(&group).map(|()| Outcome::Fine);
        }
        output::say(format_args!("group '{}' is {}", self.group, group.profile));
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header(["node", "incarnation", "endpoint"]);
        for member in &group.members {
            table.add_row([&member.node, &member.incarnation.to_string(), &member.endpoint]);
        }
        output::lines(&table.trim_fmt())?;
        Ok(Outcome::Fine)
    }
}

impl Service {
    fn get<T: DeserializeOwned>(
        &self,
        what: &str,
        group: Option<&str>,
    ) -> Result<Option<T>, CliError> {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(ANSWER_WITHIN)).build().into();
        let mut request = agent.get(format!("http://{}/{what}", self.http));
        if let Some(group) = group {
            request = request.query("group", group);
        }
        match request.call() {
            Ok(mut response) => {
                response.body_mut().read_json().map(Some).map_err(|error| self.unread(&error))
            }
            Err(ureq::Error::StatusCode(404)) => Ok(None),
            Err(ureq::Error::StatusCode(503)) => {
                let cause = format!("the registry at {} cannot answer at the moment", self.http);
                Err(CliError::new(cause, "see `carom registry status`, or query another process"))
            }
            Err(error) => {
                let why = match &error {
                    ureq::Error::Io(error) => plain(error),
                    error => error.to_string(),
                };
                let cause = format!("no registry answers at {}: {why}", self.http);
                Err(CliError::new(cause, "start `carom registry` there, or pass its --http"))
            }
        }
    }
}

impl Service {
    fn unread(&self, error: &ureq::Error) -> CliError {
        match error {
            ureq::Error::Json(error) if error.is_syntax() || error.is_data() => {
                let cause = format!("invalid response from {}: {error}", self.http);
                CliError::new(cause, NOT_A_SERVICE)
            }
            _ => {
                let cause = format!("incomplete response from {}", self.http);
                CliError::new(cause, "check that `carom registry` still runs there, and retry")
            }
        }
    }
}

fn show(status: &Report) -> Result<(), CliError> {
    let Report { process, cluster, address, up_s, lease_ms, links, open_requests, .. } = status;
    output::say(format_args!(
        "process {process} of cluster {cluster:?} at {address}, up {up_s} s; lease {lease_ms} ms, \
         {}; waiting for the store: {}",
        counted(links, "link"),
        counted(open_requests, "request")
    ));
    let groups: usize = status.owned().map(|partition| partition.groups).sum();
    let members: usize = status.owned().map(|partition| partition.members).sum();
    let partitions = status.owned().count();
    output::say(format_args!(
        "owns {} with {} and {}",
        counted(partitions, "partition"),
        counted(groups, "group"),
        counted(members, "membership")
    ));
    if let Some(trouble) = &status.store.trouble {
        output::say(format_args!("store {}: {trouble}", status.store.kind));
    }
    if !status.store.processes.is_empty() {
        output::say(format_args!("registry processes: {}", status.store.processes.join(", ")));
    }
    if let Some(multicast) = &status.multicast {
        let dead = match multicast.dead_links.is_empty() {
            true => "none".to_owned(),
            false => multicast.dead_links.join(", "),
        };
        output::say(format_args!(
            "manages the multicast of {} in a network of {}; links believed dead: {dead}",
            counted(multicast.groups.len(), "group"),
            counted(multicast.hosts, "host")
        ));
        show_installations(multicast);
    }
    if status.nodes.is_empty() {
        output::lines("no nodes")?;
    } else {
        output::lines(&nodes(&status.nodes))?;
    }
    if status.detectors.is_empty() {
        output::say(format_args!(
            "no failure detectors: failed nodes are detected by their leases"
        ));
        return Ok(());
    }
    output::lines(&detectors(status))
}

fn show_installations(multicast: &MulticastStatus) {
    if !multicast.down_links.is_empty() {
        let down = multicast.down_links.join(", ");
        output::say(format_args!("links reported as down: {down}"));
    }
    let Some(installations) = &multicast.installations else { return };
    let installed = installations.iter().filter(|it| it.installed == Some(it.version)).count();
    let all = installations.len();
    output::say(format_args!("multicast trees installed in the network: {installed} of {all}"));
    for it in installations {
        if let Some(error) = &it.error {
            let failures = counted(it.failures, "failure");
            output::say(format_args!(
                "the tree of group {} is not installed ({failures}): {error}",
                it.group
            ));
        }
    }
}

fn nodes(nodes: &[NodeStatus]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let head = ["node", "incarnation", "endpoint", "rack", "linked", "silent", "watched by"];
    table.set_header(head);
    for node in nodes {
        table.add_row([
            node.node.clone(),
            node.incarnation.to_string(),
            node.endpoint.clone(),
            node.rack.clone(),
            yes_or_no(node.linked),
            format!("{} ms", node.silent_ms),
            node.watched_by.clone().unwrap_or_else(|| "its lease".to_owned()),
        ]);
    }
    table.trim_fmt()
}

fn detectors(status: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    let head = ["detector", "endpoint", "rack", "linked", "silent", "watches", "of racks", "next"];
    table.set_header(head);
    for detector in &status.detectors {
        let watched = status.nodes.iter().filter(|it| detector.watches.contains(&it.node));
        let racks: BTreeSet<String> = watched.map(|node| format!("{:?}", node.rack)).collect();
        table.add_row([
            detector.detector.clone(),
            detector.endpoint.clone(),
            detector.rack.clone(),
            yes_or_no(detector.linked),
            format!("{} ms", detector.silent_ms),
            counted(detector.watches.len(), "node"),
            racks.into_iter().collect::<Vec<_>>().join(", "),
            detector.next.clone().unwrap_or_else(|| "none".to_owned()),
        ]);
    }
    table.trim_fmt()
}

fn yes_or_no(is_so: bool) -> String {
    if is_so { "yes" } else { "no" }.to_owned()
}

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const NOT_A_SERVICE: &str = "pass the --http address of a `carom registry` of this version";
