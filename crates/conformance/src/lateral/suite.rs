use std::sync::Arc;

use carom_proto::Rng;
use carom_sim::Media;
use carom_sim::scenario::{Scenario, Suite};

use super::runner::EngineRunner;
use super::scenario::{Action, scenario};
use super::setup::Setup;
use crate::participants::Participants;
use crate::step::Step;

/// The scenarios of one kind of engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineSuite {
    /// Name on the command line.
    pub name: &'static str,
    /// Draws the settings of one scenario.
    pub set_up: fn(&mut Rng) -> Setup,
}

impl Suite for EngineSuite {
    type Participants = Participants;
    type Step = Step<Action>;
    type Runner = EngineRunner;

    fn name(&self) -> &'static str {
        self.name
    }

    fn scenario(&self, seed: u64) -> Scenario<Participants, Step<Action>> {
        scenario(seed)
    }

    fn describe(&self, seed: u64) -> String {
        (self.set_up)(&mut setup_rng(seed)).description
    }

    fn start(
        &self,
        scenario: &Scenario<Participants, Step<Action>>,
        media: Option<Arc<dyn Media>>,
    ) -> EngineRunner {
        let mut rng = setup_rng(scenario.seed);
        let setup = (self.set_up)(&mut rng);
        EngineRunner::new(setup, scenario, media, rng)
    }
}

/// Returns the generator of a run, from which the settings are drawn first.
fn setup_rng(seed: u64) -> Rng {
    Rng::new(seed ^ 0x91a7)
}
