use std::fmt::Write as _;

use carom_figures::{Axis, Figure, Kind, Shape, draw};

use super::rates::{Bin, Lowest, Received, SHARE, lowest, rebuilt_at};

/// Results of the experiment.
pub(super) struct Report {
    /// Set sending rate of data, in Mbit/s.
    pub(super) rate: f64,
    pub(super) names: Vec<String>,
    pub(super) link: [String; 2],
    /// Receivers below the link that fails.
    pub(super) below: Vec<usize>,
    pub(super) killed: (usize, f64),
    pub(super) cut_at: f64,
    /// Messages that the other receivers have not delivered.
    pub(super) lost: u64,
    pub(super) bins: Vec<Bin>,
}

/// Number of intervals in a second.
const SECOND: usize = 10;

impl Report {
    pub(super) fn holds(&self) -> bool {
        let has_no_dip = self.lowest().is_some_and(|it| it.share >= SHARE);
        has_no_dip && self.rebuilt_at().is_some() && self.lost == 0
    }

    /// Returns the lowest delivery in any second after the first fault.
    fn lowest(&self) -> Option<Lowest> {
        let [_, after] = self.parts();
        lowest(after, SECOND, self.rate)
    }

    /// Returns the intervals before and after the first fault.
    fn parts(&self) -> [&[Bin]; 2] {
        let before = self.bins.partition_point(|bin| bin.span.1 <= self.cut_at);
        self.bins.split_at(before).into()
    }

    fn rebuilt_at(&self) -> Option<f64> {
        rebuilt_at(&self.bins, self.cut_at, &self.below, self.rate)
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
        let Self { rate, link: [from, to], cut_at, lost, .. } = self;
        let (dead, died_at) = (&self.names[self.killed.0], self.killed.1);
        let below: Vec<&str> = self.below.iter().map(|it| self.names[*it].as_str()).collect();
        let mut text = format!(
            "{rate} Mbit/s of data to {} receivers in a BCube(4,1)\n\
            {cut_at:.1} s: the link from {from} to {to} fails, above {}\n\
            {died_at:.1} s: {dead} is killed\n",
            self.names.len(),
            below.join(", ")
        );
        match self.rebuilt_at() {
            Some(at) => {
                let after = at - cut_at;
                let _ = writeln!(text, "multicast reaches them again {after:.1} s after the fault");
            }
            None => text += "multicast does not reach all of them again\n",
        }
        if let Some(Lowest { share, at, receiver, .. }) = self.lowest() {
            let (percent, name) = (share * 100.0, &self.names[receiver]);
            let _ = writeln!(
                text,
                "lowest delivery in a second, of the set rate: {percent:.0} % at {name}, {at:.1} s"
            );
        }
        for (when, bins) in ["before", "after"].into_iter().zip(self.parts()) {
            let lowest = lowest(bins, 1, self.rate);
            let Some(Lowest { share, pairs, below, .. }) = lowest else { continue };
            let _ = writeln!(
                text,
                "intervals of 100 ms below 90 % {when} the fault: {below} of {pairs}, the lowest \
                {:.0} %",
                share * 100.0
            );
        }
        text += &self.pauses();
        let _ = writeln!(text, "messages not delivered: {lost}");
        let verdict = if self.holds() { "holds" } else { "does not hold" };
        let _ = writeln!(
            text,
            "relation (no visible dip, multicast reaches all again, no loss): {verdict}"
        );
        text
    }

    /// Returns the intervals after the fault in which the sender sends less than half of its rate.
    fn pauses(&self) -> String {
        let is_pause = |bin: &&Bin| bin.span.0 >= self.cut_at && bin.sent < self.rate / 2.0;
        let times = self.bins.iter().filter(is_pause).map(|bin| format!("{:.1}", bin.span.0));
        let times: Vec<String> = times.collect();
        match times.len() {
            0 => "the sender does not pause\n".to_owned(),
            count => format!("the sender pauses in {count} intervals: {} s\n", times.join(", ")),
        }
    }

    fn csv(&self) -> String {
        let mut text = "seconds,sent_ip_mbit".to_owned();
        for name in &self.names {
            let name = name.replace(' ', "-");
            let _ = write!(text, ",{name}_payload_mbit,{name}_tree_ip_mbit,{name}_unicast_ip_mbit");
        }
        text.push('\n');
        for bin in &self.bins {
            let _ = write!(text, "{:.3},{:.3}", bin.span.0, bin.sent);
            for Received { payload, tree, unicast } in &bin.received {
                let payload = payload.map_or_else(String::new, |it| format!("{it:.3}"));
                let _ = write!(text, ",{payload},{tree:.3},{unicast:.3}");
            }
            text.push('\n');
        }
        text
    }

    fn points(&self, rate: impl Fn(&Bin) -> f64) -> Vec<(f64, f64)> {
        self.bins.iter().map(|bin| (bin.span.0, rate(bin))).collect()
    }

    fn rates(&self) -> Figure {
        let (x, y) = (Axis::linear("time in s"), Axis::linear("Mbit/s"));
        let mean = |bin: &Bin| {
            let payloads: Vec<f64> = bin.received.iter().filter_map(|it| it.payload).collect();
            payloads.iter().sum::<f64>() / payloads.len() as f64
        };
        let title = "(a) Sending rate (IP), and mean delivery of living receivers (payload)";
        Figure::new("rates", title, x, y)
            .with("sender", Kind::Ours, Shape::Curve, self.points(|bin| bin.sent))
            .with("receivers", Kind::Ours, Shape::Curve, self.points(mean))
    }

    fn ways(&self) -> Figure {
        let (x, y) = (Axis::linear("time in s"), Axis::linear("Mbit/s"));
        let affected = self.below[0];
        let received = |of: fn(&Received) -> f64| self.points(|bin| of(&bin.received[affected]));
        let name = &self.names[affected];
        Figure::new("ways", format!("(b) Rates at {name}, below the link"), x, y)
            .with("tree (IP)", Kind::Ours, Shape::Curve, received(|it| it.tree))
            .with("unicast (IP)", Kind::Ours, Shape::Curve, received(|it| it.unicast))
            .with("delivered", Kind::Ours, Shape::Curve, received(|it| it.payload.unwrap_or(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report in which the second receiver, below the link, delivers a share of the rate.
    fn report(share: f64) -> Report {
        let bin = |number: u32| {
            let at = f64::from(number) / 10.0;
            let killed = Received { payload: None, tree: 10.0, unicast: 0.0 };
            let tree = if (2..6).contains(&number) { 0.0 } else { 10.0 };
            let below = Received { payload: Some(10.0 * share), tree, unicast: 10.0 - tree };
            Bin { span: (at, at + 0.1), sent: 10.0, received: vec![killed, below] }
        };
        Report {
            rate: 10.0,
            names: vec!["server 0.1".into(), "server 0.2".into()],
            link: ["switch 0:0".into(), "server 0.2".into()],
            below: vec![1],
            killed: (0, 0.9),
            cut_at: 0.2,
            lost: 0,
            bins: (0..20).map(bin).collect(),
        }
    }

    #[test]
    fn relation_holds_without_a_dip_if_the_tree_is_rebuilt() {
        assert!(report(0.95).holds(), "{}", report(0.95).text());
        assert!(report(0.95).text().contains("again 0.4 s after"), "{}", report(0.95).text());
        assert!(!report(0.85).holds());
        assert!(report(0.85).text().contains("85 % at server 0.2"), "{}", report(0.85).text());
        assert!(!Report { lost: 1, ..report(0.95) }.holds());
        let mut by_repairs_only = report(0.95);
        by_repairs_only.bins.iter_mut().for_each(|bin| bin.received[1].tree = 0.0);
        assert!(!by_repairs_only.holds());
    }

    #[test]
    fn relation_holds_with_a_short_dip_and_not_with_a_long_one() {
        let dip = |intervals: std::ops::Range<usize>| {
            let mut report = report(1.0);
            let bins = &mut report.bins[intervals];
            bins.iter_mut().for_each(|bin| bin.received[1].payload = Some(1.0));
            report
        };
        assert!(dip(9..10).holds(), "{}", dip(9..10).text());
        assert!(dip(9..10).text().contains("after the fault: 1 of 18, the lowest 10 %"));
        assert!(!dip(9..11).holds());
        assert!(dip(9..11).text().contains("82 % at server 0.2"), "{}", dip(9..11).text());
        assert!(!dip(2..4).holds(), "it begins with the fault");
        assert!(dip(0..2).holds(), "it is before the fault");
    }

    #[test]
    fn pauses_of_the_sender_are_named() {
        let mut report = report(0.95);
        assert!(report.text().contains("the sender does not pause"));
        report.bins[7].sent = 0.0;
        assert!(report.text().contains("pauses in 1 intervals: 0.7 s"), "{}", report.text());
    }

    #[test]
    fn results_are_written_as_a_table_and_two_charts() {
        let [csv, svg, _] = report(1.0).files().map(|(_, text)| text);
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 21);
        assert_eq!(lines[1], "0.000,10.000,,10.000,0.000,10.000,10.000,0.000");
        assert!(svg.contains("(a)") && svg.contains("(b)"));
    }
}
