use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use carom_bench::Magic;
use carom_bench::drops::Drops;
use carom_bench::plan::Row;
use carom_netns::{DropLog, Error, Lab, Loss};

use super::failure::Failure;

/// The record of what is lost in a run: at each receiver, or at the uplink of each rack.
pub(super) struct Losses {
    /// For each node the place of its log in `logs`.
    places: Vec<Option<usize>>,
    logs: Vec<(DropLog, PathBuf)>,
}

impl Losses {
    /// Starts to lose datagrams as the row demands, and to record them in the nodes' folders.
    pub(super) fn begin(lab: &Lab, row: &Row, folders: &[PathBuf]) -> Result<Self, Error> {
        match row.loss.shared {
            true => Self::at_uplinks(lab, row, folders),
            false => Self::at_receivers(lab, row, folders),
        }
    }

    /// Ends the losses of a lab.
    pub(super) fn end(lab: &Lab) -> Result<(), Error> {
        let hosts = lab.hosts().iter().map(|host| host.set_loss(&Loss::None));
        let has_uplinks = lab.racks().len() > 1;
        let racks = lab.racks().iter().filter(|_| has_uplinks);
        hosts.chain(racks.map(|rack| rack.set_loss(&Loss::None))).collect()
    }

    /// Returns the drops that hit each node.
    pub(super) fn drops(self, magic: Magic) -> Result<Vec<Drops>, Failure> {
        let logs = self.logs.into_iter().map(|(log, path)| read(log, &path, magic));
        let logs = logs.collect::<Result<Vec<Drops>, Failure>>()?;
        let of = |place: &Option<usize>| place.map_or_else(Drops::default, |it| logs[it].clone());
        Ok(self.places.iter().map(of).collect())
    }

    fn at_receivers(lab: &Lab, row: &Row, folders: &[PathBuf]) -> Result<Self, Error> {
        let is_lossless = row.loss.share == 0.0 && row.outages.is_empty();
        let mut losses = Self { places: vec![None; folders.len()], logs: Vec::new() };
        for (index, folder) in folders.iter().enumerate() {
            if is_lossless || !row.receives(index as u32) {
                continue;
            }
            let (host, path) = (&lab.hosts()[index], folder.join(DROPS));
            losses.places[index] = Some(losses.logs.len());
            losses.logs.push((host.log_drops(&path)?, path));
            host.set_loss(&Loss::Independent { probability: row.loss.share })?;
        }
        Ok(losses)
    }

    fn at_uplinks(lab: &Lab, row: &Row, folders: &[PathBuf]) -> Result<Self, Error> {
        let mut logs = Vec::new();
        for rack in lab.racks() {
            // Each rack has a node.
            let path = folders[rack.number() - 1].join(DROPS);
            logs.push((rack.log_drops(&path)?, path));
            rack.set_loss(&Loss::Independent { probability: row.loss.share })?;
        }
        let hosts = lab.hosts().iter().zip(folders);
        let places = hosts.map(|(host, _)| Some(host.rack() - 1)).collect();
        Ok(Self { places, logs })
    }
}

fn read(log: DropLog, path: &Path, magic: Magic) -> Result<Drops, Failure> {
    log.complete()?;
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let drops = Drops::read(BufReader::new(file), magic);
    Ok(drops.map_err(|error| format!("{}: {error}", path.display()))?)
}

const DROPS: &str = "drops.pcap";
