//! `cargo xtask backend`: the HTTP server that the demo kills and the bench probes. A process, so that killing it is real.
//!
//! In: an address. Out: 200 and the server's name, to any request, on connections that stay open; with `--grpc` SERVING, over
//! HTTP/2. It ends when its stdin does, so it never outlives the command that started it. Not here: a full HTTP server;
//! requests have no bodies.

mod grpc;

use std::io::Read;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    listen: SocketAddr,
    /// A gRPC health server instead
    #[arg(long)]
    grpc: bool,
}

/// Connections that wait to be accepted; the kernel has its own bound, 4096 by default.
const BACKLOG: u32 = 4096;

pub(crate) fn run(args: &Args) -> Result<()> {
    // Ends the process when whoever started it is gone.
    std::thread::spawn(|| {
        std::io::stdin().read_to_end(&mut Vec::new()).ok();
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(args.listen, args.grpc))
}

async fn serve(address: SocketAddr, grpc: bool) -> Result<()> {
    let listener = listen(address).with_context(|| format!("cannot listen on {address}"))?;
    let name = address.ip().to_string();
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{name}",
        name.len()
    );
    let answer: &'static [u8] = answer.into_bytes().leak();
    loop {
        // A peer that gave up between SYN and accept is nothing to end for.
        if let Ok((stream, _)) = listener.accept().await {
            // Ends with the connection.
            if grpc {
                tokio::spawn(grpc::converse(stream));
            } else {
                tokio::spawn(converse(stream, answer));
            }
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Answers each head of a request; ends at the peer's wish.
async fn converse(mut stream: TcpStream, answer: &[u8]) -> Option<()> {
    let mut read = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut read).await.ok()? == 0 || read.len() > 65_536 {
            return None;
        }
        while let Some(end) = read.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            read.drain(..end + 4);
            stream.write_all(answer).await.ok()?;
        }
    }
}
