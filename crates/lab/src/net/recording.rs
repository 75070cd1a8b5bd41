use std::fs;
use std::path::{Path, PathBuf};

use carom_netns::{Capture, DropLog, Lab};
use carom_terminal::{CliError, output, plain};

use super::refusal::refused;

/// The options that record packets.
#[derive(clap::Args)]
pub(super) struct RecordingArgs {
    /// Capture the packets of each host into DIR/h1.pcap and so on
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Record the datagrams that each host loses into DIR/h1.drops.pcap and so on, and those that
    /// the uplink of each rack loses into DIR/rack1.drops.pcap and so on
    #[arg(long, value_name = "DIR")]
    drops: Option<PathBuf>,
}

/// The running captures and drop logs of a lab.
pub(super) struct Recording {
    captures: Vec<(String, Capture)>,
    drops: Vec<DropLog>,
}

impl RecordingArgs {
    pub(super) fn start(&self, lab: &Lab) -> Result<Recording, CliError> {
        let mut recording = Recording { captures: Vec::new(), drops: Vec::new() };
        if let Some(folder) = &self.pcap {
            create(folder)?;
            for host in lab.hosts() {
                let path = folder.join(format!("{}.pcap", host.name()));
                let capture = host.capture(&path).map_err(|error| refused(&error))?;
                recording.captures.push((host.name(), capture));
            }
        }
        if let Some(folder) = &self.drops {
            create(folder)?;
            let path = |name: String| folder.join(format!("{name}.drops.pcap"));
            let hosts = lab.hosts().iter().map(|host| host.log_drops(&path(host.name())));
            // The only rack of a lab has no uplink.
            let racks = lab.racks().iter().filter(|_| lab.racks().len() > 1);
            let racks = racks.map(|rack| rack.log_drops(&path(format!("rack{}", rack.number()))));
            for log in hosts.chain(racks) {
                recording.drops.push(log.map_err(|error| refused(&error))?);
            }
        }
        Ok(recording)
    }
}

impl Recording {
    /// Completes the files. Warns of captures that lack packets.
    pub(super) fn finish(self) -> Result<(), CliError> {
        for (host, capture) in self.captures {
            let missed = capture.stop().map_err(|error| refused(&error))?;
            if missed > 0 {
                output::say(format!("warning: the capture of {host} lacks {missed} packets"));
            }
        }
        for log in self.drops {
            log.complete().map_err(|error| refused(&error))?;
        }
        Ok(())
    }
}

fn create(folder: &Path) -> Result<(), CliError> {
    fs::create_dir_all(folder).map_err(|error| {
        let cause = format!("cannot create {}: {}", folder.display(), plain(&error));
        CliError::new(cause, "use a writable directory")
    })
}
