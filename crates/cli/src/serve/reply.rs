//! The format of a reply: one byte with the exit code of the command, then its output.

use carom::Handler;
use carom_terminal::units::UnitError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u8,
    pub(crate) output: Vec<u8>,
}

impl Reply {
    pub(super) fn failure(code: u8, why: &str) -> Self {
        Self { code, output: format!("{why}\n").into_bytes() }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.output;
        bytes.insert(0, self.code);
        bytes
    }

    pub(crate) fn parse(payload: &[u8]) -> Option<Self> {
        let (code, output) = payload.split_first()?;
        Some(Self { code: *code, output: output.to_vec() })
    }
}

pub(crate) fn handler(text: &str) -> Result<Handler, UnitError> {
    let last = Handler::COUNT - 1;
    text.parse().ok().and_then(Handler::new).ok_or_else(|| UnitError {
        cause: format!("handler '{text}' is invalid: expected a number from 0 to {last}"),
        fix: format!("use a number from 0 to {last}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_read_as_it_was_written() {
        let reply = Reply { code: 7, output: b"so what".to_vec() };
        assert_eq!(reply.clone().into_bytes(), b"\x07so what");
        assert_eq!(Reply::parse(&reply.clone().into_bytes()), Some(reply));
        assert_eq!(Reply::parse(b""), None);
    }

    #[test]
    fn there_are_six_handlers() {
        assert_eq!(handler("0").ok(), Handler::new(0));
        assert_eq!(handler("5").ok(), Handler::new(5));
        for wrong in ["6", "-1", "300", "first"] {
            assert!(handler(wrong).is_err(), "{wrong}");
        }
    }
}
