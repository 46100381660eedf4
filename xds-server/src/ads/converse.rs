//! A stream on which every request has one response: reflection, the status of clients.
//!
//! In: requests, and how each is answered. Out: responses. The next request is read when the last response was taken, so a
//! client that does not read costs one response.

use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

/// Responses, and at most one error, which is the last.
pub(crate) type Responses<T> = ReceiverStream<Result<T, Status>>;

/// Answers requests until the client ends the stream, an answer is an error, or `stopping` turns true.
pub(crate) fn converse<Q: Send + 'static, A: Send + 'static>(
    mut requests: Streaming<Q>,
    mut stopping: watch::Receiver<bool>,
    mut answer: impl FnMut(Q) -> Result<A, Status> + Send + 'static,
) -> Responses<A> {
    let (responses, out) = mpsc::channel(1);
    // Ends with the client's stream, at the latest when `stopping` turns true.
    tokio::spawn(async move {
        loop {
            let request = tokio::select! {
                biased;
                _ = stopping.wait_for(|stopping| *stopping) => {
                    Err(Status::unavailable("the server is stopping; reconnect"))
                }
                () = responses.closed() => return,
                request = requests.message() => match request.transpose() {
                    Some(request) => request,
                    None => return,
                },
            };
            let answer = request.and_then(&mut answer);
            let last = answer.is_err();
            let sent = tokio::select! {
                sent = responses.send(answer) => sent.is_ok(),
                _ = stopping.wait_for(|stopping| *stopping) => false,
            };
            if last || !sent {
                return;
            }
        }
    });
    ReceiverStream::new(out)
}
