//! A TCP server that does to each connection what a script says, right or wrong.
//!
//! In: an address and, for the first, second, … connection, a list of [`Act`]s; the last list is for all further ones. Out:
//! those bytes and faults on the wire. After its acts a connection stays open, without a word, until the peer leaves.
//!
//! Not here: any protocol. The bytes are the test's.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::backend::{RUNTIME, bind};

/// Between two pieces that must not arrive as one.
const GAP: Duration = Duration::from_millis(20);
/// A connect on the own machine that takes longer is not let in.
const FULL: Duration = Duration::from_millis(500);
/// Between two bytes of a trickle.
pub(crate) const TRICKLE: Duration = Duration::from_millis(100);

/// One thing that a server does to a connection.
#[derive(Clone, Debug)]
pub enum Act {
    /// Waits for the peer to say something, and reads that.
    Read,
    /// Sends this.
    Send(Vec<u8>),
    /// Sends this, again and again, until the peer has gone.
    Endless(Vec<u8>),
    /// Sends this, again and again, a byte each 100 ms.
    Trickle(Vec<u8>),
    /// Lets the peer see what has come before the next act.
    Gap,
    /// Sends FIN; what the peer says is still read.
    Fin,
    /// Closes: FIN, or RST where the peer has said something that was not read.
    Close,
    /// Sends RST.
    Reset,
}

/// A server with a script; gone when it is dropped.
#[derive(Debug)]
pub struct Hostile {
    address: SocketAddr,
    server: JoinHandle<()>,
}

impl Hostile {
    /// Does the same to every connection.
    #[must_use]
    pub fn start(address: SocketAddr, acts: Vec<Act>) -> Self {
        Self::in_turn(address, vec![acts])
    }

    /// Does to each connection what its turn says; the last turn stays.
    #[must_use]
    pub fn in_turn(address: SocketAddr, turns: Vec<Vec<Act>>) -> Self {
        let listener = bind(address);
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let turns = turns.into_iter().map(Arc::from).collect();
        Self {
            address,
            server: RUNTIME.spawn(serve(listener, turns)),
        }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// A port whose queue of connections is full: the system drops each further SYN.
#[derive(Debug)]
pub struct Full {
    _listener: TcpListener,
    _queued: Vec<TcpStream>,
}

impl Full {
    /// Listens, accepts nothing, and connects until nobody is let in any more.
    #[must_use]
    pub fn start(address: SocketAddr) -> Self {
        RUNTIME.block_on(async {
            let socket = TcpSocket::new_v4().expect("sockets can be made");
            socket.bind(address).expect("the address is free");
            let listener = socket.listen(1).expect("a bound socket can listen");
            let mut queued = Vec::new();
            while let Ok(connected) = timeout(FULL, TcpStream::connect(address)).await {
                queued.push(connected.expect("the system queues or drops"));
            }
            Self {
                _listener: listener,
                _queued: queued,
            }
        })
    }
}

/// Ends when it is aborted; its connections end with it.
async fn serve(listener: TcpListener, turns: Vec<Arc<[Act]>>) {
    let mut connections = JoinSet::new();
    let mut turn = 0;
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                // The peer gave up between SYN and accept.
                Err(_) => continue,
            },
            Some(_) = connections.join_next() => continue,
        };
        let acts = turns.get(turn).or(turns.last()).cloned();
        turn += 1;
        // A peer that leaves in the middle ends the script; that is no error here.
        connections.spawn(async move { play(stream, &acts.unwrap_or_default()).await.ok() });
    }
}

async fn play(mut stream: TcpStream, acts: &[Act]) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 16 * 1024];
    for step in acts {
        if !act(&mut stream, step, &mut buffer).await? {
            return Ok(());
        }
    }
    while stream.read(&mut buffer).await? > 0 {}
    // The peer may only have closed its own side; it decides when to leave.
    stream.shutdown().await
}

/// Does one thing; `false`: it was the last, and the connection is left.
pub(crate) async fn act(stream: &mut TcpStream, act: &Act, buffer: &mut [u8]) -> io::Result<bool> {
    match act {
        Act::Read => return Ok(stream.read(buffer).await? > 0),
        Act::Send(bytes) => stream.write_all(bytes).await?,
        Act::Endless(bytes) => loop {
            stream.write_all(bytes).await?;
        },
        Act::Trickle(bytes) => {
            let mut beat = tokio::time::interval(TRICKLE);
            for byte in bytes.iter().cycle() {
                beat.tick().await;
                stream.write_all(&[*byte]).await?;
            }
        }
        Act::Gap => tokio::time::sleep(GAP).await,
        Act::Fin => stream.shutdown().await?,
        Act::Close => return Ok(false),
        Act::Reset => {
            stream.set_zero_linger()?;
            return Ok(false);
        }
    }
    Ok(true)
}
