//! An HTTP/2 client for one request on one fresh connection (RFC 9113), without I/O.
//!
//! In: the request; then the peer's bytes as they come. Out: bytes to send; the answer's parts to an [`Exchange`]; a
//! [`Step`] as soon as there is one.
//!
//! ```text
//!  preface, SETTINGS, HEADERS, DATA ─► sent at once
//!
//!  FIRST ──SETTINGS──► HEAD ──final HEADERS──► BODY ── trailers, END_STREAM ─► Exchange::over
//!    │ no HTTP/2         │ ▲                     │
//!    ▼                   └─┘ 1xx                 │      in any state:
//!   fail                                         ▼      RST_STREAM, a broken rule, a flood ► fail
//!                                         Exchange::data  GOAWAY below our stream ─────────► retry (P14)
//! ```
//!
//! Why our own and not the `h2` crate: a probe needs one stream, wants its own verdict and sentence for each thing that a
//! peer can do wrong, and a bound on each that it can send. Driven by hand over buffers in memory (no sockets, a no-op
//! waker), `h2` takes 7–13 µs and 19 KB per conversation, this client 1.1 µs and 0.4 KB (`bench.rs`): at 20,000 probes a
//! second, a tenth of a core and more, and with 100,000 probes in flight 1.9 GB instead of 43 MB.
//!
//! Everything is bounded: 16 KiB and 9 bytes for a frame that is not DATA (the most a peer may send), 32 KiB for a header
//! block, 32 KiB and 128 fields for what it unfolds to, 32 interim heads, [`MAX_IDLE_FRAMES`] frames and
//! [`MAX_IDLE_BYTES`] that bring no body, and the 65,535 bytes of DATA that flow control allows, which is never widened. DATA is not kept here.
//!
//! Not here: what an answer means (`http2`, `grpc`), deadlines, TLS. Nothing is pushed, prioritised or reused.

mod control;
mod fields;
mod texts;

use std::borrow::Cow;
use std::mem;
use std::net::SocketAddr;

use super::frame::{self, Code, FrameHead, Kind};
use super::hpack::{self, Decoder};
use crate::outcome::ReasonCode;
use crate::probe::Finding;
use crate::probe::conversation::Step;
use crate::probe::expect::fail;
use crate::probe::text::quoted;

/// Our only stream.
const STREAM: u32 = 1;
/// The most frames other than DATA with bytes in it.
pub(super) const MAX_IDLE_FRAMES: u32 = 256;
/// The most bytes in such frames: room for a head and trailers of the largest size, and as much again.
pub(super) const MAX_IDLE_BYTES: u32 = 128 * 1024;
/// Flow control's window where nobody says otherwise (RFC 9113 §6.9.2).
const WINDOW: u32 = 65_535;
/// What tells HTTP/1 and TLS from HTTP/2.
const TELLING: usize = 5;

/// Who takes the answer.
pub(in crate::probe) trait Exchange {
    /// A header block begins; what an interim one has brought does not count.
    fn begin(&mut self);
    /// A field of the block; no pseudo-header.
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// The block is the head of the answer.
    fn head(&mut self, status: u16) -> Option<Finding>;
    /// A piece of body.
    fn data(&mut self, bytes: &[u8]) -> Option<Finding>;
    /// The stream is over, by a header block (trailers, or a head alone) or by DATA.
    fn over(&mut self, by_fields: bool) -> Finding;
}

/// One connection with one request.
#[derive(Debug)]
pub(in crate::probe) struct Client {
    peer: SocketAddr,
    /// Without TLS, for sentences.
    plaintext: bool,
    out: Vec<u8>,
    /// A frame that has not come whole.
    held: Vec<u8>,
    reading: Reading,
    state: State,
    /// A header block that goes on in CONTINUATION, and whether it ends the stream.
    block: Option<(Vec<u8>, bool)>,
    decoder: Decoder,
    idle_frames: u32,
    idle_bytes: u32,
    interim: u8,
    received: u32,
    /// How much we may send, on the connection and on the stream; and what a stream starts with.
    windows: [i64; 2],
    initial_window: u32,
    /// What the last GOAWAY said, and whether it left our stream out.
    goaway: Option<Box<str>>,
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing yet; the peer must start with SETTINGS.
    First,
    Head,
    Body,
}

#[derive(Clone, Copy, Debug)]
enum Reading {
    Frame,
    /// In the payload of DATA.
    Data {
        left: u32,
        padding: u32,
        end: bool,
    },
    /// In bytes of no interest.
    Skip(u32),
}

impl Client {
    /// A connection that will send this request.
    pub(in crate::probe) fn new<'a>(
        peer: SocketAddr,
        fields: impl IntoIterator<Item = (&'a str, &'a str)>,
        body: Option<&[u8]>,
    ) -> Self {
        let mut block = Vec::with_capacity(256);
        let mut plaintext = false;
        for (name, value) in fields {
            plaintext |= (name, value) == (":scheme", "http");
            hpack::write_field(name, value, &mut block);
        }
        let mut out = Vec::with_capacity(block.len() + 128);
        out.extend_from_slice(frame::PREFACE);
        let settings = [
            (frame::ENABLE_PUSH, 0),
            (frame::MAX_HEADER_LIST_SIZE, hpack::LIST_LIMIT),
        ];
        frame::write_settings(&settings, &mut out);
        frame::write_headers(&block, body.is_none(), STREAM, &mut out);
        if let Some(body) = body {
            frame::write(Kind::Data, frame::END_STREAM, STREAM, body, &mut out);
        }
        let sent = body.map_or(0, |body| i64::try_from(body.len()).unwrap_or(i64::MAX));
        Self {
            peer,
            plaintext,
            out,
            held: Vec::new(),
            reading: Reading::Frame,
            state: State::First,
            block: None,
            decoder: Decoder::default(),
            idle_frames: 0,
            idle_bytes: 0,
            interim: 0,
            received: 0,
            windows: [i64::from(WINDOW) - sent; 2],
            initial_window: WINDOW,
            goaway: None,
            refused: false,
        }
    }

    /// Appends what is to be sent now.
    pub(in crate::probe) fn send(&mut self, out: &mut Vec<u8>) {
        // Taken, not drained: the memory of the request is not needed again.
        out.extend_from_slice(&mem::take(&mut self.out));
    }

    /// More bytes have come.
    pub(in crate::probe) fn feed(
        &mut self,
        bytes: &[u8],
        exchange: &mut impl Exchange,
    ) -> Option<Step> {
        self.read(bytes, exchange).err()
    }

    /// The peer has closed its side before the exchange had a finding; `unfinished` says where the body stands.
    pub(in crate::probe) fn end(&self, unfinished: impl FnOnce() -> Finding) -> Finding {
        let peer = self.peer;
        if self.state == State::First && self.held.first().is_some_and(|&byte| byte != 0) {
            return self.foreign(&self.held);
        }
        if let Some(goaway) = &self.goaway {
            let text =
                format!("{peer} sent {goaway} and closed the connection without a whole answer");
            return fail(ReasonCode::Http2Goaway, text);
        }
        let text = match self.state {
            State::Body => return unfinished(),
            State::First => format!(
                "{peer} closed the connection without an answer; perhaps it does not speak HTTP/2 on this port{}",
                if self.plaintext {
                    ", or only inside TLS: that is checked by type GRPC_WITH_TLS"
                } else {
                    ""
                }
            ),
            State::Head => format!("{peer} closed the connection before its response head"),
        };
        fail(ReasonCode::PeerClosed, text)
    }

    /// What has not come, for the text of a deadline.
    pub(in crate::probe) fn missing(
        &self,
        unfinished: impl FnOnce() -> Cow<'static, str>,
    ) -> Cow<'static, str> {
        if let (true, Some(goaway)) = (self.refused, &self.goaway) {
            return format!("the last one said {goaway}").into();
        }
        let missing = match self.state {
            State::First if self.held.is_empty() => "sent no answer".into(),
            State::First => {
                format!("sent no whole SETTINGS frame, only {}", quoted(&self.held)).into()
            }
            State::Head if self.interim > 0 => "sent no final status, only interim ones,".into(),
            State::Head => "sent no complete response head".into(),
            State::Body => unfinished(),
        };
        match &self.goaway {
            Some(goaway) => format!("after {goaway} {missing}").into(),
            None => missing,
        }
    }

    fn read(&mut self, bytes: &[u8], exchange: &mut impl Exchange) -> Result<(), Step> {
        let mut rest = bytes;
        loop {
            match self.reading {
                Reading::Data { left, padding, end } => {
                    let left = self.data(&mut rest, left, exchange)?;
                    if left > 0 {
                        self.reading = Reading::Data { left, padding, end };
                        return Ok(());
                    }
                    if end {
                        return Err(Step::Done(exchange.over(false)));
                    }
                    if self.received >= WINDOW {
                        let text = format!(
                            "the answer from {} is longer than the {WINDOW} bytes that a probe reads",
                            self.peer
                        );
                        return Err(Step::Done(fail(ReasonCode::MalformedResponse, text)));
                    }
                    self.reading = Reading::Skip(padding);
                }
                Reading::Skip(left) => {
                    let left = left - take(&mut rest, left).1;
                    if left > 0 {
                        self.reading = Reading::Skip(left);
                        return Ok(());
                    }
                    self.reading = Reading::Frame;
                }
                Reading::Frame if rest.is_empty() => return Ok(()),
                Reading::Frame if self.held.is_empty() => {
                    let needed = self.needed(rest)?;
                    let Some((frame, behind)) = rest.split_at_checked(needed) else {
                        self.held.extend_from_slice(rest);
                        return Ok(());
                    };
                    rest = behind;
                    self.frame(frame, exchange)?;
                }
                Reading::Frame => {
                    // The head first, which says how long the whole is.
                    loop {
                        let needed = self.needed(&self.held)?;
                        let missing = needed.saturating_sub(self.held.len());
                        if missing == 0 {
                            break;
                        }
                        if rest.is_empty() {
                            return Ok(());
                        }
                        let (new, behind) = rest.split_at_checked(missing).unwrap_or((rest, &[]));
                        self.held.extend_from_slice(new);
                        rest = behind;
                    }
                    let frame = mem::take(&mut self.held);
                    self.frame(&frame, exchange)?;
                }
            }
        }
    }

    /// Hands on what there is of a DATA frame; how much of it is still to come.
    fn data(&self, rest: &mut &[u8], left: u32, exchange: &mut impl Exchange) -> Result<u32, Step> {
        let (data, taken) = take(rest, left);
        if !data.is_empty()
            && let Some(finding) = exchange.data(data)
        {
            return Err(Step::Done(finding));
        }
        Ok(left - taken)
    }

    /// How many bytes of what starts here are needed to go on: of DATA and of what is skipped, the head alone.
    fn needed(&self, start: &[u8]) -> Result<usize, Step> {
        // No frame that we allow is longer than 16 KiB, so the first byte of its length is zero.
        if self.state == State::First
            && start.len() >= TELLING
            && start.first().is_some_and(|&byte| byte != 0)
        {
            return Err(Step::Done(self.foreign(start)));
        }
        let Some(head) = FrameHead::of(start) else {
            return Ok(frame::HEAD);
        };
        let len = head.len as usize;
        if len > frame::MAX_PAYLOAD {
            let what = format!(
                "a {} frame of {len} bytes, where at most {} are allowed",
                head.kind.name(),
                frame::MAX_PAYLOAD
            );
            return Err(self.broken(Code::FRAME_SIZE_ERROR, &what));
        }
        let payload = match head.kind {
            Kind::Data if head.has(frame::PADDED) && len == 0 => {
                return Err(self.broken(Code::FRAME_SIZE_ERROR, "padded DATA without its padding"));
            }
            Kind::Data => usize::from(head.has(frame::PADDED)),
            Kind::Priority | Kind::Unknown => 0,
            _ => len,
        };
        Ok(frame::HEAD + payload)
    }

    /// One frame; of DATA and of what is skipped, its head.
    fn frame(&mut self, frame: &[u8], exchange: &mut impl Exchange) -> Result<(), Step> {
        let (Some(head), Some(payload)) = (FrameHead::of(frame), frame.get(frame::HEAD..)) else {
            return Ok(());
        };
        let kind = head.kind;
        if kind != Kind::Data || head.len == 0 {
            self.idle_frames += 1;
            self.idle_bytes += head.len;
            if self.idle_frames > MAX_IDLE_FRAMES || self.idle_bytes > MAX_IDLE_BYTES {
                let what = format!(
                    "{} frames of {} bytes that bring no body, the last one {}",
                    self.idle_frames,
                    self.idle_bytes,
                    kind.name()
                );
                return Err(self.broken(Code::ENHANCE_YOUR_CALM, &what));
            }
        }
        if self.state == State::First {
            match kind {
                Kind::Settings if !head.has(frame::ACK) => self.state = State::Head,
                // It says why there will be no SETTINGS.
                Kind::GoAway => {}
                _ => {
                    let what = format!("it began with {} instead of SETTINGS", kind.name());
                    return Err(self.broken(Code::PROTOCOL_ERROR, &what));
                }
            }
        }
        if self.block.is_some() && kind != Kind::Continuation {
            let what = format!("{} in the middle of a header block", kind.name());
            return Err(self.broken(Code::PROTOCOL_ERROR, &what));
        }
        let (wanted, stream_is_right) = match kind {
            Kind::Data | Kind::Headers | Kind::Continuation | Kind::RstStream => {
                ("of the request", head.stream == STREAM)
            }
            Kind::Settings | Kind::Ping | Kind::GoAway => ("0", head.stream == 0),
            Kind::WindowUpdate => ("0 or of the request", head.stream <= STREAM),
            Kind::Priority | Kind::PushPromise | Kind::Unknown => ("", true),
        };
        if !stream_is_right {
            let what = format!(
                "{} on stream {}, where only the one {wanted} is open",
                kind.name(),
                head.stream
            );
            return Err(self.broken(Code::PROTOCOL_ERROR, &what));
        }
        match kind {
            Kind::Data => self.start_data(&head, payload),
            Kind::Headers => self.headers(&head, payload, exchange),
            Kind::Continuation => self.continuation(&head, payload, exchange),
            Kind::RstStream => self.rst_stream(payload),
            Kind::Settings => self.settings(&head, payload),
            Kind::Ping => self.ping(&head, payload),
            Kind::GoAway => self.go_away(payload),
            Kind::WindowUpdate => self.window_update(&head, payload),
            Kind::PushPromise => Err(self.broken(
                Code::PROTOCOL_ERROR,
                "PUSH_PROMISE, although the probe has switched push off",
            )),
            Kind::Priority | Kind::Unknown => {
                self.reading = Reading::Skip(head.len);
                Ok(())
            }
        }
    }

    fn start_data(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Step> {
        if self.state != State::Body {
            return Err(self.broken(Code::PROTOCOL_ERROR, "DATA before the response head"));
        }
        self.received += head.len;
        if self.received > WINDOW {
            return Err(self.broken(Code::FLOW_CONTROL_ERROR, "more DATA than was allowed"));
        }
        let padding = payload.first().copied().map_or(0, u32::from);
        let own = u32::from(head.has(frame::PADDED));
        let Some(left) = (head.len - own).checked_sub(padding) else {
            return Err(self.broken(Code::PROTOCOL_ERROR, "DATA with more padding than payload"));
        };
        self.reading = Reading::Data {
            left,
            padding,
            end: head.has(frame::END_STREAM),
        };
        Ok(())
    }
}

/// Up to so many bytes from the front.
fn take<'a>(rest: &mut &'a [u8], most: u32) -> (&'a [u8], u32) {
    let (taken, behind) = rest.split_at_checked(most as usize).unwrap_or((*rest, &[]));
    *rest = behind;
    // No more than `most`, which is a u32.
    (taken, u32::try_from(taken.len()).unwrap_or(most))
}
