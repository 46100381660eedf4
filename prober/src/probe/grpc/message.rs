//! The messages of a call (gRPC over HTTP/2, "Length-Prefixed-Message") and the two of the health protocol.
//!
//! In: the bytes of DATA as they come. Out: one message after the other, as what it says about health, or passed over.
//!
//! ```text
//!  PREFIX (flag, length) ──► PAYLOAD ──► message ──► PREFIX …
//! ```
//!
//! A health answer is two bytes long; up to 1,024 are kept, for servers that add fields. A length beyond that, or, where
//! messages are passed over, beyond what flow control lets in, is refused by its prefix alone.
//!
//! Protobuf is read by hand for one varint field: an answer that is not a HealthCheckResponse must fail with a sentence,
//! and unknown fields are stepped over as everywhere.

use std::fmt;

use crate::check::MATCH_WINDOW;

/// The flag and the length in front of a message.
const PREFIX: usize = 5;
/// The longest message that is passed over: what the window of a stream can hold.
const PASSED_OVER: u32 = 65_535 - 5;

/// The state that a health answer tells (grpc.health.v1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Unknown,
    Serving,
    NotServing,
    ServiceUnknown,
    /// A number without a name.
    Other(u64),
    /// Not a health answer.
    Broken,
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "UNKNOWN",
            Self::Serving => "SERVING",
            Self::NotServing => "NOT_SERVING",
            Self::ServiceUnknown => "SERVICE_UNKNOWN",
            Self::Other(number) => return write!(f, "{number}, which has no name"),
            Self::Broken => "unreadable",
        })
    }
}

/// What the next bytes have brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing whole.
    More,
    /// A message; its content only where it is read at all.
    Message(Health),
    /// A prefix says that the message is compressed.
    Compressed,
    /// A prefix announces more than is read.
    TooLong(u32),
    /// A prefix with a flag that does not exist.
    BadFlag(u8),
}

/// Cuts messages out of the stream.
#[derive(Debug)]
pub(super) struct Messages {
    /// Whether messages are read, or passed over.
    read: bool,
    prefix: [u8; PREFIX],
    prefix_len: usize,
    payload: Vec<u8>,
    /// How much of the payload is to come, once the prefix is whole and accepted.
    left: Option<u32>,
}

impl Messages {
    pub(super) fn new(read: bool) -> Self {
        Self {
            read,
            prefix: [0; PREFIX],
            prefix_len: 0,
            payload: Vec::new(),
            left: None,
        }
    }

    /// Whether a message has begun and is not whole.
    pub(super) fn within(&self) -> bool {
        self.prefix_len > 0
    }

    /// The message that claims to be compressed is not.
    pub(super) fn take_as_it_is(&mut self) {
        let [flag, ..] = &mut self.prefix;
        *flag = 0;
    }

    /// The next message out of what has come; `rest` is left behind it.
    pub(super) fn next(&mut self, rest: &mut &[u8]) -> Progress {
        let left = match self.left {
            Some(left) => left,
            None => {
                while self.prefix_len < PREFIX {
                    let Some((&byte, behind)) = rest.split_first() else {
                        return Progress::More;
                    };
                    *rest = behind;
                    if let Some(place) = self.prefix.get_mut(self.prefix_len) {
                        *place = byte;
                    }
                    self.prefix_len += 1;
                }
                let [flag, len @ ..] = self.prefix;
                let len = u32::from_be_bytes(len);
                match flag {
                    0 => {}
                    1 if !self.read => {}
                    1 => return Progress::Compressed,
                    flag => return Progress::BadFlag(flag),
                }
                let most = if self.read {
                    u32::try_from(MATCH_WINDOW).unwrap_or(PASSED_OVER)
                } else {
                    PASSED_OVER
                };
                if len > most {
                    return Progress::TooLong(len);
                }
                len
            }
        };
        let (taken, behind) = rest.split_at_checked(left as usize).unwrap_or((*rest, &[]));
        *rest = behind;
        if self.read {
            self.payload.extend_from_slice(taken);
        }
        let left = left - u32::try_from(taken.len()).unwrap_or(left);
        if left > 0 {
            self.left = Some(left);
            return Progress::More;
        }
        let health = health(&self.payload);
        self.left = None;
        self.prefix_len = 0;
        self.payload.clear();
        Progress::Message(health)
    }
}

/// The message that asks for the health of a service, with its prefix. Empty, it also suits any other method: a message
/// without fields is one of every type.
pub(super) fn request(service: Option<&str>) -> Vec<u8> {
    let service = service.unwrap_or_default().as_bytes();
    let mut message = Vec::with_capacity(PREFIX + 3 + service.len());
    message.resize(PREFIX, 0);
    if !service.is_empty() {
        message.push(0x0a);
        let mut len = service.len();
        while len >= 0x80 {
            message.push(u8::try_from(len & 0x7f).unwrap_or_default() | 0x80);
            len >>= 7;
        }
        message.push(u8::try_from(len).unwrap_or_default());
        message.extend_from_slice(service);
    }
    let len = u32::try_from(message.len() - PREFIX).unwrap_or_default();
    if let Some(place) = message.get_mut(1..PREFIX) {
        place.copy_from_slice(&len.to_be_bytes());
    }
    message
}

/// What a HealthCheckResponse says: field 1, an enum; the last one counts, none is 0.
fn health(message: &[u8]) -> Health {
    let mut rest = message;
    let mut status = 0;
    while !rest.is_empty() {
        match field(&mut rest) {
            Some((1, Some(value))) => status = value,
            Some((1, None)) | None => return Health::Broken,
            Some(_) => {}
        }
    }
    match status {
        0 => Health::Unknown,
        1 => Health::Serving,
        2 => Health::NotServing,
        3 => Health::ServiceUnknown,
        other => Health::Other(other),
    }
}

/// The next field's number, and its value where it is a varint.
fn field(rest: &mut &[u8]) -> Option<(u64, Option<u64>)> {
    let tag = varint(rest)?;
    let number = tag >> 3;
    let skip = match tag & 7 {
        _ if number == 0 => return None,
        0 => return Some((number, Some(varint(rest)?))),
        1 => 8,
        2 => usize::try_from(varint(rest)?).ok()?,
        5 => 4,
        // Groups have been gone for twenty years.
        _ => return None,
    };
    *rest = rest.get(skip..)?;
    Some((number, None))
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p12_the_service_name_is_field_1_of_the_request() {
        assert_eq!(request(None), [0; 5]);
        assert_eq!(request(Some("ab")), b"\0\0\0\0\x04\x0a\x02ab");
        let long = request(Some(&"x".repeat(300)));
        assert_eq!(long.get(..8).unwrap(), b"\0\0\0\x01\x2f\x0a\xac\x02");
    }

    #[test]
    fn p12_what_a_health_answer_says() {
        for (message, said) in [
            (&b""[..], Health::Unknown),
            (b"\x08\x00", Health::Unknown),
            (b"\x08\x01", Health::Serving),
            (b"\x08\x02", Health::NotServing),
            (b"\x08\x03", Health::ServiceUnknown),
            (b"\x08\x2a", Health::Other(42)),
            // Unknown fields of each kind, then the status; the last status counts.
            (
                b"\x12\x02ab\x19\0\0\0\0\0\0\0\0\x25\0\0\0\0\x30\x07\x08\x02\x08\x01",
                Health::Serving,
            ),
            (b"\x08", Health::Broken),
            (b"\x0a\x01a", Health::Broken),
            (b"\x12\x05ab", Health::Broken),
            (b"\x0b", Health::Broken),
            (b"\x00\x01", Health::Broken),
            (
                b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                Health::Broken,
            ),
            (b"<html>", Health::Broken),
        ] {
            assert_eq!(health(message), said, "{message:x?}");
        }
    }
}
