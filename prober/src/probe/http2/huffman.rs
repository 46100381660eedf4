//! The Huffman code of HPACK, read (RFC 7541 §5.2, appendix B).
//!
//! In: the bytes of a coded string. Out: the string, appended to a buffer that may not grow beyond a limit.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and longer codes follow
//! shorter ones. So 256 lengths are the whole code, and a symbol is found by comparing the next 30 bits with the end of
//! each length, five bits first: the usual letters take one to four comparisons, and no table has to stay in the cache.
//!
//! Not here: coding. What we send goes out as it is; it is short, and sent once.

/// Why a string cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HuffmanError {
    /// These bits are no string.
    Broken,
    /// The string is longer than what may be appended.
    TooLong,
}

/// The longest code, in bits.
const LONGEST: u32 = 30;

/// The bits of each symbol's code.
#[rustfmt::skip]
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21,
    23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24,
    21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];

/// The code, in the form that decoding wants.
struct Code {
    /// The symbols in the order of their codes.
    symbols: [u8; 256],
    /// Per length: the first value of 30 bits that is behind all codes of that length.
    end: [u32; LONGEST as usize + 1],
    /// Per length: what to add to a code for its place among the symbols (wrapping).
    base: [u32; LONGEST as usize + 1],
}

const CODE: Code = build();

#[expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "evaluated by the compiler alone, where a wrong index or value is a compile error"
)]
const fn build() -> Code {
    let mut code = Code {
        symbols: [0; 256],
        end: [0; LONGEST as usize + 1],
        base: [0; LONGEST as usize + 1],
    };
    let (mut length, mut next, mut place) = (1, 0_u32, 0_u32);
    while length <= LONGEST {
        code.base[length as usize] = place.wrapping_sub(next);
        let mut symbol = 0;
        while symbol < 256 {
            if LENGTHS[symbol] as u32 == length {
                code.symbols[place as usize] = symbol as u8;
                place += 1;
                next += 1;
            }
            symbol += 1;
        }
        code.end[length as usize] = next << (LONGEST - length);
        next <<= 1;
        length += 1;
    }
    assert!(place == 256);
    code
}

/// Appends the string that `coded` stands for, at most `room` bytes of it.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>, room: usize) -> Result<(), HuffmanError> {
    let limit = out.len() + room;
    let mut bytes = coded.iter();
    // The next `held` bits stand at the low end; 56 are enough for a code and a byte.
    let (mut bits, mut held) = (0_u64, 0_u32);
    loop {
        while held < LONGEST
            && let Some(&byte) = bytes.next()
        {
            bits = bits << 8 | u64::from(byte);
            held += 8;
        }
        if held == 0 {
            return Ok(());
        }
        let window = peek(bits, held);
        let found = (5_u32..)
            .zip(CODE.end.get(5..).unwrap_or_default())
            .find(|&(_, &end)| window < end);
        let Some((length, _)) = found.filter(|&(length, _)| length <= held) else {
            // What is left must be padding: less than a byte, of ones only.
            let padding = held < 8 && window == u32::MAX >> (32 - LONGEST);
            return if padding {
                Ok(())
            } else {
                Err(HuffmanError::Broken)
            };
        };
        let base = CODE.base.get(length as usize).copied().unwrap_or_default();
        let place = (window >> (LONGEST - length)).wrapping_add(base);
        let symbol = CODE
            .symbols
            .get(place as usize)
            .ok_or(HuffmanError::Broken)?;
        if out.len() >= limit {
            return Err(HuffmanError::TooLong);
        }
        out.push(*symbol);
        held -= length;
    }
}

/// The next 30 of `held` bits; ones where there are fewer.
fn peek(bits: u64, held: u32) -> u32 {
    const MASK: u64 = (1 << LONGEST) - 1;
    let window = if held >= LONGEST {
        bits >> (held - LONGEST)
    } else {
        let missing = LONGEST - held;
        bits << missing | ((1 << missing) - 1)
    };
    u32::try_from(window & MASK).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(coded: &[u8]) -> Result<String, HuffmanError> {
        let mut out = Vec::new();
        decode(coded, &mut out, 100)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn rfc_7541_c4_and_c6_strings() {
        for (coded, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (b"\x64\x02", "302"),
            (b"\xae\xc3\x77\x1a\x4b", "private"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(coded), Ok(text.to_owned()));
        }
    }

    #[test]
    fn rfc_7541_5_2_padding_is_shorter_than_a_byte_and_of_ones() {
        assert_eq!(decoded(b"\x1f"), Ok("a".to_owned()));
        for bad in [
            &b"\x1f\xff"[..],
            b"\x1e",
            b"\xff",
            b"\xff\xff\xff\xff",
            b"\x18",
        ] {
            assert_eq!(decoded(bad), Err(HuffmanError::Broken), "{bad:x?}");
        }
    }

    #[test]
    fn a_string_is_cut_off_at_its_limit() {
        let mut out = b"x".to_vec();
        assert_eq!(
            decode(&[0x18, 0xc6, 0x31], &mut out, 2),
            Err(HuffmanError::TooLong)
        );
        assert_eq!(out.len(), 3);
    }
}
