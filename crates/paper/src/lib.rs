//! The evaluations of the Slingshot, Ricochet, RMP and RDCM papers, run again in the simulator.
//!
//! Each experiment has a plan, a TOML file that says what is run, what the paper reports and what
//! must hold. A [`Suite`] takes experiments, runs what they need in parallel, each piece of work
//! once, and gives for each a [`Report`]: a table of points, figures with the paper's points
//! beside ours, and relations that hold or not, with their margins. [`Report::csv`],
//! [`Report::svg`], [`html::page`] and [`Report::json`] write it down.
//!
//! The same seed gives the same points, however many threads run. What is measured on this
//! machine's processor is apart from the points and says so.
//!
//! ```
//! use carom_paper::{Options, Suite};
//!
//! let suite = Suite::named(&["ricochet-11"])?;
//! let options = Options { quick: true, ..Options::default() };
//! for report in suite.run(&options, &()) {
//!     assert!(report.holds(), "{:?}", report.relations);
//!     assert!(report.csv().starts_with("groups_per_node,losses,"));
//! }
//! # Ok::<(), carom_paper::SuiteError>(())
//! ```

mod cluster;
mod cost;
mod csv;
mod experiments;
mod figure;
pub mod html;
mod json;
mod lateral;
mod network;
mod ordered;
pub mod plan;
mod relation;
mod report;
mod service;
mod suite;
mod svg;
mod table;
pub mod units;
mod work;

pub use figure::{Axis, Figure, Kind, Scale, Series, Shape};
pub use relation::{Better, Relation, Sense};
pub use report::Report;
pub use suite::{Options, Progress, Suite, SuiteError, Watch};
pub use table::{Cell, Table};
