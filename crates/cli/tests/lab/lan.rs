use std::process::Command;

use crate::process::{Running, carom};

pub(crate) struct Lan {
    port: &'static str,
}

impl Lan {
    pub(crate) const fn new(port: &'static str) -> Self {
        Self { port }
    }

    /// Returns a command without standard input. The first argument is the subcommand.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        // The port of a killed node must stay unused: rings with the same name would merge.
        let own = ["--interface", "127.0.0.1", "--port", "0", "--multicast-port", self.port];
        carom(&[&args[..1], &own, &args[1..]].concat())
    }

    pub(crate) fn start(&self, args: &[&str]) -> Running {
        Running::start(self.command(args))
    }

    pub(crate) fn start_piped(&self, args: &[&str]) -> Running {
        Running::start_piped(self.command(args))
    }
}
