use std::net::SocketAddr;
use std::time::Duration;

use carom_terminal::{CliError, Outcome, counted, output, plain};
use serde_json::json;

use super::address::default_http;

/// Arguments of a report on a link to the multicast manager.
#[derive(clap::Args)]
pub(super) struct Report {
    /// State of the link
    #[arg(value_enum)]
    state: State,
    /// Switch, rack or host at one end, by its name in the topology file
    a: String,
    /// Switch, rack or host at the other end
    b: String,
    /// HTTP address of the service's status and metrics
    #[arg(long, value_name = "ADDR:PORT", default_value_t = default_http())]
    http: SocketAddr,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum State {
    /// The link is dead: no tree uses it until it is reported as up
    Down,
    /// The link works: trees may use it again
    Up,
}

impl Report {
    pub(super) fn run(&self) -> Result<Outcome, CliError> {
        let state = match self.state {
            State::Down => "down",
            State::Up => "up",
        };
        let links = self.send(state)?;
        if self.json {
            output::json(&json!({ "between": [self.a, self.b], "state": state, "links": links }))?;
        } else {
            let (a, b, links) = (&self.a, &self.b, counted(links, "link"));
            output::say(format_args!("{links} between '{a}' and '{b}': {state}"));
        }
        Ok(Outcome::Fine)
    }

    fn send(&self, state: &str) -> Result<u64, CliError> {
        let agent: ureq::Agent = ureq::Agent::config_builder()
            .timeout_global(Some(ANSWER_WITHIN))
            .http_status_as_error(false)
            .build()
            .into();
        let report = json!({ "between": [self.a, self.b], "state": state });
        let sent = agent.post(format!("http://{}/link", self.http)).send_json(&report);
        let mut response = sent.map_err(|error| self.unanswered(&error))?;
        let status = response.status().as_u16();
        let body = response.body_mut().read_to_string().map_err(|error| self.unanswered(&error))?;
        if status == 200 {
            let answer: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
            return answer["links"].as_u64().ok_or_else(|| self.no_service());
        }
        let (cause, fix) = body.split_once("\nfix: ").unwrap_or((&body, FIX));
        match cause.trim() {
            "" => Err(self.no_service()),
            cause => Err(CliError::new(cause.to_owned(), fix.trim().to_owned())),
        }
    }

    fn unanswered(&self, error: &ureq::Error) -> CliError {
        let why = match error {
            ureq::Error::Io(error) => plain(error),
            error => error.to_string(),
        };
        let cause = format!("no registry answers at {}: {why}", self.http);
        CliError::new(cause, "start `carom registry --topology FILE` there, or pass its --http")
    }

    fn no_service(&self) -> CliError {
        let cause = format!("the service at {} accepts no reports on links", self.http);
        CliError::new(cause, "pass the --http address of a `carom registry` of this version")
    }
}

const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const FIX: &str = "run this on the registry's host, or start the registry with \
                   --remote-link-reports";
