//! Compiles or runs the programs in the README and in the pages of the book as documentation tests.

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
