//! HPACK as a probe needs it (RFC 7541): a decoder for the answer, and literals for the request.
//!
//! In: a whole header block. Out: its fields, one by one, names and values as bytes.
//!
//! Everything is bounded: the dynamic table at the 4,096 bytes that a peer may use without being told otherwise, a list
//! of fields by [`LIST_LIMIT`] and [`MAX_FIELDS`], counted while it is decoded, so that a small block cannot unfold into
//! a large list. Announcing a smaller table would save a few hundred bytes for a moment and depend on every server
//! honouring it, so none is announced.
//!
//! Not here: what the fields mean. The encoder neither indexes nor codes: what it writes is sent once.

use std::collections::VecDeque;

use super::huffman::{self, HuffmanError};

/// The largest list of fields, each counted with 32 bytes on top (RFC 9113 §6.5.2).
pub(super) const LIST_LIMIT: u32 = 32 * 1024;
/// The most fields in one list.
pub(super) const MAX_FIELDS: usize = 128;
/// The dynamic table of a peer that was told nothing else.
const TABLE_LIMIT: usize = 4096;
/// What an entry or a field costs beyond its bytes (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// Why a block is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It is not HPACK.
    Broken(&'static str),
    /// Its list of fields is larger than a probe reads.
    TooLarge,
}

/// Decodes the blocks of one connection, in their order.
#[derive(Debug)]
pub(super) struct Decoder {
    table: VecDeque<Entry>,
    size: usize,
    limit: usize,
}

#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name: usize,
}

impl Entry {
    fn parts(&self) -> (&[u8], &[u8]) {
        self.bytes
            .split_at_checked(self.name)
            .unwrap_or((&self.bytes, &[]))
    }
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            limit: TABLE_LIMIT,
        }
    }
}

impl Decoder {
    /// Decodes one whole block.
    pub(super) fn block(
        &mut self,
        block: &[u8],
        mut field: impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Refused> {
        let mut rest = block;
        let mut room = LIST_LIMIT as usize;
        let mut fields = 0;
        // Name and value of one literal, one behind the other.
        let mut literal = Vec::new();
        while let Some(&first) = rest.first() {
            if first & 0xe0 == 0x20 {
                let size = integer(&mut rest, 5)?;
                if fields > 0 || size > TABLE_LIMIT {
                    return Err(Refused::Broken(
                        "a size update in the wrong place or beyond 4096",
                    ));
                }
                self.limit = size;
                self.evict(0);
                continue;
            }
            fields += 1;
            if fields > MAX_FIELDS {
                return Err(Refused::TooLarge);
            }
            if first & 0x80 != 0 {
                let (name, value) = self.get(integer(&mut rest, 7)?)?;
                spend(&mut room, name.len() + value.len())?;
                field(name, value);
                continue;
            }
            let indexing = first & 0x40 != 0;
            literal.clear();
            match integer(&mut rest, if indexing { 6 } else { 4 })? {
                0 => string(&mut rest, &mut literal, room)?,
                index => literal.extend_from_slice(self.get(index)?.0),
            }
            let name = literal.len();
            string(&mut rest, &mut literal, room.saturating_sub(name))?;
            spend(&mut room, literal.len())?;
            let (head, value) = literal.split_at_checked(name).unwrap_or_default();
            field(head, value);
            if indexing {
                self.insert(&literal, name);
            }
        }
        Ok(())
    }

    /// The field at an index, static or dynamic.
    fn get(&self, index: usize) -> Result<(&[u8], &[u8]), Refused> {
        let broken = Refused::Broken("an index that no table has");
        let place = index.checked_sub(1).ok_or(broken)?;
        if let Some((name, value)) = STATIC.get(place) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let entry = self.table.get(place - STATIC.len()).ok_or(broken)?;
        Ok(entry.parts())
    }

    fn insert(&mut self, literal: &[u8], name: usize) {
        let size = literal.len() + OVERHEAD;
        self.evict(size);
        if size <= self.limit {
            self.size += size;
            self.table.push_front(Entry {
                bytes: literal.into(),
                name,
            });
        }
    }

    /// Makes room for an entry; one that is larger than the table empties it (RFC 7541 §4.4).
    fn evict(&mut self, wanted: usize) {
        while self.size + wanted > self.limit
            && let Some(entry) = self.table.pop_back()
        {
            self.size -= entry.bytes.len() + OVERHEAD;
        }
    }
}

fn spend(room: &mut usize, bytes: usize) -> Result<(), Refused> {
    *room = room
        .checked_sub(bytes + OVERHEAD)
        .ok_or(Refused::TooLarge)?;
    Ok(())
}

/// An integer with a prefix of so many bits (RFC 7541 §5.1).
fn integer(rest: &mut &[u8], prefix: u32) -> Result<usize, Refused> {
    let mask = (1_usize << prefix) - 1;
    let mut byte = || {
        let (&first, behind) = rest
            .split_first()
            .ok_or(Refused::Broken("a block that ends within a field"))?;
        *rest = behind;
        Ok(usize::from(first))
    };
    let mut value = byte()? & mask;
    if value < mask {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let next = byte()?;
        value += (next & 0x7f) << shift;
        if next & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Refused::Broken("an integer beyond all reason"))
}

/// Appends a string (RFC 7541 §5.2) of at most `room` bytes.
fn string(rest: &mut &[u8], out: &mut Vec<u8>, room: usize) -> Result<(), Refused> {
    let coded = rest.first().is_some_and(|first| first & 0x80 != 0);
    let len = integer(rest, 7)?;
    let (bytes, behind) = rest
        .split_at_checked(len)
        .ok_or(Refused::Broken("a string that is longer than its block"))?;
    *rest = behind;
    if coded {
        return huffman::decode(bytes, out, room).map_err(|error| match error {
            HuffmanError::Broken => Refused::Broken("a string that breaks the Huffman code"),
            HuffmanError::TooLong => Refused::TooLarge,
        });
    }
    if len > room {
        return Err(Refused::TooLarge);
    }
    out.extend_from_slice(bytes);
    Ok(())
}

/// Writes a field, by the static table where that is worth its while for what a probe sends, else as a literal that no
/// table keeps. The name must be lowercase.
pub(super) fn write_field(name: &str, value: &str, out: &mut Vec<u8>) {
    let (index, whole) = match (name, value) {
        (":authority", _) => (1, false),
        (":method", "GET") => (2, true),
        (":method", "POST") => (3, true),
        (":method", _) => (2, false),
        (":path", "/") => (4, true),
        (":path", _) => (4, false),
        (":scheme", "http") => (6, true),
        (":scheme", "https") => (7, true),
        (":status", "200") => (8, true),
        ("accept", _) => (19, false),
        ("content-type", _) => (31, false),
        ("user-agent", _) => (58, false),
        _ => (0, false),
    };
    if whole {
        write_integer(index, 7, 0x80, out);
        return;
    }
    write_integer(index, 4, 0, out);
    if index == 0 {
        write_integer(name.len(), 7, 0, out);
        out.extend_from_slice(name.as_bytes());
    }
    write_integer(value.len(), 7, 0, out);
    out.extend_from_slice(value.as_bytes());
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "each value is masked or compared first"
)]
fn write_integer(value: usize, prefix: u32, pattern: u8, out: &mut Vec<u8>) {
    let mask = (1_usize << prefix) - 1;
    if value < mask {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | mask as u8);
    let mut value = value - mask;
    while value >= 0x80 {
        out.push(0x80 | (value & 0x7f) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The static table (RFC 7541 appendix A).
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    type Fields = Vec<(String, String)>;

    fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, Refused> {
        let mut fields = Vec::new();
        decoder.block(block, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            fields.push((text(name), text(value)));
        })?;
        Ok(fields)
    }

    fn fields(list: &[(&str, &str)]) -> Fields {
        list.iter()
            .map(|&(n, v)| (n.to_owned(), v.to_owned()))
            .collect()
    }

    #[test]
    fn rfc_7541_c5_answers_in_a_table_of_256_bytes() {
        let mut decoder = Decoder {
            limit: 256,
            ..Decoder::default()
        };
        let first = b"\x48\x03302\x58\x07private\x61\x1dMon, 21 Oct 2013 20:13:21 GMT\x6e\x17https://www.example.com";
        let date = ("date", "Mon, 21 Oct 2013 20:13:21 GMT");
        let location = ("location", "https://www.example.com");
        let private = ("cache-control", "private");
        assert_eq!(
            decode(&mut decoder, first),
            Ok(fields(&[(":status", "302"), private, date, location]))
        );
        assert_eq!(decoder.size, 222);
        // The next status drops the first one out of the table.
        assert_eq!(
            decode(&mut decoder, b"\x48\x03307\xc1\xc0\xbf"),
            Ok(fields(&[(":status", "307"), private, date, location]))
        );
        assert_eq!(decoder.size, 222);
    }

    #[test]
    fn rfc_7541_4_2_a_size_update_empties_the_table_and_stands_first() {
        let mut decoder = Decoder::default();
        decode(&mut decoder, b"\x40\x01a\x01b").unwrap();
        assert_eq!(decode(&mut decoder, b"\xbe"), Ok(fields(&[("a", "b")])));
        assert_eq!(
            decode(&mut decoder, b"\x20\x88"),
            Ok(fields(&[(":status", "200")]))
        );
        assert_eq!(decoder.size, 0);
        for bad in [&b"\xbe"[..], b"\x88\x20", b"\x3f\xe2\x1f", b"\x80"] {
            assert!(
                matches!(decode(&mut decoder, bad), Err(Refused::Broken(_))),
                "{bad:x?}"
            );
        }
    }

    #[test]
    fn blocks_that_end_too_early_or_count_too_far_are_broken() {
        for bad in [
            &b"\x40"[..],
            b"\x40\x01",
            b"\x40\x05a",
            b"\x40\x01a",
            b"\xff",
            b"\xff\xff\xff\xff\xff\xff\x01",
            b"\x00\x81\xff\x00",
        ] {
            assert!(
                matches!(
                    decode(&mut Decoder::default(), bad),
                    Err(Refused::Broken(_))
                ),
                "{bad:x?}"
            );
        }
    }

    #[test]
    fn a_bomb_is_refused_by_what_it_unfolds_to() {
        let mut decoder = Decoder::default();
        // One entry of 4,000 bytes, then a byte for each copy of it.
        let mut bomb = b"\x40\x01a\x7f\xa1\x1e".to_vec();
        bomb.extend([b'x'; 4000]);
        bomb.extend([0xbe; 100]);
        assert_eq!(decode(&mut decoder, &bomb), Err(Refused::TooLarge));
        let many = [0x88; MAX_FIELDS + 1];
        assert_eq!(
            decode(&mut Decoder::default(), &many),
            Err(Refused::TooLarge)
        );
        assert!(decoder.size <= TABLE_LIMIT);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let long = "x".repeat(5000);
        let list = [
            (":method", "GET"),
            (":method", "POST"),
            (":method", "HEAD"),
            (":scheme", "http"),
            (":scheme", "https"),
            (":path", "/"),
            (":path", "/a"),
            (":authority", "a"),
            (":status", "200"),
            (":status", "503"),
            ("accept", "*/*"),
            ("content-type", "a/b"),
            ("user-agent", "me"),
            ("x-own", "1"),
            ("te", long.as_str()),
        ];
        let mut block = Vec::new();
        for (name, value) in list {
            write_field(name, value, &mut block);
        }
        assert_eq!(decode(&mut Decoder::default(), &block), Ok(fields(&list)));
    }
}
