use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{ChildStderr, Stdio};

use nix::sys::signal::Signal;

use crate::error::Error;
use crate::namespace::Namespace;
use crate::process::Process;
use crate::tool;

/// A running capture of an interface, by `tcpdump`.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Process,
    stderr: BufReader<ChildStderr>,
}

impl Capture {
    /// Captures whole packets into the pcap file `path`. Returns when the capture has begun.
    pub(crate) fn start(
        namespace: &Namespace,
        interface: &str,
        path: &Path,
    ) -> Result<Self, Error> {
        let path = path.to_string_lossy();
        // Without the immediate mode, the last packets before the end would be lost. tcpdump would
        // otherwise change to a user who cannot write to every folder.
        let args = [
            "-i",
            interface,
            "-n",
            "-s",
            "0",
            "-B",
            BUFFER_KIB,
            "--immediate-mode",
            "-Z",
            "root",
            "-w",
            &*path,
        ];
        let mut command = namespace.command("tcpdump", &args);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut tcpdump = Process::start(command)?;
        let mut stderr = BufReader::new(tcpdump.take_stderr().expect("it is piped"));
        let mut said = String::new();
        while !said.contains("listening on") {
            let bytes = stderr.read_line(&mut said);
            if bytes.map_err(|error| Error::io("tcpdump", &error))? == 0 {
                let why = said.split_whitespace().collect::<Vec<_>>().join(" ");
                return Err(match why.contains("Couldn't change to") {
                    true => Error::lacking(why, "run as root: tcpdump refuses to run otherwise"),
                    false => tool::failed("tcpdump", &why),
                });
            }
        }
        Ok(Self { tcpdump, stderr })
    }

    /// Ends the capture. Returns the number of packets that it missed.
    pub fn stop(mut self) -> Result<u64, Error> {
        self.tcpdump.signal(Signal::SIGINT)?;
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).map_err(|error| Error::io("tcpdump", &error))?;
        self.tcpdump.wait()?;
        let missed = said.lines().find_map(|line| line.strip_suffix(" packets dropped by kernel"));
        missed.and_then(|count| count.parse().ok()).ok_or_else(|| {
            Error::new(
                format!("tcpdump did not end as expected: {said}"),
                "check its file and disk",
            )
        })
    }
}

const BUFFER_KIB: &str = "16384";
