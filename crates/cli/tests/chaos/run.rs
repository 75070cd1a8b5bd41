use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use carom_netns::Layout;

use crate::checks::{self, Tails, Violation};
use crate::faults::{Draw, Fault, Ongoing};
use crate::kind::Kind;
use crate::lab::{Lab, permitted};
use crate::record::{Process, Record, Records};
use crate::site::Site;

/// Inject faults for a while, heal them, then check the records
#[derive(clap::Parser)]
pub(crate) struct Run {
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Messages per second and sender
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    #[arg(long = "kind", default_values_t = [Kind::Lateral, Kind::Ordered, Kind::Bulk])]
    #[arg(value_enum)]
    pub(crate) kinds: Vec<Kind>,
    /// Possible faults [default: all]
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Fault>,
    /// Directory for the records; without it, a temporary one is kept only after a failure
    #[arg(long)]
    records: Option<PathBuf>,
}

impl Run {
    /// Performs the run. Returns `false` after reporting violations on standard error.
    pub(crate) fn play(&self, kind: Kind) -> bool {
        let Some(lab) = build_lab() else { return true };
        let temporary = tempfile::tempdir().expect("there is room for the records");
        let folder = match &self.records {
            Some(folder) => folder.join(kind.name()),
            None => temporary.path().to_owned(),
        };
        fs::create_dir_all(&folder).expect("the directory for the records can be created");
        let mut entries = fs::read_dir(&folder).expect("it was just made");
        assert!(entries.next().is_none(), "{} holds records of another run", folder.display());
        let mut sites: Vec<Site<'_>> = (1..)
            .zip(lab.hosts())
            .map(|(number, host)| Site::new(host, number, kind, self.rate, &folder))
            .collect();
        thread::sleep(FORMING);
        let count = self.disturb(kind, &lab, &mut sites);
        let found = self.settle(kind, &mut sites);
        self.report(kind, count, &sites, &found);
        if !found.is_empty() && self.records.is_none() {
            let kept = temporary.keep();
            eprintln!("  the records are in {}", kept.display());
        }
        found.is_empty()
    }

    fn disturb(&self, kind: Kind, lab: &Lab, sites: &mut [Site<'_>]) -> usize {
        let mut draw = Draw::new(self.seed);
        let faults = if self.faults.is_empty() { Fault::of(kind) } else { self.faults.clone() };
        let mut ongoing: Vec<Ongoing> = Vec::new();
        if kind.has_one_sender() {
            sites[0].make_sender();
            thread::sleep(HEAD);
        }
        let (mut count, begun) = (0, Instant::now());
        while begun.elapsed() < Duration::from_secs(self.seconds) {
            let now = Instant::now();
            let (over, lasting) = ongoing.into_iter().partition(|it| it.until <= now);
            ongoing = lasting;
            ongoing
                .extend(over.into_iter().filter_map(|it: Ongoing| it.end(&mut draw, lab, sites)));
            if ongoing.len() < MOST_AT_ONCE && draw.below(5) == 0 {
                // Even a short run has a kill, and in a bulk group two senders.
                let fault = match count == 0 && faults.contains(&Fault::Kill) {
                    true => Fault::Kill,
                    false => draw.one_of(&faults),
                };
                if let Some(begun) = fault.begin(&mut draw, lab, sites) {
                    ongoing.push(begun);
                    count += 1;
                }
            }
            thread::sleep(STEP);
        }
        for it in ongoing {
            it.heal(&mut draw, lab, sites);
        }
        count
    }

    /// Waits until every live member sees the others and has received all messages that it is owed:
    /// first without new messages, then with new ones. Returns the violations.
    fn settle(&self, kind: Kind, sites: &mut [Site<'_>]) -> Vec<Violation> {
        for site in sites.iter_mut() {
            site.order("quiet");
        }
        let alive: Vec<Process> = sites.iter().map(Site::process).collect();
        let mut found = within(SETTLING, || {
            let records = read(sites);
            match kind {
                Kind::Lateral | Kind::Bulk => {
                    [checks::unseen(&records, &alive), checks::owed(&records, &alive)].concat()
                }
                // An ordered group reports rings, not views.
                Kind::Ordered => Vec::new(),
            }
        });
        let records = read(sites);
        let senders = sites.iter().filter(|site| site.is_sender).map(Site::process);
        let tails: Tails = senders.map(|process| (process, records[&process].published)).collect();
        for site in sites.iter_mut().filter(|site| site.is_sender) {
            site.order("publish");
        }
        thread::sleep(TAIL);
        for site in sites.iter_mut() {
            site.order("quiet");
        }
        found.extend(within(SETTLING, || {
            let records = read(sites);
            let mut missing = checks::unreached(&records, &alive, &tails);
            match kind {
                Kind::Lateral => missing.extend(checks::owed(&records, &alive)),
                Kind::Bulk => {
                    missing.extend(checks::owed(&records, &alive));
                    missing.extend(checks::unanswered(&records, &alive));
                }
                Kind::Ordered => missing.extend(checks::order(&records, &alive)),
            }
            missing
        }));
        found.extend(sites.iter_mut().filter_map(Site::end));
        found.extend(checks::always(&read(sites)));
        found
    }

    fn report(&self, kind: Kind, faults: usize, sites: &[Site<'_>], found: &[Violation]) {
        let records = read(sites);
        let published: u64 = records.values().map(|record| record.published).sum();
        let senders = records.values().filter(|record| record.published > 0).count();
        let deliveries: usize = records.values().map(|it| it.deliveries().count()).sum();
        let acknowledged: usize = records.values().map(|it| it.acknowledged.len()).sum();
        let confirmed: u64 = records.values().map(|record| record.confirmed).sum();
        eprintln!(
            "chaos, {} group, {MEMBERS} members, seed {}, {} s: {faults} faults, {} processes, \
             {senders} senders, {published} messages published, {deliveries} deliveries, \
             {acknowledged} acknowledged, {confirmed} confirmations; {} violations",
            kind.name(),
            self.seed,
            self.seconds,
            records.len(),
            found.len(),
        );
        for violation in found.iter().take(MOST_SHOWN) {
            eprintln!("  {violation}");
        }
    }
}

/// Builds a lab, also with a first cut, to find out that this is possible.
fn build_lab() -> Option<Lab> {
    let layout = Layout { hosts_per_rack: usize::from(MEMBERS), ..Layout::default() };
    let lab = permitted(Lab::build(&layout))?;
    permitted(lab.heal_all())?;
    Some(lab)
}

fn within(span: Duration, mut check: impl FnMut() -> Vec<Violation>) -> Vec<Violation> {
    let give_up = Instant::now() + span;
    loop {
        thread::sleep(Duration::from_secs(1));
        let found = check();
        if found.is_empty() || Instant::now() > give_up {
            return found;
        }
    }
}

fn read(sites: &[Site<'_>]) -> Records {
    let files = sites.iter().flat_map(Site::records);
    files.map(|(process, path)| (process, Record::read(&path))).collect()
}

pub(crate) const MEMBERS: u16 = 8;
const FORMING: Duration = Duration::from_secs(4);
const SETTLING: Duration = Duration::from_secs(60);
const HEAD: Duration = Duration::from_secs(1);
const TAIL: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(50);
const MOST_AT_ONCE: usize = 3;
const MOST_SHOWN: usize = 20;
