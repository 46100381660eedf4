//! The frames that rule a connection instead of bringing an answer: SETTINGS, PING, GOAWAY, WINDOW_UPDATE, RST_STREAM
//! (RFC 9113 §6; semantics P14).
//!
//! In: a frame's payload. Out: a reply where one is due; a step where the frame breaks a rule or ends the request.
//!
//! The windows for what we send are only kept to notice when a peer drives them beyond 2^31-1: all that we have to send
//! is sent before the first byte comes.

use super::super::frame::{self, Code, FrameHead, Kind, number};
use super::{Client, STREAM, Step, fail, quoted};
use crate::outcome::ReasonCode;

const MAX_WINDOW: i64 = 0x7fff_ffff;

impl Client {
    pub(super) fn rst_stream(&self, payload: &[u8]) -> Result<(), Step> {
        let (4, Some(code)) = (payload.len(), number(payload)) else {
            return Err(self.broken(Code::FRAME_SIZE_ERROR, "RST_STREAM without a code"));
        };
        let text = format!(
            "{} broke the request off with RST_STREAM ({}) before its answer was whole",
            self.peer,
            Code(code)
        );
        Err(Step::Done(fail(ReasonCode::Http2Error, text)))
    }

    pub(super) fn settings(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Step> {
        if head.has(frame::ACK) && !payload.is_empty() || !payload.len().is_multiple_of(6) {
            return Err(self.broken(
                Code::FRAME_SIZE_ERROR,
                "SETTINGS of a length that cannot be",
            ));
        }
        if head.has(frame::ACK) {
            return Ok(());
        }
        let (settings, _) = payload.as_chunks::<6>();
        for &[a, b, c, d, e, f] in settings {
            let value = u32::from_be_bytes([c, d, e, f]);
            let fault = match u16::from_be_bytes([a, b]) {
                frame::ENABLE_PUSH if value > 1 => Some((Code::PROTOCOL_ERROR, "ENABLE_PUSH")),
                frame::MAX_FRAME_SIZE if !(16_384..=0xff_ffff).contains(&value) => {
                    Some((Code::PROTOCOL_ERROR, "MAX_FRAME_SIZE"))
                }
                frame::INITIAL_WINDOW_SIZE => {
                    let change = i64::from(value) - i64::from(self.initial_window);
                    self.initial_window = value;
                    let [_, stream] = &mut self.windows;
                    *stream += change;
                    (i64::from(value) > MAX_WINDOW || *stream > MAX_WINDOW)
                        .then_some((Code::FLOW_CONTROL_ERROR, "INITIAL_WINDOW_SIZE"))
                }
                _ => None,
            };
            if let Some((code, name)) = fault {
                let what = format!("SETTINGS with {name} {value}, which is out of range");
                return Err(self.broken(code, &what));
            }
        }
        frame::write(Kind::Settings, frame::ACK, 0, &[], &mut self.out);
        Ok(())
    }

    pub(super) fn ping(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Step> {
        if payload.len() != 8 {
            return Err(self.broken(Code::FRAME_SIZE_ERROR, "a PING that is not 8 bytes long"));
        }
        if !head.has(frame::ACK) {
            frame::write(Kind::Ping, frame::ACK, 0, payload, &mut self.out);
        }
        Ok(())
    }

    /// Semantics P14.
    pub(super) fn go_away(&mut self, payload: &[u8]) -> Result<(), Step> {
        let (Some(last), Some(code)) = (number(payload), payload.get(4..).and_then(number)) else {
            return Err(self.broken(Code::FRAME_SIZE_ERROR, "a GOAWAY that is too short"));
        };
        let debug = payload.get(8..).unwrap_or_default();
        let goaway = if debug.is_empty() {
            format!("GOAWAY ({})", Code(code))
        } else {
            format!("GOAWAY ({}, {})", Code(code), quoted(debug))
        };
        self.goaway = Some(goaway.into());
        if last & 0x7fff_ffff < STREAM {
            self.refused = true;
            return Err(Step::Retry);
        }
        Ok(())
    }

    pub(super) fn window_update(&mut self, head: &FrameHead, payload: &[u8]) -> Result<(), Step> {
        let (4, Some(increment)) = (payload.len(), number(payload)) else {
            return Err(self.broken(Code::FRAME_SIZE_ERROR, "WINDOW_UPDATE without a number"));
        };
        let increment = i64::from(increment & 0x7fff_ffff);
        let [connection, stream] = &mut self.windows;
        let window = if head.stream == 0 { connection } else { stream };
        *window += increment;
        let overflow = *window > MAX_WINDOW;
        if increment == 0 {
            return Err(self.broken(Code::PROTOCOL_ERROR, "WINDOW_UPDATE by 0"));
        }
        if overflow {
            return Err(self.broken(Code::FLOW_CONTROL_ERROR, "WINDOW_UPDATE beyond 2^31-1"));
        }
        Ok(())
    }
}
