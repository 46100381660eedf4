//! Both conversations against a real HTTP/2 server (the `h2` crate) over loopback: Huffman-coded fields, a dynamic
//! table, acknowledged SETTINGS, a graceful end (semantics P4, P12, P14).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use http::{HeaderMap, Request, Response};

use super::super::conversation::Step;
use super::super::grpc;
use super::*;
use crate::check::grpc::{GrpcCheck, GrpcSpec};
use crate::check::{HealthCheck, HealthCheckSpec, HttpSpec, Protocol};
use crate::clock;

const TIMEOUT: Duration = Duration::from_secs(10);

type Answerer = fn(Request<h2::RecvStream>, SendResponse<Bytes>);

/// What the server does with its connection.
#[derive(Clone, Copy)]
enum Serve {
    /// Answers.
    Answer(Answerer),
    /// Says that it is about to go, and answers what has come.
    Graceful(Answerer),
    /// Goes without looking at the request.
    Refuse,
}

/// A server for one connection.
fn server(serve: Serve) -> (SocketAddr, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (stream, _) = listener.accept().unwrap();
            stream.set_nonblocking(true).unwrap();
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let answerer = match serve {
                Serve::Answer(answerer) => answerer,
                Serve::Graceful(answerer) => {
                    connection.graceful_shutdown();
                    answerer
                }
                Serve::Refuse => {
                    connection.abrupt_shutdown(h2::Reason::ENHANCE_YOUR_CALM);
                    while connection.accept().await.is_some() {}
                    return;
                }
            };
            while let Some(Ok((request, respond))) = connection.accept().await {
                answerer(request, respond);
            }
        });
    });
    (address, thread)
}

/// Drives a conversation with blocking calls.
fn converse(mut conversation: impl conversation::Conversation, serve: Serve) -> Step {
    let (address, thread) = server(serve);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut out, mut piece) = (Vec::new(), [0; 4096]);
    let step = loop {
        out.clear();
        conversation.send(&mut out);
        stream.write_all(&out).unwrap();
        let read = stream.read(&mut piece).unwrap();
        if read == 0 {
            break conversation.end();
        }
        if let Some(step) = conversation.feed(&piece[..read], clock::now()) {
            break step;
        }
    };
    drop(stream);
    thread.join().unwrap();
    step
}

fn code(step: &Step) -> ReasonCode {
    match step {
        Step::Done((_, reason)) => reason.code,
        Step::Retry => panic!("retry"),
    }
}

fn peer() -> SocketAddr {
    "192.0.2.1:443".parse().unwrap()
}

fn health(service: Option<&str>) -> grpc::Conversation {
    let spec = GrpcSpec {
        service_name: service.map(Into::into),
        ..GrpcSpec::default()
    };
    let check = GrpcCheck::alone(spec, false).unwrap();
    grpc::Conversation::new(&check, "h.test", false, peer(), TIMEOUT)
}

fn answer_grpc(mut respond: SendResponse<Bytes>, message: &'static [u8], status: &'static str) {
    let head = Response::builder()
        .header("content-type", "application/grpc")
        .header("date", "Mon, 21 Oct 2013 20:13:21 GMT")
        .header("x-letters", "!\"#$%&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~")
        .body(())
        .unwrap();
    let mut stream = respond.send_response(head, false).unwrap();
    stream
        .send_data(Bytes::from_static(message), false)
        .unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", status.parse().unwrap());
    // In the dynamic table since the head.
    trailers.insert("date", "Mon, 21 Oct 2013 20:13:21 GMT".parse().unwrap());
    stream.send_trailers(trailers).unwrap();
}

fn serving(request: Request<h2::RecvStream>, respond: SendResponse<Bytes>) {
    assert_eq!(request.uri().path(), "/grpc.health.v1.Health/Check");
    assert_eq!(request.headers()["grpc-timeout"], "10000m");
    answer_grpc(respond, b"\0\0\0\0\x02\x08\x01", "0");
}

fn not_serving(_request: Request<h2::RecvStream>, respond: SendResponse<Bytes>) {
    answer_grpc(respond, b"\0\0\0\0\x02\x08\x02", "0");
}

#[test]
fn p12_a_real_server_is_judged_by_its_health_answer() {
    let step = converse(health(Some("a.B")), Serve::Answer(serving));
    assert_eq!(code(&step), ReasonCode::ResponseOk, "{step:?}");
    let step = converse(health(None), Serve::Answer(not_serving));
    assert_eq!(code(&step), ReasonCode::NotServing, "{step:?}");
}

#[test]
fn p14_a_server_that_goes_gracefully_is_judged_and_one_that_refuses_is_retried() {
    let step = converse(health(None), Serve::Graceful(serving));
    assert_eq!(code(&step), ReasonCode::ResponseOk, "{step:?}");
    let step = converse(health(None), Serve::Refuse);
    assert!(matches!(step, Step::Retry), "{step:?}");
}

#[test]
fn p4_a_real_server_is_judged_by_status_and_body() {
    let spec = HealthCheckSpec::http(HttpSpec {
        response: Some("all is well".into()),
        headers: vec![("X-Probe".into(), "vitals".into())],
        ..HttpSpec::default()
    });
    let check = HealthCheck::new(spec).unwrap();
    let Protocol::Http(http) = check.protocol() else {
        panic!("{check:?}")
    };
    let new = || Conversation::new(http, "h.test", false, peer());
    let step = converse(
        new(),
        Serve::Answer(|request, mut respond| {
            assert_eq!(request.uri().authority().unwrap(), "h.test");
            assert_eq!(request.headers()["x-probe"], "vitals");
            let mut stream = respond.send_response(Response::new(()), false).unwrap();
            stream
                .send_data(Bytes::from_static(b"say: all is "), false)
                .unwrap();
            stream.send_data(Bytes::from_static(b"well"), true).unwrap();
        }),
    );
    assert_eq!(code(&step), ReasonCode::ResponseOk, "{step:?}");
    let step = converse(
        new(),
        Serve::Answer(|_, mut respond| {
            let head = Response::builder().status(503).body(()).unwrap();
            respond.send_response(head, true).unwrap();
        }),
    );
    assert_eq!(code(&step), ReasonCode::StatusMismatch, "{step:?}");
    let step = converse(
        new(),
        Serve::Answer(|_, mut respond| respond.send_reset(h2::Reason::INTERNAL_ERROR)),
    );
    assert_eq!(code(&step), ReasonCode::Http2Error, "{step:?}");
}
