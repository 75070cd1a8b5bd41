use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, Identity, TlsOptions};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{StoreError, plain};
use crate::options::EtcdOptions;

/// Members of an etcd cluster. All clones use the same member until that member stops answering.
#[derive(Clone)]
pub(super) struct Members {
    inner: Arc<Inner>,
}

struct Inner {
    urls: Vec<String>,
    options: ConnectOptions,
    /// Clients of the members, created on first use. A client reconnects by itself.
    clients: Mutex<Vec<Option<Client>>>,
    selected: watch::Sender<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No conclusive response: the request may have taken effect, be in flight, or be lost.
    Unsure(String),
    /// Etcd's database is full. The request has had no effect.
    Full,
    /// The request was rejected and has had no effect, or the data is damaged.
    Refused(String),
}

impl Members {
    pub(super) fn new(options: &EtcdOptions) -> Result<Self, StoreError> {
        if options.urls.is_empty() {
            return Err(StoreError::Settings("no etcd address is given".into()));
        }
        let mut connect = ConnectOptions::new()
            .with_connect_timeout(CONNECT_WITHIN)
            .with_keep_alive(PING_EVERY, PONG_WITHIN)
            .with_keep_alive_while_idle(true)
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let Some((name, password)) = &options.user {
            connect = connect.with_user(name, password);
        }
        if let Some(tls) = tls(options)? {
            connect = connect.with_tls(tls);
        }
        let urls = options.urls.clone();
        let clients = Mutex::new(vec![None; urls.len()]);
        let (selected, _) = watch::channel(0);
        Ok(Self { inner: Arc::new(Inner { urls, options: connect, clients, selected }) })
    }

    pub(super) fn addresses(&self) -> String {
        self.inner.urls.join(",")
    }

    pub(super) fn selection(&self) -> watch::Receiver<usize> {
        self.inner.selected.subscribe()
    }

    /// Sends a request once. If the member does not answer, later requests use the next member.
    pub(super) async fn request<T, F>(
        &self,
        within: Duration,
        work: impl FnOnce(Client) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let selected = *self.inner.selected.borrow();
        let answer = timeout(within, async { work(self.client(selected).await?).await }).await;
        let trouble = match answer {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Trouble::of(&error),
            Err(_) => Trouble::Unsure(format!("no answer within {} ms", within.as_millis())),
        };
        if matches!(trouble, Trouble::Unsure(_)) {
            self.deselect(selected);
        }
        Err(trouble)
    }

    /// Repeats a request until it is answered or `within` has passed. It may take effect more than
    /// once.
    pub(super) async fn retry<T, F>(
        &self,
        within: Duration,
        work: impl Fn(Client) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, Error>>,
    {
        self.retry_each(within, ANSWER_WITHIN.min(within), work).await
    }

    /// Like [`Members::retry`], but with the time limit `each` for each attempt.
    pub(super) async fn retry_each<T, F>(
        &self,
        within: Duration,
        each: Duration,
        work: impl Fn(Client) -> F,
    ) -> Result<T, Trouble>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let end = Instant::now() + within;
        loop {
            match self.request(each, &work).await {
                Err(Trouble::Unsure(_)) if Instant::now() + PAUSE < end => sleep(PAUSE).await,
                answer => return answer,
            }
        }
    }

    pub(super) fn deselect(&self, selected: usize) {
        let next = (selected + 1) % self.inner.urls.len();
        self.inner.selected.send_if_modified(|current| {
            let is_deselected = *current == selected && next != selected;
            if is_deselected {
                *current = next;
            }
            is_deselected
        });
    }

    async fn client(&self, selected: usize) -> Result<Client, Error> {
        let known = self.clients()[selected].clone();
        if let Some(client) = known {
            return Ok(client);
        }
        let url = &self.inner.urls[selected];
        let client = Client::connect([url], Some(self.inner.options.clone())).await?;
        self.clients()[selected] = Some(client.clone());
        Ok(client)
    }

    fn clients(&self) -> std::sync::MutexGuard<'_, Vec<Option<Client>>> {
        self.inner.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trouble {
    pub(super) fn of(error: &Error) -> Self {
        let Error::GRpcStatus(status) = error else {
            let text = error.to_string();
            return match error {
                Error::InvalidArgs(_) | Error::InvalidUri(_) => Self::Refused(text),
                _ => Self::Unsure(text),
            };
        };
        let text = status.message().to_owned();
        match status.code() as i32 {
            RESOURCE_EXHAUSTED if text.contains("database space exceeded") => Self::Full,
            INVALID_ARGUMENT | NOT_FOUND | PERMISSION_DENIED | FAILED_PRECONDITION
            | OUT_OF_RANGE | UNAUTHENTICATED => Self::Refused(text),
            _ => Self::Unsure(text),
        }
    }

    pub(super) fn text(&self) -> &str {
        match self {
            Self::Unsure(text) | Self::Refused(text) => text,
            Self::Full => "the database is full",
        }
    }
}

fn tls(options: &EtcdOptions) -> Result<Option<TlsOptions>, StoreError> {
    let read = |path: &std::path::Path| {
        let failed = |error: std::io::Error| {
            StoreError::Settings(format!("cannot read {}: {}", path.display(), plain(&error)))
        };
        std::fs::read(path).map_err(failed)
    };
    let is_secure = options.urls.iter().any(|url| url.starts_with("https://"));
    if is_secure && options.ca.is_none() {
        let what = "https requires the CA certificate of the etcd servers: --etcd-ca FILE";
        return Err(StoreError::Settings(what.into()));
    }
    let Some(ca) = &options.ca else { return Ok(None) };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read(ca)?));
    if let Some((certificate, key)) = &options.identity {
        tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
    }
    Ok(Some(tls))
}

/// Time limit for connecting, which detects a member whose machine is down.
const CONNECT_WITHIN: Duration = Duration::from_secs(1);
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);
/// Interval of keepalive pings. Etcd accepts intervals of 5 s or more.
const PING_EVERY: Duration = Duration::from_secs(6);
const PONG_WITHIN: Duration = Duration::from_secs(3);

// gRPC codes of rejected requests. `RESOURCE_EXHAUSTED` is one only if the database is full.
const INVALID_ARGUMENT: i32 = 3;
const NOT_FOUND: i32 = 5;
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const FAILED_PRECONDITION: i32 = 9;
const OUT_OF_RANGE: i32 = 11;
const UNAUTHENTICATED: i32 = 16;
