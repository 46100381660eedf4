//! A place among its peer's streams for each request on the xDS listener, from its head to the last of its response.
//!
//! In: requests of any service: discovery, health, reflection, and what is not served. Out: the same, or RESOURCE_EXHAUSTED.
//! A watcher of health or a reflection without questions costs as much to keep open as a stream of discovery, and so does
//! a response that nobody reads, of a stream whose task has ended; so whoever has a stream open has a place taken.
//!
//! Behind a listener that is not `transport`'s there are no peers, and no limit.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::transport::{Peer, Place};

/// Gives each request of a service its place.
#[derive(Clone, Debug)]
pub struct Places<S>(S);

impl<S> Places<S> {
    /// Around all services of the listener.
    #[must_use]
    pub fn new(service: S) -> Self {
        Self(service)
    }
}

/// A response that holds a place until nobody needs it any more.
#[derive(Debug, Default)]
pub struct Held {
    body: Body,
    _place: Option<Place>,
}

impl<S, B> Service<Request<B>> for Places<S>
where
    S: Service<Request<B>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Held>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Held>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let peer = request.extensions().get::<Peer>();
        let response = match peer.map(Peer::open_stream).transpose() {
            Ok(place) => Ok((self.0.call(request), place)),
            Err(error) => Err(Status::resource_exhausted(error.to_string())),
        };
        Box::pin(async move {
            match response {
                Ok((response, place)) => Ok(response.await?.map(|body| Held {
                    body,
                    _place: place,
                })),
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

impl http_body::Body for Held {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
