use std::fmt::Write as _;

use carom_figures::{Axis, Figure, Kind, Shape, draw};

use super::rates::{Bin, Lowest, SHARE, lowest};

/// Results of the experiment.
pub(super) struct Report {
    /// Set sending rate of data, in Mbit/s.
    pub(super) rate: f64,
    pub(super) names: Vec<String>,
    pub(super) link: [String; 2],
    /// A receiver below the link that fails.
    pub(super) affected: usize,
    pub(super) killed: (usize, f64),
    pub(super) cut_at: f64,
    pub(super) rebuilt_at: Option<f64>,
    pub(super) bins: Vec<Bin>,
}

/// Time after the fault in which receiving rates may be lower.
const DETECTION: f64 = 0.1;

impl Report {
    pub(super) fn holds(&self) -> bool {
        self.rebuilt_at.is_some() && self.lowest().is_some_and(|it| it.share >= SHARE)
    }

    fn lowest(&self) -> Option<Lowest> {
        lowest(&self.bins, self.cut_at + DETECTION, self.killed)
    }

    /// Returns the names and contents of the files.
    pub(super) fn files(&self) -> [(&'static str, String); 3] {
        let figures = [self.rates(), self.ways()];
        [
            ("figure-15.csv", self.csv()),
            ("figure-15.svg", draw(&figures)),
            ("figure-15.txt", self.text()),
        ]
    }

    /// Returns the relation and the faults in words.
    pub(super) fn text(&self) -> String {
        let Self { rate, link: [from, to], cut_at, .. } = self;
        let (dead, died_at) = (&self.names[self.killed.0], self.killed.1);
        let mut text = format!(
            "{rate} Mbit/s of data to {} receivers in a BCube(4,1)\n\
            {cut_at:.1} s: the link from {from} to {to} fails\n\
            {died_at:.1} s: {dead} is killed\n",
            self.names.len()
        );
        match self.rebuilt_at {
            Some(at) => {
                let _ = writeln!(text, "the tree is rebuilt {:.1} s after the fault", at - cut_at);
            }
            None => text += "the tree is not rebuilt\n",
        }
        if let Some(Lowest { share, at, receiver, pairs, below }) = self.lowest() {
            let (percent, name) = (share * 100.0, &self.names[receiver]);
            let _ = writeln!(
                text,
                "lowest share of the sending rate: {percent:.0} % at {name}, {at:.1} s"
            );
            let _ = writeln!(text, "intervals of a receiver below 90 %: {below} of {pairs}");
        }
        let verdict = if self.holds() { "holds" } else { "does not hold" };
        let _ = writeln!(text, "relation (no visible dip, the tree is rebuilt): {verdict}");
        text
    }

    fn csv(&self) -> String {
        let mut text = "seconds,sent_mbit".to_owned();
        for name in &self.names {
            let name = name.replace(' ', "-");
            let _ = write!(text, ",{name}_tree_mbit,{name}_overlay_mbit");
        }
        text.push('\n');
        for bin in &self.bins {
            let _ = write!(text, "{:.3},{:.3}", bin.span.0, bin.sent);
            for (by_tree, by_overlay) in &bin.received {
                let _ = write!(text, ",{by_tree:.3},{by_overlay:.3}");
            }
            text.push('\n');
        }
        text
    }

    fn points(&self, rate: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
        self.bins.iter().map(|bin| (bin.span.0, rate(bin))).collect()
    }

    /// Returns the mean receiving rate of the living receivers.
    fn mean(&self, bin: &Bin) -> f64 {
        let is_alive = |it: &usize| *it != self.killed.0 || bin.span.1 <= self.killed.1;
        let rates: Vec<f64> =
            (0..self.names.len()).filter(is_alive).map(|it| bin.total(it)).collect();
        rates.iter().sum::<f64>() / rates.len() as f64
    }

    fn rates(&self) -> Figure {
        let (x, y) = (Axis::linear("time in s"), Axis::linear("Mbit/s"));
        let title = "(a) Sending rate, and mean receiving rate of living receivers";
        Figure::new("rates", title, x, y)
            .with("sender", Kind::Ours, Shape::Curve, self.points(|bin| bin.sent))
            .with("receivers", Kind::Ours, Shape::Curve, self.points(|bin| self.mean(bin)))
    }

    fn ways(&self) -> Figure {
        let (x, y) = (Axis::linear("time in s"), Axis::linear("Mbit/s"));
        let name = &self.names[self.affected];
        let by_tree = self.points(|bin| bin.received[self.affected].0);
        let by_overlay = self.points(|bin| bin.received[self.affected].1);
        Figure::new("ways", format!("(b) Receiving rate at {name}, below the link"), x, y)
            .with("tree", Kind::Ours, Shape::Curve, by_tree)
            .with("overlay", Kind::Ours, Shape::Curve, by_overlay)
            .with("all", Kind::Ours, Shape::Curve, self.points(|bin| bin.total(self.affected)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(share: f64) -> Report {
        let bin = |number: u32| {
            let at = f64::from(number) / 10.0;
            let received = vec![(10.0, 0.0), (0.0, 10.0 * share)];
            Bin { span: (at, at + 0.1), sent: 10.0, received }
        };
        Report {
            rate: 10.0,
            names: vec!["server 0.1".into(), "server 0.2".into()],
            link: ["switch 0:0".into(), "server 0.2".into()],
            affected: 1,
            killed: (0, 0.9),
            cut_at: 0.2,
            rebuilt_at: Some(0.6),
            bins: (0..10).map(bin).collect(),
        }
    }

    #[test]
    fn relation_holds_without_a_dip_if_the_tree_is_rebuilt() {
        assert!(report(0.95).holds());
        assert!(!report(0.85).holds());
        assert!(!Report { rebuilt_at: None, ..report(0.95) }.holds());
        assert!(report(0.85).text().contains("85 % at server 0.2"), "{}", report(0.85).text());
    }

    #[test]
    fn results_are_written_as_a_table_and_two_charts() {
        let [csv, svg, _] = report(1.0).files().map(|(_, text)| text);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 11);
        assert_eq!(lines[1], "0.000,10.000,10.000,0.000,0.000,10.000");
        assert!(svg.contains("(a)") && svg.contains("(b)"));
    }
}
