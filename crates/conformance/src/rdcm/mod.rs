//! Scenarios of bulk groups (RDCM).

mod applications;
mod checkers;
pub mod cluster;
mod forgery;
mod history;
mod links;
mod multicast_reach;
mod recovery;
mod runner;
mod scenario;
mod settings;

use std::sync::Arc;

use carom_sim::Media;
use carom_sim::scenario::{Scenario, Suite};

use self::runner::BulkRunner;
pub(crate) use self::scenario::{Hosts, Step, scenario};
pub(crate) use self::settings::Settings;

/// The suite of scenarios of bulk groups.
pub struct BulkSuite;

impl Suite for BulkSuite {
    type Participants = Hosts;
    type Step = Step;
    type Runner = BulkRunner;

    fn name(&self) -> &'static str {
        "rdcm"
    }

    fn scenario(&self, seed: u64) -> Scenario<Hosts, Step> {
        scenario(seed)
    }

    fn describe(&self, seed: u64) -> String {
        Settings::of_seed(seed).to_string()
    }

    fn start(&self, scenario: &Scenario<Hosts, Step>, media: Option<Arc<dyn Media>>) -> BulkRunner {
        BulkRunner::new(scenario.seed, &scenario.participants, media)
    }
}
