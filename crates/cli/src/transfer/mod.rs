//! The common parts of `carom send` and `carom recv`: the bulk group, its stream, and the output.

pub(crate) mod bars;
pub(crate) mod stream;
pub(crate) mod topology;

use carom::Profile;
use carom::blocking::{Group, Node};
use carom_terminal::{CliError, Outcome, output};

use crate::node;

pub(crate) fn join(node: &Node, group: &str) -> Result<Group, CliError> {
    node.join(group, Profile::bulk()).map_err(|error| node::refused(group, &error))
}

/// Returns the counters of the network and the bulk engine, for the summary. `path_mtu` is the path
/// MTU during the stream, because the current one ignores members that have left.
pub(crate) fn counters(node: &Node, path_mtu: Option<u16>) -> serde_json::Value {
    let status = node.status();
    let stats = status.stats;
    let of_sockets = [
        ("path_mtu", path_mtu.unwrap_or(status.path_mtu).into()),
        ("send_too_large", stats.net.send_too_large),
        ("datagrams_divided", stats.net.datagrams_divided),
        ("datagrams_joined", stats.net.datagrams_joined),
        ("datagrams_unjoined", stats.net.datagrams_unjoined),
        ("losses_injected", stats.net.losses_injected),
        ("inbox_dropped", stats.net.inbox_dropped),
        ("kernel_dropped", stats.net.kernel_dropped),
        ("send_dropped", stats.net.send_dropped),
        ("send_errors", stats.net.send_errors),
        ("send_calls", stats.net.send_calls),
        ("datagrams_out", stats.net.datagrams_out),
        ("datagrams_in", stats.net.datagrams_in),
        ("bytes_out", stats.net.bytes_out),
        ("bytes_in", stats.net.bytes_in),
    ];
    let all = stats.bulk.by_name().chain(of_sockets);
    all.map(|(name, count)| (name.to_owned(), count.into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Prints an event if `is_json`. A failed write is reported with the summary.
pub(crate) fn emit(is_json: bool, event: &serde_json::Value) {
    if is_json {
        let _ = output::json(event);
    }
}

pub(crate) fn told_in_json(
    is_json: bool,
    ended: Result<Outcome, CliError>,
) -> Result<Outcome, CliError> {
    if let (true, Err(error)) = (is_json, &ended) {
        // The error is printed on standard error in any case.
        let _ = output::json(&error.object());
    }
    ended
}

pub(crate) fn human_bytes(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

pub(crate) fn human_rate(bytes: u64, seconds: f64) -> String {
    format!("{}/s", human_bytes((bytes as f64 / seconds.max(1e-3)) as u64))
}
