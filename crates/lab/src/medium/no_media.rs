use core::convert::Infallible;

use carom_sim::{Media, Medium, Topology};
use carom_terminal::CliError;

use super::closing::Closing;

/// Without network namespaces there is no lab.
#[derive(Debug)]
pub(crate) struct LabMedia(Infallible);

impl LabMedia {
    /// Returns an error.
    pub(crate) fn enter(_hosts: u32) -> Result<Result<Self, u8>, CliError> {
        Err(CliError::new("--lab needs network namespaces, which are part of Linux", "omit --lab"))
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self.0 {}
    }

    pub(crate) fn close(&self) -> Result<Closing, CliError> {
        match self.0 {}
    }
}

impl Media for LabMedia {
    fn create(&self, _topology: &Topology) -> Box<dyn Medium> {
        match self.0 {}
    }
}
