//! The body of a stream's responses, written without a copy of what is large.
//!
//! In: a channel of responses. Out: an HTTP body of their pieces ([`codec`](super::codec)), one at a time as HTTP/2 has
//! room, and trailers with the status at the end. The next response is taken when the last piece of the one before is on
//! its way: the pull that the stream's slowness is measured by.
//!
//! tonic's services make their own body of a stream's items. Ours travels beside it, in the response's extensions, and
//! [`put_in_place`], a layer around all services, puts it there.

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::Frame;
use tokio::sync::mpsc;
use tonic::body::Body;
use tonic::{Code, Status};

use super::codec::{Form, Outgoing};

/// What a stream's task gives its body: a response, or the status with which it ends. Boxed, because a channel has room for
/// many of them from the beginning, and there are thousands of channels.
pub(super) type Item = Box<Result<Outgoing, Status>>;

/// Pieces after which a stream lets others run. What was given to HTTP/2 gets to the socket meanwhile, so that the queue of
/// each connection stays as short as its socket is quick (it never gives back what room it once had), and a large first
/// response holds up no small change.
const TURN: usize = 8;

/// The pieces of all responses of one stream.
struct Pieces<F> {
    /// `None` when the trailers are out.
    responses: Option<mpsc::Receiver<Item>>,
    pieces: VecDeque<Bytes>,
    /// How many pieces are left of its turn.
    turn: usize,
    form: PhantomData<F>,
}

impl<F: Form> http_body::Body for Pieces<F> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        loop {
            if this.turn == 0 && !this.pieces.is_empty() {
                this.turn = TURN;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if let Some(piece) = this.pieces.pop_front() {
                this.turn = this.turn.saturating_sub(1);
                if this.pieces.is_empty() {
                    // With the room for many.
                    this.pieces = VecDeque::new();
                }
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            this.turn = TURN;
            let Some(responses) = &mut this.responses else {
                return Poll::Ready(None);
            };
            let item = std::task::ready!(responses.poll_recv(context));
            let end = match item.map(|item| *item) {
                Some(Ok(outgoing)) => {
                    this.pieces = outgoing.into_pieces::<F>();
                    continue;
                }
                Some(Err(status)) => status,
                None => Status::new(Code::Ok, ""),
            };
            this.responses = None;
            let mut trailers = http::HeaderMap::with_capacity(2);
            let framed = end.add_header(&mut trailers);
            return Poll::Ready(Some(framed.map(|()| Frame::trailers(trailers))));
        }
    }

    fn is_end_stream(&self) -> bool {
        self.responses.is_none()
    }
}

impl<F> Unpin for Pieces<F> {}

/// A body on its way through tonic. Extensions are cloned in general; this one has one owner in the end.
#[derive(Clone)]
pub(super) struct Travelling(Arc<Mutex<Option<Body>>>);

impl Travelling {
    /// A body of these responses.
    pub(super) fn new<F: Form>(responses: mpsc::Receiver<Item>) -> Self {
        let body = Body::new(Pieces {
            responses: Some(responses),
            pieces: VecDeque::new(),
            turn: TURN,
            form: PhantomData::<F>,
        });
        Self(Arc::new(Mutex::new(Some(body))))
    }
}

/// Gives a response the body that travels with it, if there is one.
#[must_use]
pub fn put_in_place(mut response: http::Response<Body>) -> http::Response<Body> {
    if let Some(Travelling(body)) = response.extensions_mut().remove::<Travelling>()
        && let Some(body) = body.lock().unwrap_or_else(PoisonError::into_inner).take()
    {
        *response.body_mut() = body;
    }
    response
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use http_body::Body as _;

    use super::super::codec::Delta;
    use super::*;
    use crate::metrics::Metrics;
    use crate::snapshot::{Resource, ResourceType};
    use crate::stream::Response;

    /// A response with so many resources of 5,000 bytes.
    fn outgoing(resources: usize) -> Outgoing {
        let message = Cluster {
            name: "x".repeat(5000),
            ..Cluster::default()
        };
        let kind = ResourceType::Cluster;
        let resource = Arc::new(Resource::new(kind, "a".into(), &message, Vec::new()));
        Outgoing {
            response: Response {
                kind,
                version: "v".into(),
                nonce: "1".into(),
                resources: vec![resource; resources],
                removed: Vec::new(),
                is_answer: false,
                lease: crate::stream::Lease::None,
            },
            caused_at: None,
            metrics: Metrics::new(),
        }
    }

    fn body() -> (mpsc::Sender<Item>, Body) {
        let (sender, receiver) = mpsc::channel(1);
        let Travelling(body) = Travelling::new::<Delta>(receiver);
        (sender, body.lock().unwrap().take().unwrap())
    }

    /// What one look gives: data, trailers' status, or nothing yet.
    fn look(body: &mut Body) -> Result<Option<Bytes>, String> {
        let mut context = Context::from_waker(Waker::noop());
        match Pin::new(body).poll_frame(&mut context) {
            Poll::Pending => Ok(None),
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(Some(data)),
                Err(frame) => Err(frame.into_trailers().unwrap()["grpc-status"]
                    .to_str()
                    .unwrap()
                    .into()),
            },
            Poll::Ready(other) => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_large_response_lets_others_run_and_goes_on() {
        let (sender, mut body) = body();
        assert_eq!(look(&mut body), Ok(None));
        sender.try_send(Box::new(Ok(outgoing(20)))).unwrap();
        let (mut pieces, mut turns) = (0, 0);
        while pieces < 21 {
            match look(&mut body).unwrap() {
                Some(_) => pieces += 1,
                None => turns += 1,
            }
        }
        assert_eq!(turns, 2);
        assert_eq!(look(&mut body), Ok(None));
        // A small one after it goes out at once.
        sender.try_send(Box::new(Ok(outgoing(1)))).unwrap();
        assert!(look(&mut body).unwrap().is_some() && look(&mut body).unwrap().is_some());
    }

    #[test]
    fn a_stream_ends_with_its_status() {
        let (sender, mut body) = body();
        drop(sender);
        assert_eq!(look(&mut body), Err("0".into()));
        assert!(body.is_end_stream());
        let (sender, mut body) = self::body();
        let status = Status::unavailable("the server is stopping");
        sender.try_send(Box::new(Err(status))).unwrap();
        assert_eq!(look(&mut body), Err("14".into()));
        assert!(body.is_end_stream());
    }
}
