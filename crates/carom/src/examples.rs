//! Source code of the examples. This module exists only in the documentation.

#[doc = concat!("```ignore\n", include_str!("../examples/lock.rs"), "```")]
pub mod lock {}

#[doc = concat!("```ignore\n", include_str!("../examples/publish_subscribe.rs"), "```")]
pub mod publish_subscribe {}

#[doc = concat!("```ignore\n", include_str!("../examples/replicated_counters/store.rs"), "```")]
pub mod replicated_counters {}

#[doc = concat!("```ignore\n", include_str!("../examples/replicated_map/store.rs"), "```")]
pub mod replicated_map {}

#[doc = concat!("```ignore\n", include_str!("../examples/request_reply.rs"), "```")]
pub mod request_reply {}

#[doc = concat!("```ignore\n", include_str!("../examples/several_groups.rs"), "```")]
pub mod several_groups {}

#[doc = concat!("```ignore\n", include_str!("../examples/simulator_test.rs"), "```")]
pub mod simulator_test {}

#[doc = concat!("```ignore\n", include_str!("../examples/tokio_tasks.rs"), "```")]
pub mod tokio_tasks {}
