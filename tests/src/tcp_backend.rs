//! A TCP server that says its name and a newline, and then echoes.

use std::net::SocketAddr;

use tokio::io::{AsyncWriteExt, copy};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use crate::backend::{RUNTIME, bind};

/// A TCP backend; gone when it is dropped.
#[derive(Debug)]
pub struct TcpBackend {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl TcpBackend {
    /// Starts one on `address`; port 0 lets the system choose.
    #[must_use]
    pub fn start(address: SocketAddr) -> Self {
        let listener = bind(address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let server = RUNTIME.spawn(serve(listener, format!("{address}\n")));
        Self { address, server }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for TcpBackend {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Ends when it is aborted; its connections end with it.
async fn serve(listener: TcpListener, greeting: String) {
    let mut connections = JoinSet::new();
    loop {
        let mut stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The peer gave up between SYN and accept.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
        };
        let greeting = greeting.clone();
        connections.spawn(async move {
            let (mut read, mut write) = stream.split();
            // A probe closes at once; that is no error here.
            if write.write_all(greeting.as_bytes()).await.is_ok() {
                copy(&mut read, &mut write).await.ok();
            }
        });
    }
}
