use std::collections::BTreeMap;
use std::time::Duration;

use carom::NodeId;
use carom::blocking::Node;
use carom_files::{ReceiverRow, State, Summary};
use carom_terminal::{CliError, counted, output};
use comfy_table::Table;
use serde_json::json;

use crate::transfer::{self, human_bytes, human_rate};

#[derive(Debug)]
pub(super) struct SlowReceiver {
    pub(super) receiver: Option<String>,
    pub(super) called: String,
    /// Lowest rate to which this receiver slowed the others, in percent of their possible rate.
    pub(super) percent_of_others: u8,
    pub(super) is_left_behind: bool,
}

impl SlowReceiver {
    fn line(&self) -> String {
        let Self { called, percent_of_others, .. } = self;
        match (self.is_left_behind, percent_of_others) {
            (true, _) => format!("slow: {called} was evicted"),
            (false, percent) => format!("slow: {called} slowed the others down to {percent} %"),
        }
    }

    fn object(&self, node: NodeId) -> serde_json::Value {
        json!({
            "receiver": self.receiver,
            "node": node.to_string(),
            "percent_of_others": self.percent_of_others,
            "left_behind": self.is_left_behind,
        })
    }
}

pub(super) fn tell(
    is_json: bool,
    summary: &Summary,
    slow: &BTreeMap<NodeId, SlowReceiver>,
    took: Duration,
    (node, path_mtu): (&Node, Option<u16>),
) -> Result<(), CliError> {
    let seconds = took.as_secs_f64();
    if is_json {
        let receivers: Vec<_> = summary.receivers.iter().map(row_of).collect();
        return output::json(&json!({
            "event": "summary",
            "transfer": summary.id.short(),
            "seconds": seconds,
            "bytes": summary.total_bytes,
            "stream_bytes": summary.stream_bytes,
            "sender_bytes": summary.sender_bytes,
            "pieces": summary.pieces,
            "pieces_skipped": summary.pieces_skipped,
            "connections_refused": summary.connections_refused,
            "receivers": receivers,
            "slow": slow.iter().map(|(node, it)| it.object(*node)).collect::<Vec<_>>(),
            "network": transfer::counters(node, path_mtu),
        }));
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "receiver",
        "state",
        "from stream",
        "from peers",
        "from sender",
        "had before",
    ]);
    for row in &summary.receivers {
        let state = match &row.state {
            State::Receiving => "receiving".to_owned(),
            State::Finished => "finished".to_owned(),
            State::Failed(reason) => format!("failed: {reason}"),
            State::Gone => "disconnected".to_owned(),
            _ => "unknown".to_owned(),
        };
        let bytes = [row.stream_bytes, row.peer_bytes, row.sender_bytes, row.resumed_bytes];
        let [stream, peers, sender, resumed] = bytes.map(human_bytes);
        table.add_row([row.name.clone(), state, stream, peers, sender, resumed]);
    }
    output::say(&table);
    output::say(outcome(summary, seconds));
    if summary.connections_refused > 0 {
        let refused = counted(summary.connections_refused, "connection");
        output::say(format_args!("{refused} refused: above the limit, or without a valid request"));
    }
    for it in slow.values() {
        output::say(it.line());
    }
    for row in summary.not_finished() {
        output::say(format_args!("not finished: {}", row.name));
    }
    Ok(())
}

/// Formats the result in one line. The rate excludes bytes that a receiver already had.
fn outcome(summary: &Summary, seconds: f64) -> String {
    let got = |row: &ReceiverRow| row.stream_bytes + row.peer_bytes + row.sender_bytes;
    let is_finished = |row: &&ReceiverRow| row.state == State::Finished;
    let finished = summary.receivers.iter().filter(is_finished).count();
    let most = summary.receivers.iter().filter(is_finished).map(got).max();
    let of = counted(summary.receivers.len(), "receiver");
    let total = human_bytes(summary.total_bytes);
    match most {
        None => format!("{total} to none of {of} in {seconds:.1} s"),
        Some(0) => {
            format!("{total} already present at {finished} of {of}: nothing sent, {seconds:.1} s")
        }
        Some(most) if most < summary.data_bytes => format!(
            "{total} to {finished} of {of} in {seconds:.1} s: at most {} sent to each, {}",
            human_bytes(most),
            human_rate(most, seconds)
        ),
        Some(_) => format!(
            "{total} to {finished} of {of} in {seconds:.1} s: {} each",
            human_rate(summary.total_bytes, seconds)
        ),
    }
}

pub(super) fn how_far(name: &str, pieces: u32, of: u32) -> String {
    format!("{name} ({pieces} of {})", counted(of, "piece"))
}

pub(super) fn ended_early(has_begun: bool, unfinished: &[String]) -> String {
    let mut text = match has_begun {
        true => ENDED.to_owned(),
        false => "interrupted before anything was sent".to_owned(),
    };
    if !unfinished.is_empty() {
        let named = unfinished.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
        text += &format!("; not finished: {named}");
        if let more @ 1.. = unfinished.len().saturating_sub(NAMED) {
            text += &format!(" and {more} more");
        }
    }
    text
}

fn row_of(row: &ReceiverRow) -> serde_json::Value {
    let (state, reason) = match &row.state {
        State::Receiving => ("receiving", None),
        State::Finished => ("finished", None),
        State::Failed(reason) => ("failed", Some(reason)),
        State::Gone => ("gone", None),
        _ => ("unknown", None),
    };
    json!({
        "name": row.name,
        "host": row.host,
        "state": state,
        "reason": reason,
        "pieces": row.pieces,
        "stream_bytes": row.stream_bytes,
        "peer_bytes": row.peer_bytes,
        "sender_bytes": row.sender_bytes,
        "resumed_bytes": row.resumed_bytes,
        "wrong_pieces": row.wrong_pieces,
    })
}

const ENDED: &str = "interrupted before all receivers had finished: they keep verified data, and \
                     resume when the same is sent again";
const NAMED: usize = 8;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    #[test]
    fn a_transfer_of_one_piece_is_told_in_the_singular() {
        assert_eq!(how_far("r", 0, 1), "r (0 of 1 piece)");
        assert_eq!(how_far("r", 1, 2), "r (1 of 2 pieces)");
    }

    fn summary(rows: &[(State, u64)]) -> Summary {
        let row = |(state, bytes): &(State, u64)| ReceiverRow {
            name: "r".into(),
            host: IpAddr::from([10, 0, 0, 1]),
            state: state.clone(),
            pieces: 1,
            stream_bytes: *bytes,
            peer_bytes: 0,
            sender_bytes: 0,
            resumed_bytes: 0,
            wrong_pieces: 0,
        };
        Summary {
            id: carom_files::TransferId([0; 32]),
            pieces: 1,
            total_bytes: 10 << 20,
            data_bytes: 10 << 20,
            stream_bytes: 0,
            pieces_skipped: 0,
            sender_bytes: 0,
            connections_refused: 0,
            receivers: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn the_outcome_tells_no_rate_of_what_was_not_sent() {
        let (all, failed) = (10 << 20, State::Failed("full".into()));
        let told = |rows: &[(State, u64)]| outcome(&summary(rows), 2.0);
        let one = told(&[(State::Finished, all)]);
        assert_eq!(one, "10.00 MiB to 1 of 1 receiver in 2.0 s: 5.00 MiB/s each");
        let none = told(&[(failed.clone(), all / 2)]);
        assert_eq!(none, "10.00 MiB to none of 1 receiver in 2.0 s");
        let present = told(&[(State::Finished, 0), (failed, 0)]);
        let wanted = "10.00 MiB already present at 1 of 2 receivers: nothing sent, 2.0 s";
        assert_eq!(present, wanted);
        let part = told(&[(State::Finished, 1 << 20), (State::Finished, 0)]);
        let wanted = "10.00 MiB to 2 of 2 receivers in 2.0 s: at most 1.00 MiB sent to each, \
                      512.00 KiB/s";
        assert_eq!(part, wanted);
    }

    #[test]
    fn an_interrupted_transfer_names_who_has_not_finished() {
        assert_eq!(ended_early(false, &[]), "interrupted before anything was sent");
        let names: Vec<String> = (1..=10).map(|it| format!("r{it}")).collect();
        let told = ended_early(true, &names);
        assert!(
            told.ends_with("not finished: r1, r2, r3, r4, r5, r6, r7, r8 and 2 more"),
            "{told}"
        );
    }
}
