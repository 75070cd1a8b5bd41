use std::sync::{Arc, Mutex};

use carom_proto::wire::Datagram;
use carom_proto::{Endpoint, Time, Transmit, Wakeup};
use carom_sim::Machine;

use super::network::SimNetwork;
use super::oracle::{News, OracleLink};
use super::report::Report;
use crate::runtime::node_runtime::NodeRuntime;
use crate::shared::commands::NodeCommand;

pub(crate) struct SimMachine {
    runtime: NodeRuntime<SimNetwork>,
    oracle: Option<Arc<Mutex<OracleLink>>>,
    has_begun: bool,
    has_ended: bool,
}

pub(crate) enum Order {
    Command(NodeCommand),
    Serve,
    News(News),
}

impl SimMachine {
    pub(crate) fn new(
        runtime: NodeRuntime<SimNetwork>,
        oracle: Option<Arc<Mutex<OracleLink>>>,
    ) -> Self {
        Self { runtime, oracle, has_begun: false, has_ended: false }
    }

    fn serve(&mut self, now: Time) {
        if !self.has_ended {
            self.runtime.serve(now);
        }
        if let Some(reply) = self.runtime.closed(now) {
            self.has_ended = true;
            self.runtime.network_mut().reports.push_back(Report::Closed);
            reply.send_if_wanted(());
        }
    }

    fn on_news(&mut self, news: News) {
        if let Some(oracle) = &self.oracle {
            OracleLink::lock(oracle).news.push_back(news);
        }
    }
}

impl Machine for SimMachine {
    type Command = Order;
    type Event = Report;

    fn handle_command(&mut self, now: Time, order: Order) {
        match order {
            Order::Command(command) => self.runtime.command(now, command),
            Order::Serve => {}
            Order::News(news) => self.on_news(news),
        }
        self.serve(now);
    }

    fn handle_datagram(&mut self, now: Time, source: Endpoint, datagram: &[u8]) {
        if self.runtime.network_mut().accepts(datagram)
            && let Ok(datagram) = Datagram::parse(datagram)
        {
            self.runtime.node_mut().handle_datagram(now, source, &datagram);
            self.serve(now);
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.runtime.begin(now);
        }
        self.serve(now);
    }

    fn poll_transmit(&mut self, out: &mut Vec<u8>) -> Option<Transmit> {
        self.runtime.network_mut().poll_transmit(out)
    }

    fn poll_event(&mut self) -> Option<Report> {
        let report = self.runtime.network_mut().reports.pop_front();
        report.or_else(|| OracleLink::lock(self.oracle.as_ref()?).reports.pop_front())
    }

    fn poll_timeout(&self) -> Option<Wakeup> {
        let at = self.runtime.due(Time::ZERO)?;
        Some(Wakeup { at, reason: "turn of a node" })
    }

    fn check(&self) {
        self.runtime.node().check();
    }
}
