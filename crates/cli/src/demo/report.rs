use carom::NetCounters;
use carom::unstable::lateral;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::figures::{Delays, Figures};

/// The object that `carom demo --json` prints at the end. `docs/json.md` describes each field.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) nodes: usize,
    pub(crate) groups: usize,
    pub(crate) sent: u64,
    pub(crate) expected: u64,
    pub(crate) delivered: u64,
    pub(crate) duplicates: u64,
    pub(crate) corrupted: u64,
    pub(crate) lost: u64,
    pub(crate) outstanding: u64,
    pub(crate) losses_injected: u64,
    pub(crate) recovered: Recovered,
    pub(crate) recovery_ms: DelayMs,
    pub(crate) delivery_ms: DelayMs,
    pub(crate) overhead: f64,
    pub(crate) xors_per_packet: f64,
    pub(crate) path: &'static str,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    pub(crate) interrupted: bool,
}

#[derive(Debug, Serialize)]
pub(crate) struct Recovered {
    pub(crate) fec: u64,
    pub(crate) nak: u64,
    /// Messages recovered before their own packets arrived, which were not lost.
    pub(crate) overtaken: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct DelayMs {
    p50: f64,
    p99: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    p999: Option<f64>,
    max: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Work {
    pub(crate) net: NetCounters,
    pub(crate) lateral: lateral::Counters,
}

impl Recovered {
    /// Returns the recovered messages of `figures`, without those that were only overtaken. The
    /// engine delivers an overtaken message as recovered, before it learns that it was not lost.
    pub(crate) fn of(figures: &Figures, overtaken: u64) -> Self {
        let overtaken = overtaken.min(figures.fec);
        Self { fec: figures.fec - overtaken, nak: figures.nak, overtaken }
    }
}

impl DelayMs {
    pub(crate) fn of(delays: &Delays) -> Self {
        let [p50, p99] = [0.5, 0.99].map(|quantile| delays.quantile_ms(quantile));
        Self { p50, p99, p999: None, max: delays.max_ms() }
    }

    pub(crate) fn with_tail(delays: &Delays) -> Self {
        Self { p999: Some(delays.quantile_ms(0.999)), ..Self::of(delays) }
    }
}

/// Returns the numbers of lost and outstanding messages. All undelivered messages are lost, but in
/// an interrupted run, those not reported as lost are outstanding.
pub(crate) fn lost_and_outstanding(figures: &Figures, interrupted: bool) -> (u64, u64) {
    if interrupted {
        (figures.reported_lost, figures.outstanding())
    } else {
        (figures.expected.saturating_sub(figures.delivered), 0)
    }
}

impl Report {
    pub(crate) fn for_people(&self) -> String {
        let recovered = self.recovered.fec + self.recovered.nak;
        let share_of = |count| format!("{:.1} %", share(count, recovered) * 100.0);
        let ms = |value: f64| format!("{value:.2} ms");
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut row = |name: &str, value: String, more: String| {
            table.add_row([name.to_owned(), value, more]);
        };
        row("messages sent", self.sent.to_string(), format!("in {:.1} s", self.seconds));
        row("deliveries expected", self.expected.to_string(), String::new());
        row("delivered", self.delivered.to_string(), self.verdict());
        row("duplicates", self.duplicates.to_string(), String::new());
        row("lost", self.lost.to_string(), String::new());
        row("losses injected", self.losses_injected.to_string(), "of all datagrams".to_owned());
        row("recovered by FEC", self.recovered.fec.to_string(), share_of(self.recovered.fec));
        row("recovered by NAK", self.recovered.nak.to_string(), share_of(self.recovered.nak));
        row("overtaken", self.recovered.overtaken.to_string(), "by a repair, not lost".to_owned());
        let DelayMs { p50, p99, max, .. } = self.recovery_ms;
        row("recovery p50", ms(p50), format!("p99 {}, max {}", ms(p99), ms(max)));
        let DelayMs { p50, p99, p999, max } = self.delivery_ms;
        let p999 = ms(p999.unwrap_or(max));
        let tail = format!("p99 {}, p99.9 {p999}, max {}", ms(p99), ms(max));
        row("delivery p50", ms(p50), tail);
        row("overhead", format!("{:.1} %", self.overhead * 100.0), "share of repairs".to_owned());
        row("XORs per packet", format!("{:.2}", self.xors_per_packet), String::new());
        row("path", self.path.to_owned(), String::new());
        if let Some(column) = table.column_mut(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table.trim_fmt()
    }

    fn verdict(&self) -> String {
        match (self.lost, self.outstanding) {
            (0, 0) => "complete".to_owned(),
            (0, outstanding) => format!("{outstanding} still in flight at the interruption"),
            (lost, _) => format!("{lost} missing"),
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_repair_overtook_is_not_recovered() {
        let mut figures = Figures::default();
        (figures.fec, figures.nak) = (10, 2);
        let recovered = |overtaken| {
            let Recovered { fec, nak, overtaken } = Recovered::of(&figures, overtaken);
            (fec, nak, overtaken)
        };
        assert_eq!(recovered(0), (10, 2, 0));
        assert_eq!(recovered(4), (6, 2, 4));
        assert_eq!(recovered(11), (0, 2, 10), "a message of several packets is one");
    }

    #[test]
    fn what_is_not_here_is_lost_unless_the_user_ended_it() {
        let mut figures = Figures::default();
        (figures.expected, figures.delivered, figures.reported_lost) = (100, 90, 3);
        assert_eq!(lost_and_outstanding(&figures, false), (10, 0));
        assert_eq!(lost_and_outstanding(&figures, true), (3, 7));
    }

    #[test]
    fn the_json_has_the_fields_that_programs_rely_on() {
        let figures = Figures::default();
        let report = Report {
            nodes: 8,
            groups: 32,
            sent: 1,
            expected: 6,
            delivered: 6,
            duplicates: 0,
            corrupted: 0,
            lost: 0,
            outstanding: 0,
            losses_injected: 2,
            recovered: Recovered { fec: 1, nak: 1, overtaken: 0 },
            recovery_ms: DelayMs::of(&figures.recovery),
            delivery_ms: DelayMs::with_tail(&figures.delivery),
            overhead: 0.38,
            xors_per_packet: 5.0,
            path: "multicast",
            seconds: 8.0,
            seed: 1,
            interrupted: false,
        };
        let json = serde_json::to_value(&report).expect("it is plain data");
        let fields = "nodes groups sent expected delivered duplicates lost losses_injected \
                      recovered/fec recovered/nak recovered/overtaken recovery_ms/p50 \
                      recovery_ms/p99 recovery_ms/max delivery_ms/p50 delivery_ms/p99 \
                      delivery_ms/p999 delivery_ms/max overhead xors_per_packet path";
        for field in fields.split(' ') {
            assert!(json.pointer(&format!("/{field}")).is_some(), "{field}");
        }
        let text = report.for_people();
        assert!(text.contains("complete") && text.contains("50.0 %"), "{text}");
    }
}
