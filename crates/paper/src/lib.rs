//! The evaluations of the Slingshot, Ricochet, RMP and RDCM papers, repeated in the simulator.
//!
//! Each experiment has a plan: a TOML file with the setting, the values that the paper reports and
//! the relations that must hold. A [`Suite`] runs the jobs of its experiments in parallel, and
//! runs equal jobs only once. It returns a [`Report`] for each experiment: a table of points,
//! figures that also show the paper's points, and relations with their margins. [`Report::csv`],
//! [`Report::svg`], [`html::page`] and [`Report::json`] export a report.
//!
//! The same seed gives the same points, independently of the number of threads. Processor time
//! measured on this machine is reported separately, because it differs from run to run.
//!
//! ```
//! use carom_paper::{Options, Suite};
//!
//! let suite = Suite::named(&["ricochet-11"])?;
//! let options = Options { quick: true, ..Options::default() };
//! for report in suite.run(&options, &()) {
//!     assert!(report.holds(), "{:?}", report.relations);
//!     assert!(report.csv().starts_with("groups_per_node,losses,losses_min,"));
//! }
//! # Ok::<(), carom_paper::SuiteError>(())
//! ```

mod cluster;
mod cost;
mod csv;
mod delays;
mod experiments;
pub mod html;
mod json;
mod lateral;
mod line;
mod network;
mod ordered;
mod plan;
mod relation;
mod report;
mod runs;
mod service;
mod suite;
mod table;
mod work;

pub use plan::{Heading, PlanError, Reported};
pub use relation::{Relation, Sense};
pub use report::Report;
pub use suite::{Options, Progress, Suite, SuiteError, Watch};
