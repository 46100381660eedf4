//! JSON in responses: a value on a line, or an array that is written while it is sent, because 100,000 endpoints as text
//! would be a hundred MB at once.
//!
//! In: a value, or an iterator of values. Out: a response. An array's body is made a piece at a time, as fast as the client
//! reads; what the iterator holds is held until then. Not here: what the values say (`api`).

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A piece is sent when it has this many bytes.
const PIECE: usize = 32 << 10;

/// The response that holds one value, and a line end for those who look at it in a terminal.
pub(super) fn line<T: Serialize>(status: StatusCode, value: &T) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => {
            let headers = [(header::CONTENT_TYPE, "application/json")];
            (status, headers, text + "\n").into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The response that holds these values.
pub(super) fn array<T: Serialize>(values: impl Iterator<Item = T> + Send + 'static) -> Response {
    let body = Body::from_stream(tokio_stream::iter(Pieces::new(values)));
    ([(header::CONTENT_TYPE, "application/json")], body).into_response()
}

/// The text of an array in pieces; none of them is empty.
struct Pieces<I> {
    values: I,
    begun: bool,
    ended: bool,
}

impl<I> Pieces<I> {
    fn new(values: I) -> Self {
        Self {
            values,
            begun: false,
            ended: false,
        }
    }
}

impl<T: Serialize, I: Iterator<Item = T>> Iterator for Pieces<I> {
    type Item = Result<Bytes, serde_json::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let mut piece = Vec::with_capacity(PIECE + 1024);
        while piece.len() < PIECE {
            let Some(value) = self.values.next() else {
                self.ended = true;
                piece.extend_from_slice(if self.begun { b"]" } else { b"[]" });
                break;
            };
            piece.push(if self.begun { b',' } else { b'[' });
            self.begun = true;
            if let Err(error) = serde_json::to_writer(&mut piece, &value) {
                self.ended = true;
                return Some(Err(error));
            }
        }
        Some(Ok(piece.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(values: Vec<String>) -> (usize, String) {
        let pieces: Vec<Bytes> = Pieces::new(values.into_iter())
            .map(Result::unwrap)
            .collect();
        (pieces.len(), String::from_utf8(pieces.concat()).unwrap())
    }

    #[test]
    fn the_pieces_are_the_array() {
        assert_eq!(text(Vec::new()), (1, "[]".into()));
        assert_eq!(text(vec!["a".into()]), (1, r#"["a"]"#.into()));
        let many: Vec<String> = (0..3000).map(|n| format!("{n:>40}")).collect();
        let (pieces, whole) = text(many.clone());
        assert!((3..9).contains(&pieces), "{pieces}");
        assert_eq!(whole, serde_json::to_string(&many).unwrap());
    }
}
