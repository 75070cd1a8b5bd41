//! Encoding of the messages of the replicated map. Numbers are big-endian, and each string is
//! preceded by its length.

use std::collections::BTreeMap;

/// An operation, and its number among the operations of its caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    pub(crate) number: u64,
    pub(crate) operation: Operation,
}

/// An operation on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Get { key: String },
    Put { key: String, value: String },
    Replace { key: String, expected: Option<String>, value: String },
}

const GET: u8 = 1;
const PUT: u8 = 2;
const REPLACE: u8 = 3;
const CREATE: u8 = 4;

impl Command {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (kind, texts) = match &self.operation {
            Operation::Get { key } => (GET, vec![key]),
            Operation::Put { key, value } => (PUT, vec![key, value]),
            Operation::Replace { key, expected: Some(expected), value } => {
                (REPLACE, vec![key, value, expected])
            }
            Operation::Replace { key, expected: None, value } => (CREATE, vec![key, value]),
        };
        let mut out = vec![kind];
        out.extend(self.number.to_be_bytes());
        texts.into_iter().for_each(|text| put_text(text, &mut out));
        out
    }

    /// Decodes a message. Returns `None` if it is not a message of this store.
    pub(crate) fn decode(message: &[u8]) -> Option<Self> {
        let (kind, rest) = message.split_first()?;
        let (number, mut from) = rest.split_first_chunk()?;
        let number = u64::from_be_bytes(*number);
        let key = take_text(&mut from)?;
        let operation = match *kind {
            GET => Operation::Get { key },
            PUT => Operation::Put { key, value: take_text(&mut from)? },
            REPLACE => {
                let value = take_text(&mut from)?;
                Operation::Replace { key, expected: Some(take_text(&mut from)?), value }
            }
            CREATE => Operation::Replace { key, expected: None, value: take_text(&mut from)? },
            _ => return None,
        };
        from.is_empty().then_some(Self { number, operation })
    }
}

/// Encodes the map, for a replica that lacks it.
pub(crate) fn encode_map(map: &BTreeMap<String, String>) -> Vec<u8> {
    let mut out = Vec::new();
    map.iter().flat_map(|(key, value)| [key, value]).for_each(|text| put_text(text, &mut out));
    out
}

/// Decodes the map that another replica sent. Returns `None` if it is invalid.
pub(crate) fn decode_map(mut from: &[u8]) -> Option<BTreeMap<String, String>> {
    let mut map = BTreeMap::new();
    while !from.is_empty() {
        map.insert(take_text(&mut from)?, take_text(&mut from)?);
    }
    Some(map)
}

fn put_text(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u32).to_be_bytes());
    out.extend(text.as_bytes());
}

fn take_text(from: &mut &[u8]) -> Option<String> {
    let (length, rest) = from.split_first_chunk()?;
    let (text, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    *from = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}
