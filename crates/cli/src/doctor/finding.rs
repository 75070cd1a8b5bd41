use std::fmt;

use carom_terminal::{CliError, output};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    Ok,
    Warn,
    Bad,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) check: &'static str,
    pub(crate) interface: Option<String>,
    pub(crate) level: Level,
    pub(crate) cause: String,
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Findings {
    findings: Vec<Finding>,
    worst: Option<Level>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, cause: impl Into<String>) -> Self {
        Self { check, interface: None, level: Level::Ok, cause: cause.into(), fix: None }
    }

    pub(crate) fn warn(
        check: &'static str,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Warn, fix: Some(fix.into()), ..Self::ok(check, cause) }
    }

    pub(crate) fn bad(
        check: &'static str,
        cause: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { level: Level::Bad, ..Self::warn(check, cause, fix) }
    }

    /// Adds the interface. If Carom would not choose it, a problem is only a warning.
    pub(crate) fn on(self, interface: &str, is_chosen: bool) -> Self {
        let level = if is_chosen { self.level } else { self.level.min(Level::Warn) };
        Self { interface: Some(interface.to_owned()), level, ..self }
    }
}

impl Findings {
    pub(crate) fn add(&mut self, finding: Finding) {
        self.worst = self.worst.max(Some(finding.level));
        self.findings.push(finding);
    }

    pub(crate) fn will_hurt(&self) -> bool {
        self.worst == Some(Level::Bad)
    }

    pub(crate) fn show(&self, json: bool) -> Result<(), CliError> {
        if json {
            return output::json(self);
        }
        let lines: Vec<String> = self.findings.iter().map(ToString::to_string).collect();
        output::lines(&lines.join("\n"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Ok => "ok  ",
            Level::Warn => "warn",
            Level::Bad => "bad ",
        };
        let interface = self.interface.as_ref().map(|it| format!("{it}: ")).unwrap_or_default();
        write!(f, "{level}  {:<15}  {interface}{}", self.check, self.cause)?;
        match &self.fix {
            Some(fix) => write!(f, "\n      fix: {fix}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides() {
        let mut findings = Findings::default();
        findings.add(Finding::ok("mtu", "1500"));
        findings.add(Finding::warn("buffer", "small", "raise it"));
        assert!(!findings.will_hurt());
        findings.add(Finding::bad("multicast", "nothing comes back", "see the firewall"));
        findings.add(Finding::ok("timer", "fine"));
        assert!(findings.will_hurt());
        let json = serde_json::to_value(&findings).expect("it is plain data");
        assert_eq!(json["worst"], "bad");
        assert_eq!(json["findings"][1]["fix"], "raise it");
    }

    #[test]
    fn an_interface_that_is_not_chosen_does_not_hurt() {
        let bad = Finding::bad("multicast", "nothing comes back", "see the firewall");
        assert_eq!(bad.clone().on("eth1", false).level, Level::Warn);
        let chosen = bad.on("eth0", true);
        assert_eq!(chosen.level, Level::Bad);
        assert!(chosen.to_string().contains("eth0: nothing"));
        assert!(chosen.to_string().ends_with("\n      fix: see the firewall"));
    }
}
