//! A real etcd on loopback, with its data in a temporary directory.

use std::fs::File;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::wait_until;
use crate::ports::free_port;
use crate::skipping::lacking;

static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Etcd {
    /// Keeps tests apart: leases would expire in a test whose etcd competes with another test's.
    _turn: MutexGuard<'static, ()>,
    folder: TempDir,
    members: Vec<Member>,
    certificates: Option<Certificates>,
    quota: Option<usize>,
}

/// The files of a certificate authority, and of a certificate signed by it, which both sides use.
pub(crate) struct Certificates {
    _folder: TempDir,
    pub(crate) ca: String,
    pub(crate) certificate: String,
    pub(crate) key: String,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    /// Port of the health check, without TLS.
    health_port: u16,
    child: Option<Child>,
}

impl Etcd {
    /// Returns `None`, after a report on standard error, if etcd is not installed.
    pub(crate) fn start(members: usize) -> Option<Self> {
        Self::start_with(members, None, None)
    }

    pub(crate) fn start_small(quota: usize) -> Option<Self> {
        Self::start_with(1, None, Some(quota))
    }

    pub(crate) fn start_secure(certificates: Certificates) -> Option<Self> {
        Self::start_with(1, Some(certificates), None)
    }

    fn start_with(
        members: usize,
        certificates: Option<Certificates>,
        quota: Option<usize>,
    ) -> Option<Self> {
        if let Err(error) = Command::new("etcd").arg("--version").output() {
            lacking(&format!("needs etcd, of Debian's etcd-server: {error}"));
            return None;
        }
        let mut etcd = Self::stopped(members, certificates, quota);
        (0..members).for_each(|place| etcd.launch(place));
        (0..members).for_each(|place| etcd.await_health(place));
        Some(etcd)
    }

    fn stopped(members: usize, certificates: Option<Certificates>, quota: Option<usize>) -> Self {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let member = |_| Member {
            client_port: free_port(),
            peer_port: free_port(),
            health_port: free_port(),
            child: None,
        };
        let folder = tempfile::tempdir().expect("a folder for the test");
        let members = (0..members).map(member).collect();
        Self { _turn, folder, members, certificates, quota }
    }

    pub(crate) fn urls(&self) -> String {
        let urls = self.members.iter().map(|member| self.client_url(member));
        urls.collect::<Vec<_>>().join(",")
    }

    fn client_url(&self, member: &Member) -> String {
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}", member.client_port)
    }

    pub(crate) fn launch(&mut self, place: usize) {
        let peers: Vec<String> = (0..).zip(&self.members).map(peer).collect();
        let Member { peer_port, health_port, .. } = self.members[place];
        let (client, peer) = (self.client_url(&self.members[place]), url(peer_port));
        let log = self.folder.path().join(format!("{place}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("the directory belongs to the test");
        let mut command = Command::new("etcd");
        if let Some(Certificates { ca, certificate, key, .. }) = &self.certificates {
            command.args(["--cert-file", certificate, "--key-file", key]);
            command.args(["--client-cert-auth", "--trusted-ca-file", ca]);
        }
        if let Some(quota) = self.quota {
            command.args(["--quota-backend-bytes", &quota.to_string()]);
        }
        let child = command
            .args(["--name", &name(place)])
            .arg("--data-dir")
            .arg(self.folder.path().join(name(place)))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--listen-metrics-urls", &url(health_port)])
            .args(["--initial-cluster", &peers.join(",")])
            .args(["--initial-cluster-state", "new", "--logger", "zap"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd is installed");
        self.members[place].child = Some(child);
    }

    pub(crate) fn await_health(&self, place: usize) {
        let url = format!("{}/health", url(self.members[place].health_port));
        let agent: ureq::Agent =
            ureq::Agent::config_builder().timeout_global(Some(ASK_WITHIN)).build().into();
        wait_until(&format!("member {place} of etcd"), || {
            let answer = agent.get(&url).call();
            let text = answer.and_then(|mut answer| answer.body_mut().read_to_string());
            text.is_ok_and(|text| text.contains("\"health\":\"true\""))
        });
    }

    /// Sends a request as JSON, instead of the protocol that programs normally use.
    pub(crate) fn ask(&self, what: &str, question: &Value) -> Value {
        self.try_ask(what, question).unwrap_or_else(|error| panic!("{what}: {error}"))
    }

    pub(crate) fn try_ask(&self, what: &str, question: &Value) -> Result<Value, String> {
        let url = format!("{}/v3/{what}", url(self.members[0].client_port));
        let agent: ureq::Agent =
            ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let answer = agent.post(&url).send_json(question).map_err(|error| error.to_string())?;
        let is_done = answer.status().is_success();
        let text = answer.into_body().read_to_string().map_err(|error| error.to_string())?;
        if !is_done {
            return Err(text);
        }
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    pub(crate) fn kill(&mut self, place: usize) {
        if let Some(mut child) = self.members[place].child.take() {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
        }
    }
}

impl Certificates {
    /// Creates certificates, or returns `None` after a report if `openssl` is not installed.
    pub(crate) fn make() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (ca, ca_key) = (path("ca.pem"), path("ca.key"));
        let (certificate, key, names) = (path("etcd.pem"), path("etcd.key"), path("names"));
        let new = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
        let new = [&new[..], &["-nodes", "-days", "2"]].concat();
        let signer = ["-subj", "/CN=signer", "-keyout", &ca_key, "-out", &ca];
        let signed = ["-subj", "/CN=127.0.0.1", "-keyout", &key, "-out", &certificate];
        let signed = [&signed[..], &["-CA", &ca, "-CAkey", &ca_key, "-extensions", "x"]].concat();
        let text = "[req]\ndistinguished_name=n\n[n]\n[x]\nsubjectAltName=IP:127.0.0.1\n\
            basicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth,clientAuth\n";
        std::fs::write(&names, text).expect("the directory belongs to the test");
        let signed = [&signed[..], &["-config", &names]].concat();
        for args in [[&new[..], &signer[..]].concat(), [&new[..], &signed[..]].concat()] {
            let output = match Command::new("openssl").args(&args).output() {
                Ok(output) => output,
                Err(error) => {
                    lacking(&format!("needs openssl: {error}"));
                    return None;
                }
            };
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "openssl {args:?}: {said}");
        }
        Some(Self { _folder: folder, ca, certificate, key })
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            if let Some(mut child) = member.child.take() {
                // Both calls fail if the member has ended.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        if std::thread::panicking() {
            for place in 0..self.members.len() {
                let log = self.folder.path().join(format!("{place}.log"));
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let tail: Vec<&str> = text.lines().rev().take(5).collect();
                let text = format!("the end of the log of member {place}: {tail:#?}\n");
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        }
    }
}

fn name(place: usize) -> String {
    format!("member{place}")
}

fn peer((place, member): (usize, &Member)) -> String {
    format!("{}={}", name(place), url(member.peer_port))
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

const ASK_WITHIN: Duration = Duration::from_secs(2);
