use core::convert::Infallible;

use carom_sim::{Media, Medium, Topology};
use carom_terminal::CliError;

/// Without network namespaces there is no lab.
#[derive(Debug)]
pub(crate) struct LabMedia(Infallible);

impl LabMedia {
    /// Returns an error.
    pub(crate) fn enter(_hosts: u32) -> Result<Result<Self, u8>, CliError> {
        Err(CliError::new("--lab needs network namespaces, which are part of Linux", "omit --lab"))
    }

    pub(crate) fn kernel_drops(&self) -> Result<u64, CliError> {
        match self.0 {}
    }
}

impl Media for LabMedia {
    fn create(&self, _topology: &Topology) -> Box<dyn Medium> {
        match self.0 {}
    }
}
