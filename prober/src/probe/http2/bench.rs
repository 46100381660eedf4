//! What a gRPC conversation costs without I/O, ours and the `h2` crate's (the reason for `client`).
//!
//! `cargo test --release -p vitals-prober conversation_costs -- --ignored --nocapture`
//!
//! | | per conversation | memory while it waits for the answer |
//! |---|---|---|
//! | ours | 1.1 µs | 0.4 KB |
//! | `h2` 0.4, by hand over buffers | 7–13 µs | 19 KB |
//!
//! (2026-11-30, two shared cores.)

use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::super::conversation::{Conversation as _, Step};
use super::super::grpc::Conversation;
use super::transcript::{END, data, headers, settings};
use crate::check::grpc::{GrpcCheck, GrpcSpec};
use crate::clock;
use crate::outcome::ProbeResult;

const ROUNDS: u32 = 20_000;

/// What a gRPC server says: first its SETTINGS, then, in another packet, the rest.
fn transcript() -> [Vec<u8>; 2] {
    let head = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-accept-encoding", "identity, deflate, gzip"),
    ];
    let answer = [
        headers(0, &head),
        data(0, b"\0\0\0\0\x02\x08\x01"),
        headers(END, &[("grpc-status", "0"), ("grpc-message", "")]),
    ];
    [settings(), answer.concat()]
}

fn ours(check: &GrpcCheck, out: &mut Vec<u8>) -> Conversation {
    let peer = ([127, 0, 0, 1], 80).into();
    let mut conversation = Conversation::new(check, "h.test", false, peer, Duration::from_secs(5));
    out.clear();
    conversation.send(out);
    conversation
}

/// A connection in memory.
#[derive(Default)]
struct Pipe {
    input: Vec<u8>,
    sent: Vec<u8>,
}

/// The test's end of it is shared, as `h2` owns the other.
#[derive(Clone, Default)]
struct Io(std::rc::Rc<std::cell::RefCell<Pipe>>);

impl AsyncRead for Io {
    fn poll_read(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let input = &mut self.0.borrow_mut().input;
        if input.is_empty() {
            return Poll::Pending;
        }
        let take = input.len().min(buf.remaining());
        buf.put_slice(&input[..take]);
        input.drain(..take);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Io {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.borrow_mut().sent.extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct Theirs {
    io: Io,
    connection: h2::client::Connection<Io, Bytes>,
    response: h2::client::ResponseFuture,
    _sender: h2::client::SendRequest<Bytes>,
}

impl Theirs {
    fn new() -> Self {
        let cx = &mut Context::from_waker(Waker::noop());
        let io = Io::default();
        let handshake = h2::client::Builder::new()
            .enable_push(false)
            .handshake::<_, Bytes>(io.clone());
        let Poll::Ready(Ok((mut sender, connection))) = pin!(handshake).poll(cx) else {
            panic!("a handshake that waits")
        };
        let request = Request::post("http://h.test/grpc.health.v1.Health/Check")
            .header("te", "trailers")
            .header("content-type", "application/grpc")
            .header("user-agent", "grpc-vitals/0.1.0")
            .header("grpc-accept-encoding", "identity")
            .header("grpc-timeout", "5000m")
            .body(())
            .unwrap();
        let (response, mut stream) = sender.send_request(request, false).unwrap();
        stream.send_data(Bytes::from_static(&[0; 5]), true).unwrap();
        let mut new = Self {
            io,
            connection,
            response,
            _sender: sender,
        };
        new.drive(&[]);
        new
    }

    fn drive(&mut self, bytes: &[u8]) {
        let cx = &mut Context::from_waker(Waker::noop());
        self.io.0.borrow_mut().input.extend_from_slice(bytes);
        assert!(Pin::new(&mut self.connection).poll(cx).is_pending());
    }

    fn finish(mut self) {
        let cx = &mut Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(response)) = Pin::new(&mut self.response).poll(cx) else {
            panic!("no answer")
        };
        let (head, mut body): (_, h2::RecvStream) = Response::into_parts(response);
        assert_eq!(head.status, 200);
        let Poll::Ready(Some(Ok(message))) = body.poll_data(cx) else {
            panic!("no message")
        };
        assert_eq!(message.last(), Some(&1));
        let Poll::Ready(Ok(Some(trailers))) = body.poll_trailers(cx) else {
            panic!("no trailers")
        };
        assert_eq!(trailers["grpc-status"], "0");
    }
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn time(what: &str, mut round: impl FnMut()) {
    for _ in 0..ROUNDS / 10 {
        round();
    }
    let start = clock::now();
    for _ in 0..ROUNDS {
        round();
    }
    println!("{what}: {:.2?} per conversation", start.elapsed() / ROUNDS);
}

fn memory<T>(what: &str, make: impl FnMut() -> T) {
    let before = resident();
    let all: Vec<T> = std::iter::repeat_with(make).take(ROUNDS as usize).collect();
    let each = (resident() - before) / u64::from(ROUNDS);
    println!("{what}: {each} bytes while it waits");
    drop(all);
}

#[test]
#[ignore = "a measurement"]
fn conversation_costs() {
    let check = GrpcCheck::alone(GrpcSpec::default(), false).unwrap();
    let [hello, answer] = transcript();
    let mut out = Vec::new();
    time("ours", || {
        let mut conversation = ours(&check, &mut out);
        let now = clock::now();
        assert!(conversation.feed(&hello, now).is_none());
        conversation.send(&mut out);
        let step = conversation.feed(&answer, now);
        assert!(matches!(step, Some(Step::Done((ProbeResult::Pass, _)))));
    });
    time("h2", || {
        let mut theirs = Theirs::new();
        theirs.drive(&hello);
        theirs.drive(&answer);
        theirs.finish();
    });
    let size = size_of::<Conversation>();
    memory(&format!("ours ({size} of them on the spot)"), || {
        Box::new(ours(&check, &mut out))
    });
    memory("h2", || {
        let mut theirs = Theirs::new();
        theirs.drive(&hello);
        theirs
    });
}
