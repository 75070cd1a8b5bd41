//! Figures as data, and their drawing as SVG.
//!
//! ```
//! use carom_figures::{Axis, Figure, draw};
//!
//! let (x, y) = (Axis::linear("receivers"), Axis::log("latency in µs", 10.0));
//! let points = vec![(1.0, 90.0), (8.0, 95.0)];
//! let figure = Figure::new("latency", "Latency", x, y).ours("carom", points);
//! assert!(draw(&[figure]).contains("Latency"));
//! ```

mod figure;
mod number;
mod svg;

pub use figure::{Axis, Figure, Kind, Scale, Series, Shape};
pub use number::significant;
pub use svg::draw;
