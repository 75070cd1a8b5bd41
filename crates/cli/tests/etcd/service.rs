use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::process::{Running, carom, parsed};
use super::wait_until;

pub(crate) struct Registry {
    pub(crate) running: Running,
    pub(crate) address: String,
    http: String,
}

pub(crate) fn command(urls: &str, more: &[&str]) -> Command {
    command_with(urls, ["2s", "2s"], more)
}

fn command_with(urls: &str, [lease, detection]: [&str; 2], more: &[&str]) -> Command {
    let mut command = carom(&[]);
    command.args(["registry", "--etcd", urls, "--etcd-lease", lease, "--detection", detection]);
    command.args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"]).args(more);
    command
}

impl Registry {
    pub(crate) fn start(urls: &str) -> Self {
        Self::start_with(urls, &[])
    }

    pub(crate) fn start_with(urls: &str, more: &[&str]) -> Self {
        Self::serve(command(urls, more))
    }

    /// Like [`Registry::start`], but the leases of nodes do not expire within a test.
    pub(crate) fn start_patient(urls: &str) -> Self {
        Self::serve(command_with(urls, ["2s", "10min"], &[]))
    }

    /// Like [`Registry::start_patient`], for a machine on which etcd may be starved for seconds
    /// while it is filled. The lease of the process must last, because a full etcd grants no new
    /// one.
    pub(crate) fn start_more_patient(urls: &str) -> Self {
        Self::serve(command_with(urls, ["15s", "10min"], &[]))
    }

    /// Like [`Registry::start`], but the lease of the process does not expire within a test.
    pub(crate) fn start_leased_for_long(urls: &str) -> Self {
        Self::serve(command_with(urls, ["10min", "2s"], &[]))
    }

    fn serve(command: Command) -> Self {
        let mut running = Running::start(command);
        let line = running.wrote.wait_for("address");
        let serving = parsed(&line);
        let text = |field: &str| serving[field].as_str().expect("it is text").to_owned();
        Self { running, address: text("address"), http: text("http") }
    }

    pub(crate) fn status(&self) -> Option<Value> {
        self.get("status")
    }

    pub(crate) fn counter(&self, name: &str) -> u64 {
        let status = self.status().expect("it answers");
        status["counters"][name].as_u64().expect("the counter exists")
    }

    pub(crate) fn owned(&self) -> usize {
        let status = self.status().unwrap_or_default();
        let partitions = status["partitions"].as_array().map_or(&[][..], |list| list);
        partitions.iter().filter(|partition| partition["owned"] == true).count()
    }

    pub(crate) fn members(&self, group: &str) -> BTreeSet<String> {
        let group = self.get(&format!("members?group={group}")).unwrap_or_default();
        let members = group["members"].as_array().map_or(&[][..], |list| list);
        members.iter().filter_map(|member| member["node"].as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn await_owned(&self, count: usize) {
        wait_until(&format!("{count} partitions at {}", self.address), || self.owned() == count);
    }

    fn get(&self, what: &str) -> Option<Value> {
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(ASK_WITHIN)).build().into();
        let answer = agent.get(format!("http://{}/{what}", self.http)).call();
        answer.ok()?.body_mut().read_json().ok()
    }
}

const ASK_WITHIN: Duration = Duration::from_secs(5);
