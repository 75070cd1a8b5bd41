//! Holders of the README and of the pages of the book, whose programs are compiled or run as
//! documentation examples.

#[doc = include_str!("../../../README.md")]
struct Readme;

#[doc = include_str!("../README.md")]
struct CrateReadme;

#[doc = include_str!("../../../docs/tutorial.md")]
struct Tutorial;

#[doc = include_str!("../../../docs/choosing-a-profile.md")]
struct ChoosingAProfile;

#[doc = include_str!("../../../docs/market-data.md")]
struct MarketData;

#[doc = include_str!("../../../docs/replicated-service.md")]
struct ReplicatedService;

#[doc = include_str!("../../../docs/file-distribution.md")]
struct FileDistribution;

#[cfg(feature = "sim")]
#[doc = include_str!("../../../docs/testing-your-code.md")]
struct TestingYourCode;

#[cfg(feature = "sim")]
#[doc = include_str!("../../../docs/simulation.md")]
struct Simulation;
