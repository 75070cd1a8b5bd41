pub(crate) mod error;
pub(crate) mod fields;
pub mod frame;
pub(crate) mod limits;
pub(crate) mod reader;
