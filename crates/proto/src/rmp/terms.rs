use crate::ring::{JoinOptions, ListChange, ListChangeKind, Member, Process, Qos, Quorum};

#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) quorum: Quorum,
    pub(super) name_check: u32,
    pub(super) options: JoinOptions,
}

impl Terms {
    // No message is majority resilient if parts below a majority may continue.
    pub(super) fn allows(&self, qos: Qos) -> bool {
        if qos == Qos::Resilient(0) {
            return false;
        }
        let has_parts = matches!(self.quorum, Quorum::AtLeast(_));
        !has_parts || qos != Qos::MajorityResilient
    }

    // A client of an electorate waits for a ring of voters.
    pub(super) fn may_create_ring(&self) -> bool {
        self.options.is_voter || self.quorum.required_voters().is_none()
    }

    pub(super) fn member(&self, me: Process) -> Member {
        let JoinOptions { is_multicast, is_voter, .. } = self.options;
        Member { process: me, quorum: self.quorum, is_multicast, is_voter }
    }

    pub(super) fn join_request(&self, me: Process) -> ListChange {
        let kind = ListChangeKind::Join { member: self.member(me), name_check: self.name_check };
        ListChange { process: me, request: 0, kind }
    }
}
