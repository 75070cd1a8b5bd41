//! Operations of applications on a group: messages, locks, requests, replies, and ring queries.

use std::time::Duration;

use bytes::Bytes;
use carom_proto::ring::{Handler, LockName, Qos, QueryId, QueryOptions, Request, RequestOptions};
use carom_proto::{Engine, NodeId, SendOptions};

use super::{GROUP, Told, World};

impl World {
    pub(crate) fn send(&mut self, number: usize, qos: Qos, bytes: usize) {
        let level = crate::random::LEVELS.iter().position(|level| *level == qos);
        self.send_level(number, level.expect("a known level") as u8, bytes);
    }

    pub(crate) fn send_and_run(&mut self, number: usize, qos: Qos, bytes: usize, span: Duration) {
        self.send(number, qos, bytes);
        self.run_for(span);
    }

    /// Sends a message that contains its sender, its number and its QoS level.
    pub(crate) fn send_level(&mut self, number: usize, level: u8, bytes: usize) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        let mut payload = vec![host.id.0 as u8; bytes.max(6)];
        payload[1..5].copy_from_slice(&host.sent.to_be_bytes());
        payload[5] = level;
        let qos = crate::random::LEVELS[usize::from(level)];
        let options = SendOptions { qos: Some(qos), ..SendOptions::default() };
        if host.engine.send(now, GROUP, payload.into(), options).is_ok() {
            host.sent += 1;
        }
        self.drain(number);
    }

    pub(crate) fn send_unreliable(&mut self, number: usize, payload: &'static [u8]) {
        let options = SendOptions { qos: Some(Qos::Unreliable), ..SendOptions::default() };
        let (now, payload) = (self.now, Bytes::from_static(payload));
        let sent = self.hosts[number].engine.send(now, GROUP, payload, options);
        sent.expect("there is room");
        self.drain(number);
    }

    pub(crate) fn lock(&mut self, number: usize, name: LockName, waits: bool) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        if !host.wanted.insert(name) {
            return;
        }
        let asked = match waits {
            true => host.engine.lock(now, GROUP, name),
            false => host.engine.try_lock(now, GROUP, name),
        };
        if asked.is_err() {
            host.wanted.remove(&name);
        }
        self.drain(number);
    }

    pub(crate) fn lock_and_run(&mut self, number: usize, name: LockName, span: Duration) {
        self.lock(number, name, true);
        self.run_for(span);
    }

    pub(crate) fn confirm(&mut self, number: usize) {
        let now = self.clock(number);
        self.hosts[number].engine.confirm(now, GROUP);
        self.drain(number);
    }

    pub(crate) fn unlock(&mut self, number: usize, name: LockName) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        if host.wanted.contains(&name) && host.engine.unlock(now, GROUP, name).is_ok() {
            host.wanted.remove(&name);
            host.held.remove(&name);
        }
        self.drain(number);
    }

    pub(crate) fn holders(&self, name: LockName) -> Vec<usize> {
        let holds = |number: &usize| {
            let host = &self.hosts[*number];
            host.is_alive && host.held.contains(&name)
        };
        (0..self.hosts.len()).filter(holds).collect()
    }

    /// Makes a request that contains its caller, number and QoS level; see [`World::send_level`].
    pub(crate) fn call(&mut self, number: usize, handler: Option<u8>, level: u8, bytes: usize) {
        self.call_for(number, handler, level, bytes, Duration::from_secs(120));
    }

    pub(crate) fn call_for(
        &mut self,
        number: usize,
        handler: Option<u8>,
        level: u8,
        bytes: usize,
        patience: Duration,
    ) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        let mut payload = vec![host.id.0 as u8; bytes.max(6)];
        let call = host.calls.len() as u32 | 1 << 20;
        payload[1..5].copy_from_slice(&call.to_be_bytes());
        payload[5] = level;
        let payload = Bytes::from(payload);
        let options = RequestOptions {
            handler: handler.and_then(Handler::new),
            qos: crate::random::LEVELS[usize::from(level)],
            patience: Some(patience),
            via: None,
        };
        if let Ok(id) = host.engine.request(now, GROUP, payload.clone(), options) {
            host.calls.insert(id, payload);
        }
        self.drain(number);
    }

    pub(crate) fn call_via(&mut self, number: usize, via: Option<NodeId>) {
        let now = self.clock(number);
        let options = RequestOptions { via, ..RequestOptions::default() };
        let asked = self.hosts[number].engine.request(now, GROUP, "what?".into(), options);
        asked.expect("the request is accepted");
        self.drain(number);
    }

    pub(super) fn on_request(&mut self, number: usize, request: Request) -> Told {
        if request.is_ours {
            let now = self.clock(number);
            let thinks = Duration::from_micros(self.rng.below(20_000) as u64);
            let mut reply = request.payload.to_vec();
            reply.resize(self.reply_bytes.max(6), 0);
            let work = &mut self.hosts[number].work;
            work.insert((now + thinks, request.id), reply.into());
        }
        Told::Request { request }
    }

    pub(super) fn reply(&mut self, number: usize) {
        let (now, host) = (self.clock(number), &mut self.hosts[number]);
        while let Some(entry) = host.work.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((_, id), reply) = entry.remove_entry();
            // The request may be closed, because another member has replied or this one was
            // removed.
            let _closed = host.engine.reply(now, GROUP, id, reply);
        }
        self.drain(number);
    }

    pub(crate) fn look(&mut self, number: usize, options: QueryOptions) -> QueryId {
        let now = self.clock(number);
        let id = self.hosts[number].engine.query(now, GROUP, options).expect("there is room");
        self.drain(number);
        id
    }
}
