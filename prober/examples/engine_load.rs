//! What a probe costs: many targets against a backend in the same process, and what the engine's threads used for it.
//!
//! In: arguments `[targets] [interval in ms] [seconds] [workers] [a type's name, such as
//! HTTPS]`. Out: probes, how late they started, how
//! many were INCONCLUSIVE, CPU time per probe of the engine's own threads, and memory per target.
//!
//! The targets are 127.1.0.0/16 with one port, so that a single listener plays all of them. On the loopback the kernel
//! does part of the backend's work in the prober's name, so compare these figures only with others taken alike.

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use rustls::crypto::aws_lc_rs;
use rustls::{ServerConfig, ServerConnection};
use vitals_prober::check::{HealthCheck, HealthCheckSpec, Kind};
use vitals_prober::clock;
use vitals_prober::engine::{
    Engine, EngineConfig, Recorder, in_flight_cap, raise_descriptor_limit,
};
use vitals_prober::outcome::{Outcome, ProbeResult};
use vitals_prober::tally::Tally;
use vitals_prober::target::{Names, Pulse, StateKey, Target};

/// Notes what came of every probe.
#[derive(Default)]
struct Ledger(Mutex<Figures>);

#[derive(Default)]
struct Figures {
    lateness: Vec<Duration>,
    latency: Vec<Duration>,
    by_code: HashMap<&'static str, u64>,
    inconclusive: u64,
}

impl Recorder for Ledger {
    fn probe(&self, _check: &HealthCheck, outcome: &Outcome, lateness: Duration) {
        let mut figures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        figures.lateness.push(lateness);
        figures.latency.push(outcome.times.total);
        figures.inconclusive += u64::from(outcome.result == ProbeResult::Inconclusive);
        *figures
            .by_code
            .entry(outcome.reason.code.as_str())
            .or_default() += 1;
    }
}

fn main() -> io::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| {
        args.get(at)
            .and_then(|arg| arg.parse().ok())
            .unwrap_or(default)
    };
    let (targets, interval) = (number(0, 2_000), Duration::from_millis(number(1, 1_000)));
    let (seconds, workers) = (number(2, 20), number(3, 1));
    let name = args.get(4).map(|name| name.to_ascii_uppercase());
    let kind = name
        .and_then(|name| Kind::from_name(&name))
        .unwrap_or(Kind::Http);
    let descriptors = raise_descriptor_limit()?;
    let port = serve(kind.is_tls().then(tls).transpose()?)?;
    let check = HealthCheck::new(HealthCheckSpec {
        check_interval: Some(interval),
        timeout: Some(interval.min(Duration::from_secs(1))),
        ..HealthCheckSpec::of(kind)
    })
    .map_err(|errors| io::Error::other(format!("{errors:?}")))?;

    let before = resident()?;
    let ledger = Arc::new(Ledger::default());
    let config = EngineConfig {
        workers: usize::try_from(workers).unwrap_or(1),
        max_in_flight: in_flight_cap(descriptors / 2),
        vantage: "load".into(),
        source_address: None,
    };
    let (engine, mut reports) = Engine::start(config, ledger.clone())?;
    engine.set_targets(plan(targets, port, &Arc::new(check)));
    // Reads reports as the server does, and ends with the time.
    let start = clock::now();
    let span = Duration::from_secs(seconds);
    let mut moved = 0u64;
    while start.elapsed() < span {
        while reports.try_recv().is_ok() {
            moved += 1;
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    let (cpu, after) = (engine_cpu()?, resident()?);
    let faults = engine.faults();
    engine.shutdown();

    let mut figures = ledger.0.lock().unwrap_or_else(PoisonError::into_inner);
    let probes = figures.lateness.len() as u64;
    println!("{targets} targets, every {interval:?}, {seconds} s, {workers} worker(s)");
    println!(
        "probes        {probes} ({} per second)",
        probes / seconds.max(1)
    );
    println!("outcomes      {:?}", figures.by_code);
    println!("inconclusive  {}", figures.inconclusive);
    println!("lateness      {}", percentiles(&mut figures.lateness));
    println!("latency       {}", percentiles(&mut figures.latency));
    println!(
        "CPU per probe {:.1} µs",
        cpu.as_secs_f64() * 1e6 / probes.max(1) as f64
    );
    // 32 bytes per probe are this program's own notes.
    let notes = probes * 32;
    println!(
        "memory        {} bytes per target, this program's notes taken off",
        (after.saturating_sub(before + notes)) / targets.max(1)
    );
    println!("reports       {moved}, faults {faults}");
    Ok(())
}

fn plan(targets: u64, port: u16, check: &Arc<HealthCheck>) -> Vec<Target> {
    let address = |n: u64| {
        let [.., high, low] = n.to_be_bytes();
        SocketAddr::from((Ipv4Addr::new(127, 1, high, low), port))
    };
    (0..targets.min(1 << 16))
        .map(address)
        .map(|address| {
            let names = Names::new(check, None, address);
            Target {
                key: StateKey::new(address, &names, check),
                address,
                names,
                check: Arc::clone(check),
                seed: Tally::new(),
                pulse: Arc::new(Pulse::default()),
            }
        })
        .collect()
}

fn percentiles(samples: &mut [Duration]) -> String {
    samples.sort_unstable();
    let at = |share: usize| {
        let index = (samples.len() * share / 1000).min(samples.len().saturating_sub(1));
        samples.get(index).copied().unwrap_or_default()
    };
    format!(
        "p50 {:.1?}, p99 {:.1?}, max {:.1?}",
        at(500),
        at(990),
        at(1000)
    )
}

/// The CPU time of the engine's threads so far.
fn engine_cpu() -> io::Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.starts_with("probe-") {
            let stat = std::fs::read_to_string(task.join("schedstat"))?;
            nanos += stat
                .split(' ')
                .next()
                .and_then(|field| field.parse::<u64>().ok())
                .unwrap_or(0);
        }
    }
    Ok(Duration::from_nanos(nanos))
}

/// The resident memory of this process, in bytes.
fn resident() -> io::Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse::<u64>().ok());
    Ok(pages.unwrap_or(0) * rustix::param::page_size() as u64)
}

/// TLS with a certificate of its own.
fn tls() -> io::Result<Arc<ServerConfig>> {
    let made = rcgen::generate_simple_self_signed(["backend.example".to_owned()])
        .map_err(io::Error::other)?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|config| {
            config
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.into()], made.signing_key.into())
        });
    config.map(Arc::new).map_err(io::Error::other)
}

/// One connection of the backend.
struct Served {
    stream: TcpStream,
    tls: Option<ServerConnection>,
}

/// Starts the backend: a thread that answers every request with 200, until the process ends.
fn serve(tls: Option<Arc<ServerConfig>>) -> io::Result<u16> {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
    listener.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    listener.listen(16_384)?;
    listener.set_nonblocking(true)?;
    let mut listener = TcpListener::from_std(listener.into());
    let port = listener.local_addr()?.port();
    let mut poll = Poll::new()?;
    poll.registry()
        .register(&mut listener, Token(0), Interest::READABLE)?;
    std::thread::Builder::new()
        .name("backend".into())
        .spawn(move || {
            let mut streams: HashMap<usize, Served> = HashMap::new();
            let mut next = 0;
            let mut events = Events::with_capacity(1024);
            while poll.poll(&mut events, None).is_ok() {
                for event in &events {
                    if event.token() == Token(0) {
                        while let Ok((mut stream, _)) = listener.accept() {
                            next += 1;
                            let token = Token(next);
                            // As servers of TLS do: their answer is of several pieces.
                            stream.set_nodelay(true).ok();
                            if poll
                                .registry()
                                .register(&mut stream, token, Interest::READABLE)
                                .is_ok()
                            {
                                let tls = tls
                                    .clone()
                                    .and_then(|config| ServerConnection::new(config).ok());
                                streams.insert(next, Served { stream, tls });
                            }
                        }
                    } else if let Some(stream) = streams.get_mut(&event.token().0)
                        && !answer(stream)
                    {
                        streams.remove(&event.token().0);
                    }
                }
            }
        })?;
    Ok(port)
}

/// Answers what there is to answer; `false` when the connection is over.
fn answer(Served { stream, tls }: &mut Served) -> bool {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    let mut request = [0; 2048];
    let result = match tls {
        None => match stream.read(&mut request) {
            Ok(0) => return false,
            Ok(_) => stream.write_all(OK),
            Err(error) => Err(error),
        },
        Some(tls) => {
            let handshaken = tls.complete_io(stream).map(|_| ());
            let heard = tls.reader().read(&mut request);
            if matches!(heard, Ok(n) if n > 0) {
                tls.writer()
                    .write_all(OK)
                    .and_then(|()| tls.write_tls(stream))
                    .map(|_| ())
            } else {
                handshaken
            }
        }
    };
    result.map_or_else(|error| error.kind() == io::ErrorKind::WouldBlock, |()| true)
}
