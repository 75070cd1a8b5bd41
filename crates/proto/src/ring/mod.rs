//! Vocabulary of ordered groups: rings, locks, the total order, guarantees, and requests.

mod change;
mod event;
mod join_options;
mod locks;
mod place;
mod qos;
mod query;
mod quorum;
mod request;
mod view;

pub use self::change::{ListChange, ListChangeKind};
pub use self::event::{Removal, RingEvent, RingNews, ViewEvent};
pub use self::join_options::JoinOptions;
pub use self::locks::{Handler, LockChange, LockError, LockName, LockNews, Locks};
pub use self::place::{Epoch, Place, Process, Timestamp};
pub use self::qos::Qos;
pub use self::query::{QueryError, QueryId, QueryOptions, QueryResult, RingStatus};
pub use self::quorum::Quorum;
pub use self::request::{
    Answer, Outcome, ReplyError, Request, RequestError, RequestId, RequestOptions,
};
pub use self::view::{Member, RingView};
#[cfg(test)]
pub(crate) use self::{place::tests::process, view::tests::member};
