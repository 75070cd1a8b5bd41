//! Encoding of packets: a packet is its fields in order, and a field is encoded by its type.
//!
//! [`fields!`](crate::fields) lists the fields of structs, and [`variants!`](crate::variants) those
//! of enums. A type whose wire form is not a list of fields implements [`Field`] itself. All
//! numbers are big-endian.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ids::{Endpoint, GroupId, Incarnation, NodeId, Origin, SeqNo};
use crate::time::Time;
use crate::wire::DecodeError;

/// A part of a packet, which may borrow from the datagram.
///
/// | type | wire form |
/// |---|---|
/// | integer | big-endian |
/// | `bool` | one byte, 0 or 1 |
/// | `[u8; N]` | the bytes |
/// | `[bool; N]` | one byte, the first flag in the lowest bit |
/// | `Option` | a `bool`, then the value if there is one |
/// | `Vec` | count u16, then the entries |
/// | tuple | its fields in order |
/// | [`Endpoint`] | port u16, family u8 (4 or 6), address |
/// | `Bytes`, `&[T]` | the rest of the packet |
pub trait Field<'a>: Sized {
    /// Appends the encoded field to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes the field at the start of `bytes`, and advances `bytes` past it. The memory that a
    /// forged count can allocate is limited by the number of bytes that follow it.
    ///
    /// # Errors
    /// Returns the error for the first invalid field.
    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError>;

    /// Returns the encoded field.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.put(&mut out);
        out
    }
}

/// An enum whose variants have tags on the wire. As a [`Field`], it is encoded as the tag (u8) and
/// the fields of the variant. An unknown tag is an invalid value.
pub trait Variants<'a>: Sized {
    /// Returns the tag of the variant: the kind in the header of a packet.
    fn tag(&self) -> u8;

    /// Appends the encoded fields of the variant to `out`.
    fn put_fields(&self, out: &mut Vec<u8>);

    /// Decodes the fields of the variant that has this tag, like [`Field::take`].
    ///
    /// # Errors
    /// Returns [`DecodeError::Kind`] if the tag is unknown, or the error for the first invalid
    /// field.
    fn take_fields(tag: u8, bytes: &mut &'a [u8]) -> Result<Self, DecodeError>;

    /// Decodes the variant that has this tag from `bytes`, which must contain all of its fields and
    /// nothing else.
    ///
    /// # Errors
    /// Returns the errors of [`Variants::take_fields`], and [`DecodeError::Length`] if bytes are
    /// left over.
    fn take_body(tag: u8, mut bytes: &'a [u8]) -> Result<Self, DecodeError> {
        let value = Self::take_fields(tag, &mut bytes)?;
        if bytes.is_empty() { Ok(value) } else { Err(DecodeError::Length) }
    }
}

/// Implements [`Field`](crate::codec::Field) for structs, whose wire form is these fields in this
/// order.
///
/// `field with codec` uses the functions `put` and `take` of the module `codec` instead of those of
/// the field's type. `field = value` is not on the wire, and has this value after decoding. A
/// decoded struct that does not pass the check after `if` is an
/// [invalid value](crate::wire::DecodeError::Value).
///
/// ```
/// use carom_proto::codec::Field;
///
/// struct Run {
///     first: u32,
///     count: u16,
/// }
///
/// carom_proto::fields! {
///     Run { first, count } if |run| run.count > 0;
/// }
///
/// let mut bytes = Vec::new();
/// Run { first: 7, count: 2 }.put(&mut bytes);
/// assert_eq!(bytes, [0, 0, 0, 7, 0, 2]);
/// assert_eq!(Run::take(&mut &bytes[..]).map(|run| run.count), Ok(2));
/// assert!(Run::take(&mut &[0; 6][..]).is_err());
/// ```
#[macro_export]
macro_rules! fields {
    (@put $value:expr, $out:ident) => { $crate::codec::Field::put($value, $out) };
    (@put $value:expr, $out:ident with $codec:ident) => { $codec::put($value, $out) };
    (@put $value:expr, $out:ident = $fixed:literal) => {};
    (@take $bytes:ident) => { $crate::codec::Field::take($bytes)? };
    (@take $bytes:ident with $codec:ident) => { $codec::take($bytes)? };
    (@take $bytes:ident = $fixed:literal) => { $fixed };
    (@check $value:ident, $check:expr) => {
        let is_valid: fn(&Self) -> bool = $check;
        if !is_valid(&$value) {
            return Err($crate::wire::DecodeError::Value);
        }
    };
    ($(
        $Type:ty { $($field:tt $(with $codec:ident)? $(= $fixed:literal)?),+ $(,)? }
        $(if $check:expr)?;
    )+) => {$(
        impl<'a> $crate::codec::Field<'a> for $Type {
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::fields!(@put &self.$field, out $(with $codec)? $(= $fixed)?);)+
            }

            fn take(bytes: &mut &'a [u8]) -> Result<Self, $crate::wire::DecodeError> {
                let value = Self {
                    $($field: $crate::fields!(@take bytes $(with $codec)? $(= $fixed)?),)+
                };
                $($crate::fields!(@check value, $check);)?
                Ok(value)
            }
        }
    )+};
}

/// Implements [`Variants`](crate::codec::Variants) for enums from a table of tags and variants.
///
/// The fields of a variant are encoded in the listed order, and are declared like those of
/// [`fields!`](crate::fields). In this macro, `field = value` selects among the tags of one
/// variant.
///
/// ```
/// use carom_proto::codec::{Field, Variants};
///
/// enum Change {
///     Lock { name: u16, waits: bool },
///     Unlock(u16),
///     Leave,
/// }
///
/// carom_proto::variants! {
///     Change {
///         1 => Leave,
///         2 => Lock { name, waits = true },
///         3 => Lock { name, waits = false },
///         4 => Unlock(name),
///     };
/// }
///
/// let mut bytes = Vec::new();
/// Change::Lock { name: 7, waits: false }.put(&mut bytes);
/// assert_eq!(bytes, [3, 0, 7]);
/// assert!(matches!(Change::take_body(4, &[0, 9]), Ok(Change::Unlock(9))));
/// assert_eq!(Change::Leave.tag(), 1);
/// ```
#[macro_export]
macro_rules! variants {
    ($(
        $Type:ty {$(
            $tag:tt => $Variant:ident
                $({ $($field:ident $(with $codec:ident)? $(= $fixed:literal)?),+ $(,)? })?
                $(($item:ident $(with $item_codec:ident)?))?
        ),+ $(,)?}
        $(if $check:expr)?;
    )+) => {$(
        impl<'a> $crate::codec::Variants<'a> for $Type {
            #[allow(unused_variables, reason = "the tag depends on few fields")]
            fn tag(&self) -> u8 {
                match self {
                    $(Self::$Variant $({ $($field $(: $fixed)?),+ })? $(($item))? => $tag,)+
                }
            }

            #[allow(unused_variables, reason = "not all variants have fields")]
            fn put_fields(&self, out: &mut Vec<u8>) {
                match self {$(
                    Self::$Variant $({ $($field $(: $fixed)?),+ })? $(($item))? => {
                        $($($crate::fields!(@put $field, out $(with $codec)? $(= $fixed)?);)+)?
                        $($crate::fields!(@put $item, out $(with $item_codec)?);)?
                    }
                )+}
            }

            #[allow(unused_variables, reason = "not all variants have fields")]
            fn take_fields(
                tag: u8,
                bytes: &mut &'a [u8],
            ) -> Result<Self, $crate::wire::DecodeError> {
                let value = match tag {
                    $($tag => Self::$Variant
                        $({$(
                            $field: $crate::fields!(@take bytes $(with $codec)? $(= $fixed)?)
                        ),+})?
                        $(({
                            let $item = $crate::fields!(@take bytes $(with $item_codec)?);
                            $item
                        }))?,
                    )+
                    _ => return Err($crate::wire::DecodeError::Kind),
                };
                $($crate::fields!(@check value, $check);)?
                Ok(value)
            }
        }
    )+};
}

impl<'a, T: Variants<'a>> Field<'a> for T {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        self.put_fields(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let tag = u8::take(bytes)?;
        Self::take_fields(tag, bytes).map_err(|error| match error {
            DecodeError::Kind => DecodeError::Value,
            error => error,
        })
    }
}

macro_rules! integers {
    ($($Integer:ty)+) => {$(
        impl<'a> Field<'a> for $Integer {
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_be_bytes());
            }

            #[inline]
            fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
                Field::take(bytes).map(Self::from_be_bytes)
            }
        }
    )+};
}

integers! { u8 u16 u32 u64 u128 i64 }

macro_rules! tuples {
    ($(($($Part:ident $place:tt),+))+) => {$(
        impl<'a, $($Part: Field<'a>),+> Field<'a> for ($($Part,)+) {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$place.put(out);)+
            }

            fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
                Ok(($($Part::take(bytes)?,)+))
            }
        }
    )+};
}

tuples! {
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

fields! {
    NodeId { 0 };
    GroupId { 0 };
    SeqNo { 0 };
    Incarnation { 0 };
    Time { 0 };
    Origin { node, incarnation };
}

impl<'a> Field<'a> for bool {
    fn put(&self, out: &mut Vec<u8>) {
        [*self].put(out);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let [flag] = Field::take(bytes)?;
        Ok(flag)
    }
}

impl<'a, const N: usize> Field<'a> for [bool; N] {
    fn put(&self, out: &mut Vec<u8>) {
        let bits = self.iter().enumerate().map(|(bit, is_set)| u8::from(*is_set) << bit);
        out.push(bits.sum());
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let flags = u8::take(bytes)?;
        if flags >> N != 0 {
            return Err(DecodeError::Value);
        }
        Ok(core::array::from_fn(|bit| flags >> bit & 1 != 0))
    }
}

impl<'a, const N: usize> Field<'a> for [u8; N] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (array, rest) = bytes.split_first_chunk().ok_or(DecodeError::Length)?;
        *bytes = rest;
        Ok(*array)
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        self.iter().for_each(|value| value.put(out));
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        bool::take(bytes)?.then(|| T::take(bytes)).transpose()
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(self.len() <= usize::from(u16::MAX), "a list with {} entries", self.len());
        (self.len() as u16).put(out);
        self.iter().for_each(|entry| entry.put(out));
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let count = u16::take(bytes)?;
        take_entries(count.into(), bytes)
    }
}

impl<'a> Field<'a> for Endpoint {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.port().put(out);
        match self.0.ip() {
            IpAddr::V4(ip) => (4_u8, ip.octets()).put(out),
            IpAddr::V6(ip) => (6_u8, ip.octets()).put(out),
        }
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let (port, family) = Field::take(bytes)?;
        let ip = match family {
            4_u8 => IpAddr::from(<[u8; 4]>::take(bytes)?),
            6 => IpAddr::from(<[u8; 16]>::take(bytes)?),
            _ => return Err(DecodeError::Value),
        };
        Ok(Self(SocketAddr::new(ip, port)))
    }
}

/// Copies the bytes, so that they do not keep the datagram alive.
impl<'a> Field<'a> for Bytes {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        Ok(Self::copy_from_slice(core::mem::take(bytes)))
    }
}

impl<'a, T> Field<'a> for &'a [T]
where
    T: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn take(bytes: &mut &'a [u8]) -> Result<Self, DecodeError> {
        <[T]>::ref_from_bytes(core::mem::take(bytes)).map_err(|_| DecodeError::Length)
    }
}

/// A list without a count: its entries fill the rest of the packet.
pub mod rest {
    use super::{DecodeError, Field};

    /// Appends the entries to `out`.
    pub fn put<'a, T: Field<'a>>(entries: &[T], out: &mut Vec<u8>) {
        entries.iter().for_each(|entry| entry.put(out));
    }

    /// Decodes entries up to the end of `bytes`.
    ///
    /// # Errors
    /// Returns the error for the first invalid entry.
    pub fn take<'a, T: Field<'a>>(bytes: &mut &'a [u8]) -> Result<Vec<T>, DecodeError> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            entries.push(T::take(bytes)?);
        }
        Ok(entries)
    }
}

/// A byte string without a length: it fills the rest of the packet.
pub mod rest_bytes {
    use super::DecodeError;

    /// Appends the bytes to `out`.
    pub fn put(content: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(content);
    }

    /// Copies all of `bytes`.
    ///
    /// # Errors
    /// Never returns an error.
    pub fn take(bytes: &mut &[u8]) -> Result<Vec<u8>, DecodeError> {
        Ok(core::mem::take(bytes).to_vec())
    }
}

/// Decodes the entries of a list after its count. Every entry is at least one byte long.
pub(crate) fn take_entries<'a, T: Field<'a>>(
    count: usize,
    bytes: &mut &'a [u8],
) -> Result<Vec<T>, DecodeError> {
    if count > bytes.len() {
        return Err(DecodeError::Length);
    }
    (0..count).map(|_| T::take(bytes)).collect()
}
