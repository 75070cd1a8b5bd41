//! Types that the handles of the application share with the runtime. Nothing here imports another
//! folder.

pub(crate) mod addressing;
pub(crate) mod block_on;
pub(crate) mod commands;
pub(crate) mod driver_handle;
pub(crate) mod error;
pub(crate) mod event_queue;
pub(crate) mod group;
pub(crate) mod node;
pub(crate) mod notices;
pub(crate) mod profile;
pub(crate) mod receipt;
pub(crate) mod send_queue;
pub(crate) mod sleep;
pub(crate) mod status;
pub(crate) mod timers;
