//! What the server probes: an HTTP server on every loopback address, whose answers are turned one address at a time.
//!
//! In: a wish for a flip. Out: the moment at which the first changed answer goes out, and of which endpoint: from there on
//! the server can know. A flip takes the next probe that comes, so it waits for no check's interval.
//!
//! Endpoint N is the address N after 127.1.0.1.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::Instant;

/// A turned answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flip {
    pub(crate) endpoint: usize,
    pub(crate) at: Instant,
}

/// Is told of a flip before the changed answer goes out.
pub(crate) type Told = Box<dyn FnOnce(Flip) + Send>;

#[derive(Default)]
struct State {
    down: BTreeSet<usize>,
    /// Who is told of the next answer, which is a changed one.
    wish: Option<Told>,
}

/// The running target.
pub(crate) struct Targets {
    pub(crate) port: u16,
    state: Mutex<State>,
    /// Endpoints from this number on answer differently each time, while `flapping`.
    flap_from: usize,
    flapping: AtomicBool,
    flaps: AtomicUsize,
}

const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 1]);
/// The number of the endpoint at an address.
pub(crate) fn number_of(address: Ipv4Addr) -> Option<usize> {
    let number = u32::from(address).checked_sub(FIRST)?;
    usize::try_from(number).ok()
}

const UP: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
const DOWN: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

impl Targets {
    /// Listens. Its threads end with the process.
    pub(crate) fn start(flap_from: usize) -> Result<Arc<Self>> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
        let targets = Arc::new(Self {
            port: listener.local_addr()?.port(),
            state: Mutex::default(),
            flap_from,
            flapping: AtomicBool::new(false),
            flaps: AtomicUsize::new(0),
        });
        // Several accept, so that one slow prober holds up nobody.
        for _ in 0..4 {
            let (listener, targets) = (listener.try_clone()?, Arc::clone(&targets));
            std::thread::spawn(move || {
                loop {
                    if let Ok((stream, _)) = listener.accept() {
                        targets.answer(stream);
                    }
                }
            });
        }
        Ok(targets)
    }

    /// Tells `who` of the next answer, which will be a changed one.
    pub(crate) fn flip(&self, who: Told) {
        self.lock().wish = Some(who);
    }

    /// Lets the endpoints that may flap do so, or not.
    pub(crate) fn set_flapping(&self, flapping: bool) {
        self.flapping.store(flapping, Ordering::Relaxed);
    }

    /// How many answers differed from the one before, while flapping.
    pub(crate) fn flaps(&self) -> usize {
        self.flaps.load(Ordering::Relaxed)
    }

    /// Answers one request; whatever goes wrong is the prober's to notice.
    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let SocketAddr::V4(local) = stream.local_addr().ok()? else {
            return None;
        };
        let number = number_of(*local.ip())?;
        stream
            .set_read_timeout(Some(Duration::from_millis(500)))
            .ok()?;
        let mut head = [0; 1024];
        if stream.read(&mut head).ok()? == 0 {
            return None;
        }
        let (down, told) = self.turn(number);
        if let Some(told) = told {
            let at = Instant::now();
            told(Flip {
                endpoint: number,
                at,
            });
        }
        stream.write_all(if down { DOWN } else { UP }).ok()
    }

    fn turn(&self, number: usize) -> (bool, Option<Told>) {
        let mut state = self.lock();
        let flaps = number >= self.flap_from;
        let wish = if flaps { None } else { state.wish.take() };
        if wish.is_some() || (flaps && self.flapping.load(Ordering::Relaxed)) {
            if flaps {
                self.flaps.fetch_add(1, Ordering::Relaxed);
            }
            if !state.down.remove(&number) {
                state.down.insert(number);
            }
        }
        (state.down.contains(&number), wish)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: usize) -> Ipv4Addr {
        Ipv4Addr::from(FIRST + u32::try_from(number).unwrap())
    }

    fn probe(targets: &Targets, endpoint: usize) -> String {
        let mut stream = TcpStream::connect((address(endpoint), targets.port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text.split(' ').nth(1).unwrap().to_owned()
    }

    #[test]
    fn a_flip_turns_the_next_probed_endpoint_and_no_other() {
        let targets = Targets::start(10).unwrap();
        assert_eq!(probe(&targets, 3), "200");
        let (to, flips) = std::sync::mpsc::sync_channel(1);
        targets.flip(Box::new(move |flip| to.send(flip).unwrap()));
        assert_eq!(probe(&targets, 11), "200", "one that flaps is not taken");
        assert_eq!(probe(&targets, 5), "503");
        assert_eq!(flips.recv().unwrap().endpoint, 5);
        assert_eq!(probe(&targets, 5), "503");
        assert_eq!(probe(&targets, 3), "200");
        targets.set_flapping(true);
        assert_eq!(probe(&targets, 11), "503");
        assert_eq!(probe(&targets, 11), "200");
        assert_eq!(targets.flaps(), 2);
    }
}
