//! Ordered, atomic multicast: RMP, the token ring.
//!
//! # From the paper to the code
//!
//! | paper | here |
//! |---|---|
//! | 3.1 entities | [`ring`](crate::ring): `Process`, `RingView` |
//! | 3.2, figure 3.2 QoS | [`Qos`](crate::ring::Qos), `ring/delivery_queue` |
//! | 3.4 hosts without multicast | `reach` |
//! | 4.1, figure 4.1 packet types | [`packet`] |
//! | 4.2 basic delivery: DataList, OrderingQ | `ring`: `stream`, `log` |
//! | 4.2 token, NACK | `member`: `token`, `token_loss`, `nack` |
//! | 4.3 membership view changes | `member`: `admission`, `view_change`, `departure`; `query` |
//! | 4.3 locks | [`Locks`](crate::ring::Locks), `own_locks`, `member/own_changes` |
//! | 4.4 fault recovery | `member/reformation`, `member/quorum`, `member/merge` |
//! | 4.5 multi-RPC | [`Request`](crate::ring::Request), `rpc`, `seen`, `ring/sources` |
//! | 4.6 flow and congestion control, figure 4.2 | `flow`, `sender`, `timing` |
//!
//! # Deviations from the paper, with their reasons
//!
//! * In a working ring, a New List carries only the changes, not the whole view. A lock then costs
//!   one small packet, regardless of the number of members. Joiners receive the whole view by
//!   unicast.
//! * Requests for changes are served in order of arrival. One New List serves several lock
//!   requests. A token site that has messages to order keeps the token for their ACK after such a
//!   list, so that view changes and messages do not block each other. A member that waits to join
//!   or to leave keeps the token moving.
//! * At most one change of the members is unstable at any time. The majorities of any two
//!   views that members may have therefore intersect. The paper leaves this open.
//! * A member that has accepted the list of a reformation reports it in later votes, and the list
//!   counts until it is refuted. With the paper's two-phase commit alone, a member that
//!   acknowledged two lists in turn could be in the majority of both.
//! * K resilience and majority resilience count only members that have since taken the token. Until
//!   then, not even the source counts, because it may not hold the place of its message.
//! * Requests for a lock that is held may wait, in order of arrival. The paper refuses them. A lock
//!   is granted once a majority has received the grant, so that no reformation loses the grant,
//!   unless a minority may continue.
//! * A guest (a caller that is not a member) is a process of the ring, and its packets are ordered
//!   like those of members. It begins a new life where the paper sets the first-packet flag again.
//!   The ring keeps 256 guests. If there are more, the guest that was ordered longest ago is
//!   flushed. An age in the total order is the same at all members, while a time is not.
//! * A repeated request keeps its number, so that members deliver it once. A reply to a guest goes
//!   only to the guest, which requests all fragments after the first ones. The group is notified of
//!   it. The next holder of the handler's lock receives the open requests.
//! * A retry counts towards a reformation only if the awaited member has not been heard since the
//!   last one. With full queues, members that are alive answer later than all retries take.
//! * Messages that wait for a place when a fault occurs get one before the new list, provided that
//!   a member of the list has them. Views are therefore virtually synchronous at all levels from
//!   source order on.
//! * A member's own packets leave the window once another member is known to have them. The fact
//!   that a token site has ordered its own packets does not prove this. The window stops growing
//!   before packets wait in queues for longer than the timers run.
//! * One ACK orders several packets if no sender waits for their places, or if their source sends
//!   more at once. A packet that several members request is retransmitted to all members. A packet
//!   that one member requests is retransmitted to that member.
//! * Two rings of one group that formed in a partition merge when they hear of each other. The
//!   members of the smaller ring leave it. With
//!   [`rejoin`](crate::ring::JoinOptions::rejoin), they join the larger one.
//!
//! # Methods beyond the engine trait
//!
//! [`Rmp`] has the methods for locks, requests and queries. The results of locks and requests
//! arrive as [`RingNews`](crate::ring::RingNews).
//!
//! ```
//! use carom_proto::ring::*;
//! use carom_proto::rmp::{Config, Rmp};
//! use carom_proto::*;
//!
//! let (group, mut now) = (GroupId::of_name("accounts"), Time(1_000_000_000));
//! let settings = GroupSettings::new("accounts", Profile::Ordered(Quorum::Majority));
//! let mut alice = Rmp::new(NodeId(1), Config::default(), 42);
//! alice.join(now, group, settings)?;
//! alice.lock(now, group, LockName::of_name("month's end"))?;
//!
//! // No member admits her, so she creates a ring of her own: the lock is hers.
//! let news = loop {
//!     while alice.poll_transmit(&mut Vec::new()).is_some() {}
//!     match alice.poll_event() {
//!         Some(Event::Ring(event)) => match event.news {
//!             RingNews::Lock(news) => break news,
//!             other => println!("{other:?}"),
//!         },
//!         Some(other) => panic!("{other:?}"),
//!         None => {
//!             now = alice.poll_timeout().expect("she asks again").at;
//!             alice.handle_timeout(now);
//!         }
//!     }
//! };
//! assert_eq!(news.name, LockName::of_name("month's end"));
//! assert!(matches!(news.change, LockChange::Granted { .. }));
//! alice.unlock(now, group, news.name)?;
//!
//! // She locks a handler like any other lock. Requests to that handler are then hers to answer.
//! let handler = Handler::new(0).expect("there are six");
//! alice.lock(now, group, handler.lock())?;
//! let options = RequestOptions { handler: Some(handler), ..RequestOptions::default() };
//! let asked = alice.request(now, group, "how much?".into(), options)?;
//! while let Some(event) = alice.poll_event() {
//!     let Event::Ring(event) = event else { continue };
//!     match event.news {
//!         RingNews::Request(request) if request.is_ours => {
//!             alice.reply(now, group, request.id, "42".into())?;
//!         }
//!         RingNews::Answer(answer) => {
//!             assert_eq!(answer.id, asked);
//!             assert!(matches!(answer.outcome, Outcome::Reply { .. }));
//!         }
//!         other => println!("{other:?}"),
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api;
mod config;
mod context;
mod counters;
mod engine;
mod flow;
mod group;
mod member;
mod own_locks;
pub mod packet;
mod query;
mod reach;
mod ring;
mod rpc;
mod seen;
mod sender;
mod terms;
mod timing;

pub use self::config::{Config, ConfigError};
pub use self::counters::Counters;
pub use self::engine::Rmp;
pub use self::ring::{Data, Round, Run, What};
pub use self::seen::Seen;
