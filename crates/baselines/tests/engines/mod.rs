//! Engines of each protocol with default settings. Members are owed all messages.

use std::time::Duration;

use carom_baselines::StreamConfig;
use carom_baselines::ack::{self, AckTimeout};
use carom_baselines::bimodal::{self, Bimodal};
use carom_baselines::domain::{DomainConfig, Hierarchy};
use carom_baselines::fec::{self, SenderFec};
use carom_baselines::lbrm::{self, Lbrm};
use carom_baselines::rmtp::{self, Rmtp};
use carom_baselines::srm::{self, Srm};
use carom_baselines::tmtp::{self, Tmtp};
use carom_proto::{Engine, Origin};

#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(dead_code, reason = "not every test uses every item")]
pub(crate) enum Protocol {
    Srm,
    SrmFixed,
    SrmAdaptive,
    Bimodal,
    Fec,
    Ack,
    Rmtp,
    Lbrm,
    Tmtp,
}

pub(crate) fn make(
    protocol: Protocol,
    domains: DomainConfig,
    origin: impl Into<Origin>,
    seed: u64,
) -> Box<dyn Engine> {
    let streams = StreamConfig::from_first();
    match protocol {
        Protocol::Srm => {
            Box::new(Srm::new(origin, srm::Config { streams, ..srm::Config::datacenter() }, seed))
        }
        Protocol::SrmFixed => {
            Box::new(Srm::new(origin, srm::Config { streams, ..srm::Config::ns2_fixed() }, seed))
        }
        Protocol::SrmAdaptive => {
            Box::new(Srm::new(origin, srm::Config { streams, ..srm::Config::ns2_adaptive() }, seed))
        }
        Protocol::Bimodal => {
            let config = bimodal::Config { streams, ..bimodal::Config::default() };
            Box::new(Bimodal::new(origin, config, seed))
        }
        Protocol::Fec => {
            let give_up_after = Duration::from_secs(2);
            let config = fec::Config { streams, give_up_after, ..fec::Config::default() };
            Box::new(SenderFec::new(origin, config, seed))
        }
        Protocol::Ack => Box::new(AckTimeout::new(
            origin,
            ack::Config { streams, ..ack::Config::default() },
            seed,
        )),
        Protocol::Rmtp => {
            Box::new(Rmtp::new(origin, rmtp::Config { domains, ..rmtp::Config::default() }, seed))
        }
        Protocol::Lbrm => {
            Box::new(Lbrm::new(origin, lbrm::Config { domains, ..lbrm::Config::default() }, seed))
        }
        Protocol::Tmtp => {
            Box::new(Tmtp::new(origin, tmtp::Config { domains, ..tmtp::Config::default() }, seed))
        }
    }
}

pub(crate) fn domains(count: u32) -> DomainConfig {
    let hierarchy = Hierarchy::by_id(count).expect("at least one domain");
    DomainConfig { streams: StreamConfig::from_first(), hierarchy, ..DomainConfig::default() }
}
