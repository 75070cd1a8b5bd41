use carom_figures::significant;

use super::median::{Median, short};
use super::metric::Metric;
use super::results::{Kind, Report};
use crate::account::Account;

/// Returns the table of a row: one line for each system, one column for each metric that any
/// system has. The median over the repetitions is followed by their spread.
pub(super) fn measured(report: &Report, row: &str) -> String {
    let systems = report.systems(row);
    let has = |metric: &Metric| {
        systems.iter().any(|(system, _)| report.median(row, system, *metric).is_some())
    };
    let metrics: Vec<Metric> = Metric::ALL.into_iter().filter(has).collect();
    let names = ["system", "delivered", "duplicates", "kernel drops", "orders"];
    let mut columns = names.map(str::to_owned).to_vec();
    columns.extend(metrics.iter().map(|metric| match metric.unit() {
        "" => metric.name().to_owned(),
        unit => format!("{}, {unit}", metric.name()),
    }));
    let lines = systems.iter().map(|(system, _)| {
        let accounts = report.accounts(row, system);
        let mut cells = vec![(*system).to_owned()];
        cells.extend(counts(&accounts));
        let medians = metrics.iter().map(|metric| report.median(row, system, *metric));
        cells.extend(medians.map(|it| it.map_or_else(String::new, Median::text)));
        cells
    });
    markdown(&columns, lines)
}

/// Returns the ratios of Carom to the best peer that missed nothing, and to raw sockets. Returns an
/// empty string if there is nothing to compare with.
pub(super) fn ratios(report: &Report, row: &str) -> String {
    let systems = report.systems(row);
    let is_complete =
        |system: &str| report.accounts(row, system).iter().all(|account| account.missing == 0);
    let mut lines = Vec::new();
    for (carom, _) in systems.iter().filter(|(_, kind)| *kind == Kind::Carom) {
        for metric in COMPARED {
            let Some(ours) = report.median(row, carom, metric) else { continue };
            let of = |wanted: Kind| systems.iter().filter(move |(_, kind)| *kind == wanted);
            let value = |system: &str| Some(report.median(row, system, metric)?.value);
            let peers = of(Kind::Peer).filter(|(peer, _)| is_complete(peer));
            let peers = peers.filter_map(|(peer, _)| Some((*peer, value(peer)?)));
            let best = peers.min_by(|(_, a), (_, b)| match metric.is_better_if_higher() {
                true => b.total_cmp(a),
                false => a.total_cmp(b),
            });
            let raw = of(Kind::Raw).find_map(|(raw, _)| value(raw));
            if best.is_none() && raw.is_none() {
                continue;
            }
            let ratio = |theirs: f64| short(ours.value / theirs);
            let own = format!("{} {}", short(ours.value), metric.unit()).trim_end().to_owned();
            lines.push(vec![
                (*carom).to_owned(),
                metric.name().to_owned(),
                own,
                best.map_or_else(String::new, |(peer, it)| format!("{} ({peer})", ratio(it))),
                raw.map_or_else(String::new, ratio),
            ]);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let columns = ["system", "metric", "value", "ratio to best peer", "ratio to raw sockets"];
    markdown(&columns.map(str::to_owned), lines.into_iter())
}

/// Returns the share of delivered copies, the numbers of duplicates and of kernel drops, and the
/// agreement of orders.
fn counts(accounts: &[&Account]) -> [String; 4] {
    let sum = |value: fn(&Account) -> u64| accounts.iter().map(|it| value(it)).sum::<u64>();
    let (expected, delivered) = (sum(|it| it.expected), sum(|it| it.delivered));
    let share = match expected {
        0 => String::new(),
        // Rounding must not hide missing copies.
        _ if delivered < expected => {
            let percent = 100.0 * delivered as f64 / expected as f64;
            format!("{} %", significant(percent.min(99.9999)))
        }
        _ => "100 %".to_owned(),
    };
    let order = if accounts.iter().all(|it| it.orders_agree) { "agree" } else { "differ" };
    let kernel_drops: Option<u64> = accounts.iter().map(|it| it.kernel_drops).sum();
    let kernel_drops = kernel_drops.map_or_else(String::new, |drops| drops.to_string());
    [share, sum(|it| it.duplicates).to_string(), kernel_drops, order.to_owned()]
}

fn markdown(columns: &[String], lines: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let rule = vec!["---".to_owned(); columns.len()];
    let mut text = line(columns) + &line(&rule).replace(' ', "");
    lines.for_each(|cells| text += &line(&cells));
    text
}

const COMPARED: [Metric; 8] = [
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::LatencyP999,
    Metric::RecoveredP50,
    Metric::RecoveredP99,
    Metric::Cpu,
    Metric::Packets,
    Metric::GoodputSlowest,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_missing_copy_is_not_rounded_away() {
        let account = Account { expected: 10_000_000, delivered: 9_999_999, ..Account::default() };
        assert_eq!(counts(&[&account])[0], "99.9999 %");
    }

    #[test]
    fn kernel_drops_are_summed_where_they_were_counted() {
        let account = |kernel_drops| Account { kernel_drops, ..Account::default() };
        let (one, two, none) = (account(Some(1)), account(Some(2)), account(None));
        assert_eq!(counts(&[&one, &two])[2], "3");
        assert_eq!(counts(&[&one, &none])[2], "");
    }
}
