//! The body of an HTTP/1 response, as far as a probe looks into it (semantics P4; RFC 9112 §6, §7.1).
//!
//! In: the framing that the headers announce, and the bytes behind them. Out: whether a string stands within the first
//! 1,024 decoded bytes, as soon as that is known.
//!
//! ```text
//! chunked:  SIZE ─;─► EXTENSION ─LF─┐        size 0: the body is over, trailers are of no interest
//!            │ ▲ CR, LF             ▼
//!            │ └──── AFTER DATA ◄─ DATA
//! ```
//!
//! Not here: compression. A compressed body is matched as it comes.

use crate::probe::expect::{Sight, look};

/// The most bytes of chunk extensions in one body; more serve nobody but an attacker.
const MAX_EXTENSIONS: usize = 4096;
/// The most digits of a chunk's size: what fits into 64 bits.
const MAX_SIZE_DIGITS: u8 = 16;

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

/// What a piece of body has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Nothing decisive.
    More,
    /// The string.
    Found,
    /// The window is full, without the string.
    Full,
    /// The body is over, without the string.
    Over,
    /// The framing is broken.
    Bad(&'static str),
}

/// A body that is being read.
#[derive(Debug)]
pub(super) struct Body {
    framing: Decoder,
    window: Vec<u8>,
}

#[derive(Debug)]
enum Decoder {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

#[derive(Debug)]
struct Chunked {
    stage: ChunkStage,
    extensions: usize,
}

#[derive(Clone, Copy, Debug)]
enum ChunkStage {
    Size {
        value: u64,
        digits: u8,
    },
    /// In an extension, or behind the CR: only LF ends the line.
    Extension {
        value: u64,
    },
    SizeLf {
        value: u64,
    },
    Data(u64),
    AfterData,
    AfterDataLf,
}

impl Framing {
    /// What the headers announce.
    pub(super) fn of(headers: &[httparse::Header<'_>]) -> Result<Self, &'static str> {
        let values = |name: &'static str| {
            headers
                .iter()
                .filter(move |header| header.name.eq_ignore_ascii_case(name))
                .flat_map(|header| header.value.split(|&b| b == b','))
                .map(<[u8]>::trim_ascii)
        };
        // Only the outermost coding frames the message.
        if let Some(last) = values("transfer-encoding").next_back() {
            return Ok(if last.eq_ignore_ascii_case(b"chunked") {
                Self::Chunked
            } else {
                Self::UntilClose
            });
        }
        let mut length = None;
        for value in values("content-length") {
            let number = Some(value)
                .filter(|value| !value.is_empty() && value.iter().all(u8::is_ascii_digit))
                .and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok())
                .ok_or("its Content-Length is not a number")?;
            if length.is_some_and(|before| before != number) {
                return Err("it has two different Content-Lengths");
            }
            length = Some(number);
        }
        Ok(length.map_or(Self::UntilClose, Self::Length))
    }
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        let framing = match framing {
            Framing::Length(length) => Decoder::Length(length),
            Framing::Chunked => Decoder::Chunked(Chunked {
                stage: ChunkStage::Size {
                    value: 0,
                    digits: 0,
                },
                extensions: 0,
            }),
            Framing::UntilClose => Decoder::UntilClose,
        };
        Self {
            framing,
            window: Vec::new(),
        }
    }

    /// The decoded bytes so far, up to the window.
    pub(super) fn window(&self) -> &[u8] {
        &self.window
    }

    /// FIN is the proper end.
    pub(super) fn ends_with_the_connection(&self) -> bool {
        matches!(self.framing, Decoder::UntilClose)
    }

    /// More bytes have come (none is fine: an empty body is over at once).
    pub(super) fn feed(&mut self, bytes: &[u8], wanted: &[u8]) -> Progress {
        match &mut self.framing {
            Decoder::UntilClose => push(&mut self.window, bytes, wanted),
            Decoder::Length(left) => {
                let take = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= take as u64;
                let over = *left == 0;
                match push(&mut self.window, bytes.get(..take).unwrap_or(bytes), wanted) {
                    Progress::More if over => Progress::Over,
                    progress => progress,
                }
            }
            Decoder::Chunked(chunked) => chunked.feed(&mut self.window, bytes, wanted),
        }
    }
}

impl Chunked {
    fn feed(&mut self, window: &mut Vec<u8>, bytes: &[u8], wanted: &[u8]) -> Progress {
        let mut rest = bytes;
        while let Some((&byte, behind)) = rest.split_first() {
            if let ChunkStage::Data(left) = self.stage {
                let take = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                let (data, behind) = rest.split_at_checked(take).unwrap_or((rest, &[]));
                rest = behind;
                self.stage = match left - take as u64 {
                    0 => ChunkStage::AfterData,
                    left => ChunkStage::Data(left),
                };
                match push(window, data, wanted) {
                    Progress::More => continue,
                    progress => return progress,
                }
            }
            rest = behind;
            if let Err(progress) = self.step(byte) {
                return progress;
            }
        }
        Progress::More
    }

    /// One byte outside the data.
    fn step(&mut self, byte: u8) -> Result<(), Progress> {
        use ChunkStage::{AfterData, AfterDataLf, Data, Extension, Size, SizeLf};
        self.stage = match (self.stage, byte) {
            (Size { value, digits }, _) if byte.is_ascii_hexdigit() => {
                if digits == MAX_SIZE_DIGITS {
                    return Err(Progress::Bad(
                        "the size of a chunk does not fit into 64 bits",
                    ));
                }
                let digit = char::from(byte).to_digit(16).unwrap_or(0);
                Size {
                    value: value << 4 | u64::from(digit),
                    digits: digits + 1,
                }
            }
            (Size { digits: 0, .. }, _) => {
                return Err(Progress::Bad("a chunk has no size"));
            }
            (Size { value, .. } | Extension { value }, b'\r') => SizeLf { value },
            (Size { value, .. } | Extension { value } | SizeLf { value }, b'\n') => {
                if value == 0 {
                    return Err(Progress::Over);
                }
                Data(value)
            }
            (Size { value, .. }, b';' | b' ' | b'\t') => Extension { value },
            (Extension { value }, _) => {
                self.extensions += 1;
                if self.extensions > MAX_EXTENSIONS {
                    return Err(Progress::Bad("its chunk extensions are too long"));
                }
                Extension { value }
            }
            (Size { .. } | SizeLf { .. }, _) => {
                return Err(Progress::Bad("the size of a chunk is not a number"));
            }
            (AfterData, b'\r') => AfterDataLf,
            (AfterData | AfterDataLf, b'\n') => Size {
                value: 0,
                digits: 0,
            },
            (AfterData | AfterDataLf | Data(_), _) => {
                return Err(Progress::Bad("a chunk is longer than its size"));
            }
        };
        Ok(())
    }
}

fn push(window: &mut Vec<u8>, bytes: &[u8], wanted: &[u8]) -> Progress {
    match look(window, bytes, wanted) {
        Sight::More => Progress::More,
        Sight::Found => Progress::Found,
        Sight::Full => Progress::Full,
    }
}
