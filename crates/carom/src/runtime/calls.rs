use std::collections::BTreeMap;

use bytes::Bytes;
use carom_proto::ring::{self, Outcome, QueryId, QueryOptions, RequestOptions, RingStatus};
use carom_proto::rmp::Rmp;
use carom_proto::{GroupId, Time};

use crate::shared::commands::{Reply, ReplySender};
use crate::shared::error::{QueryError, RequestError};

#[derive(Debug, Default)]
pub(crate) struct Calls {
    requests: BTreeMap<(GroupId, u32), ReplySender<Result<Reply, RequestError>>>,
    queries: BTreeMap<QueryId, ReplySender<Result<Vec<RingStatus>, QueryError>>>,
}

impl Calls {
    pub(crate) fn request(
        &mut self,
        now: Time,
        rings: &mut Rmp,
        group: GroupId,
        (payload, options): (Bytes, RequestOptions),
        reply: ReplySender<Result<Reply, RequestError>>,
    ) {
        match rings.request(now, group, payload, options) {
            Ok(id) => {
                self.requests.insert((group, id.number), reply);
            }
            Err(error) => reply.send_if_wanted(Err(error.into())),
        }
    }

    pub(crate) fn on_answer(&mut self, group: GroupId, answer: ring::Answer) {
        if let Some(reply) = self.requests.remove(&(group, answer.id.number)) {
            reply.send_if_wanted(match answer.outcome {
                Outcome::Reply { by, payload } => Ok(Reply::Handled { by, payload }),
                Outcome::Acknowledged => Ok(Reply::Acknowledged),
                Outcome::Unanswered => Err(RequestError::Unanswered),
            });
        }
    }

    pub(crate) fn query(
        &mut self,
        now: Time,
        rings: &mut Rmp,
        group: GroupId,
        options: QueryOptions,
        reply: ReplySender<Result<Vec<RingStatus>, QueryError>>,
    ) {
        match rings.query(now, group, options) {
            Ok(id) => {
                self.queries.insert(id, reply);
                self.report_queries(rings);
            }
            Err(error) => reply.send_if_wanted(Err(error.into())),
        }
    }

    pub(crate) fn report_queries(&mut self, rings: &mut Rmp) {
        while let Some(looked) = rings.poll_query() {
            if let Some(reply) = self.queries.remove(&looked.id) {
                reply.send_if_wanted(Ok(looked.rings));
            }
        }
    }
}
