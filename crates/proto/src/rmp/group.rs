use alloc::boxed::Box;

use super::context::{Context, Timer};
use super::member::LocalMember;
use super::packet::Packet;
use super::rpc::{Client, Guest};
use super::sender::Sender;
use crate::{NodeId, ViewChangeKind};

#[derive(Debug)]
pub(super) enum Group {
    Member(Box<LocalMember>),
    Guest(Box<Guest>),
}

impl Group {
    pub(super) fn member(&self) -> Option<&LocalMember> {
        match self {
            Self::Member(member) => Some(member),
            Self::Guest(_) => None,
        }
    }

    pub(super) fn member_mut(&mut self) -> Option<&mut LocalMember> {
        match self {
            Self::Member(member) => Some(member),
            Self::Guest(_) => None,
        }
    }

    pub(super) fn client(&self) -> &Client {
        match self {
            Self::Member(member) => &member.application.client,
            Self::Guest(guest) => &guest.client,
        }
    }

    pub(super) fn sender(&self) -> &Sender {
        match self {
            Self::Member(member) => &member.application.sender,
            Self::Guest(guest) => &guest.sender,
        }
    }

    pub(super) fn version(&self) -> u32 {
        let ring = self.member().and_then(LocalMember::ring);
        ring.map_or(0, |ring| ring.epoch().version)
    }

    pub(super) fn on_packet(&mut self, cx: &mut Context<'_>, sender: NodeId, packet: Packet) {
        match self {
            Self::Member(member) => member.on_packet(cx, sender, packet),
            Self::Guest(guest) => guest.on_packet(cx, sender, packet),
        }
    }

    pub(super) fn on_timer(&mut self, cx: &mut Context<'_>, timer: Timer) {
        match self {
            Self::Member(member) => member.on_timer(cx, timer),
            Self::Guest(guest) => guest.on_timer(cx, timer),
        }
    }

    pub(super) fn on_node(&mut self, cx: &mut Context<'_>, node: NodeId, kind: ViewChangeKind) {
        match self {
            Self::Member(member) => member.on_node(cx, node, kind),
            Self::Guest(guest) => guest.on_node(node, kind),
        }
    }

    pub(super) fn leave(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Member(member) => member.leave(cx),
            Self::Guest(guest) => guest.leave(cx),
        }
    }

    pub(super) fn abandon(&mut self, cx: &mut Context<'_>) {
        match self {
            Self::Member(member) => member.abandon(cx),
            Self::Guest(guest) => guest.leave(cx),
        }
    }

    pub(super) fn end_if_over(&mut self, cx: &mut Context<'_>) -> bool {
        let is_over = match self {
            Self::Member(member) => member.departure.is_over,
            Self::Guest(guest) => guest.is_over,
        };
        if is_over {
            match self {
                Self::Member(member) => member.stop(cx),
                Self::Guest(_) => cx.cancel_all_but_linger(),
            }
            // The timer must not end a later state of this group with new requests.
            cx.cancel(Timer::Linger);
        }
        is_over
    }

    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Member(member) => {
                let ring = member.ring().map_or(0, |ring| ring.sources().held_bytes());
                ring + member.application.held_bytes()
            }
            Self::Guest(guest) => guest.sender.waiting_bytes + guest.client.held_bytes(),
        }
    }

    pub(super) fn check(&self) {
        if let Self::Member(member) = self {
            member.ring().into_iter().for_each(|ring| ring.check());
            member.application.check();
        }
    }
}
