//! A TCP line between two parties that can be cut and mended, as a network does that fails under a connection.
//!
//! In: where it leads. Out: an address that leads there while the line is whole. A cut ends all its connections and refuses
//! new ones. Not here: delays and losses; TCP hides those.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::backend::{RUNTIME, bind};

/// A line; gone when it is dropped.
#[derive(Debug)]
pub struct Line {
    address: SocketAddr,
    whole: watch::Sender<bool>,
    server: JoinHandle<()>,
}

impl Line {
    /// A whole line from `address` to another; port 0 lets the system choose.
    #[must_use]
    pub fn new(address: SocketAddr, to: SocketAddr) -> Self {
        let listener = bind(address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let (whole, state) = watch::channel(true);
        let server = RUNTIME.spawn(serve(listener, to, state));
        Self {
            address,
            whole,
            server,
        }
    }

    /// Where it begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and lets none through.
    pub fn cut(&self) {
        self.whole.send_replace(false);
    }

    /// Lets connections through again.
    pub fn mend(&self) {
        self.whole.send_replace(true);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.server.abort();
        self.cut();
    }
}

/// Ends when it is aborted.
async fn serve(listener: TcpListener, to: SocketAddr, whole: watch::Receiver<bool>) {
    loop {
        // The peer may have given up between SYN and accept.
        let Ok((mut from, _)) = listener.accept().await else {
            continue;
        };
        let mut whole = whole.clone();
        if !*whole.borrow_and_update() {
            continue;
        }
        // Ends with either side's connection, or when the line is cut.
        RUNTIME.spawn(async move {
            if let Ok(mut there) = TcpStream::connect(to).await {
                tokio::select! {
                    _ = copy_bidirectional(&mut from, &mut there) => {}
                    _ = whole.wait_for(|whole| !whole) => {}
                }
            }
        });
    }
}
