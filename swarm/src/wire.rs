//! xDS messages by hand: requests are written, responses are read as they come in, and what the swarm does not need of
//! them is skipped, never copied or decoded. A response may be a megabyte, and thousands arrive at once.
//!
//! In: chunks of a gRPC body. Out: [`Message`]s. Not here: what a client does with them.

use anyhow::{Result, bail, ensure};

/// Which of the two protocols.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Form {
    Sotw,
    Delta,
    /// Delta, and the endpoints stand apart from their load assignments.
    Leds,
}

impl Form {
    pub(crate) fn is_delta(self) -> bool {
        self != Self::Sotw
    }

    /// What the client calls itself: endpoints apart are for Envoys.
    fn user_agent(self) -> &'static str {
        match self {
            Self::Sotw | Self::Delta => "swarm",
            Self::Leds => "envoy",
        }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Sotw => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
            Self::Delta | Self::Leds => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
            }
        }
    }
}

/// The types that the swarm asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Cluster,
    Assignment,
    Endpoint,
    Listener,
}

impl Kind {
    fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Assignment => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
        }
    }

    fn from_url(url: &[u8]) -> Option<Self> {
        [
            Self::Cluster,
            Self::Assignment,
            Self::Endpoint,
            Self::Listener,
        ]
        .into_iter()
        .find(|kind| kind.url().as_bytes() == url)
    }
}

/// The name of the service of that number, as the configuration of the bench has it.
pub(crate) fn service_name(number: usize) -> String {
    format!("s-{number:05}")
}

fn service_number(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name.strip_prefix(b"s-")?)
        .ok()?
        .parse()
        .ok()
}

/// The number of the endpoint of that name, which ends in its address and port.
fn endpoint_number(name: &[u8]) -> Option<usize> {
    let name = std::str::from_utf8(name).ok()?;
    let (address, _) = name.rsplit('/').next()?.split_once('-')?;
    crate::target::number_of(address.parse().ok()?)
}

/// A response, as far as the swarm needs it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) kind: Option<Kind>,
    pub(crate) nonce: String,
    /// `version_info`, `system_version_info`; what it stands for is the server's.
    pub(crate) version: Vec<u8>,
    /// The number of each resource's service, or of the endpoint that it is, and in delta its version.
    pub(crate) resources: Vec<(Option<usize>, u64)>,
    pub(crate) removed: usize,
    /// Where endpoints stand apart: what is to be subscribed to.
    pub(crate) globs: Vec<String>,
}

/// What a field of the message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Skip,
    Enter,
    SystemVersion,
    TypeUrl,
    Nonce,
    Removed,
    Name,
    Version,
    Glob,
}

fn use_of(form: Form, kind: Option<Kind>, depth: usize, field: u64) -> Use {
    if form == Form::Leds && kind == Some(Kind::Assignment) {
        // Resource.resource, Any.value, ClusterLoadAssignment.endpoints, LocalityLbEndpoints.leds_cluster_locality_config
        match (depth, field) {
            (1..=3, 2) | (4, 8) => return Use::Enter,
            (5, 2) => return Use::Glob,
            _ => {}
        }
    }
    match (form, depth, field) {
        (_, 0, 1) => Use::SystemVersion,
        (_, 0, 2) => Use::Enter,
        (_, 0, 4) => Use::TypeUrl,
        (_, 0, 5) => Use::Nonce,
        (Form::Delta | Form::Leds, 0, 6) => Use::Removed,
        (Form::Delta | Form::Leds, 1, 1) => Use::Version,
        (Form::Delta | Form::Leds, 1, 3) => Use::Name,
        // SotW: the name is the first field of the value of the Any.
        (Form::Sotw, 1, 2) => Use::Enter,
        (Form::Sotw, 2, 1) => Use::Name,
        _ => Use::Skip,
    }
}

#[derive(Debug)]
enum State {
    /// Flag and length of the gRPC frame.
    Head([u8; 5], usize),
    Key(u64, u32),
    /// The field, and the bits of its length so far.
    Len(u64, u64, u32),
    Varint,
    Capture(Use, usize),
    Skip(usize),
}

/// Reads one direction of a stream, whatever the chunks.
#[derive(Debug)]
pub(crate) struct Reader {
    form: Form,
    state: State,
    position: usize,
    /// Where the message and what is open in it end.
    ends: Vec<usize>,
    captured: Vec<u8>,
    name: Option<usize>,
    version: u64,
    message: Message,
}

/// No name, nonce or version is longer.
const MAX_CAPTURE: usize = 512;

impl Reader {
    pub(crate) fn new(form: Form) -> Self {
        Self {
            form,
            state: State::Head([0; 5], 0),
            position: 0,
            ends: Vec::with_capacity(4),
            captured: Vec::new(),
            name: None,
            version: 0,
            message: Message::default(),
        }
    }

    /// Takes a chunk; whole messages go to `sink`.
    pub(crate) fn feed(
        &mut self,
        mut chunk: &[u8],
        mut sink: impl FnMut(Message) -> Result<()>,
    ) -> Result<()> {
        while let Some((&byte, rest)) = chunk.split_first() {
            match &mut self.state {
                State::Head(head, have) => {
                    if let Some(slot) = head.get_mut(*have) {
                        *slot = byte;
                    }
                    *have += 1;
                    chunk = rest;
                    if *have == head.len() {
                        let [flag, a, b, c, d] = *head;
                        ensure!(flag == 0, "a compressed message");
                        self.position = 0;
                        self.ends.clear();
                        self.ends.push(u32::from_be_bytes([a, b, c, d]) as usize);
                        self.state = State::Key(0, 0);
                        self.close(&mut sink)?;
                    }
                    continue;
                }
                State::Key(value, shift) => {
                    chunk = rest;
                    self.position += 1;
                    if !varint(value, shift, byte)? {
                        continue;
                    }
                    self.state = match *value & 7 {
                        2 => State::Len(*value >> 3, 0, 0),
                        0 => State::Varint,
                        other => bail!("wire type {other}"),
                    };
                    continue;
                }
                State::Varint => {
                    chunk = rest;
                    self.position += 1;
                    if byte & 0x80 == 0 {
                        self.state = State::Key(0, 0);
                    }
                }
                State::Len(field, value, shift) => {
                    chunk = rest;
                    self.position += 1;
                    if !varint(value, shift, byte)? {
                        continue;
                    }
                    let length = usize::try_from(*value)?;
                    match use_of(self.form, self.message.kind, self.ends.len() - 1, *field) {
                        Use::Enter => {
                            self.ends.push(self.position + length);
                            self.state = State::Key(0, 0);
                        }
                        Use::Skip => self.skip(length),
                        what => {
                            ensure!(length <= MAX_CAPTURE, "a name of {length} bytes");
                            self.captured.clear();
                            self.state = State::Capture(what, length);
                            if length == 0 {
                                self.take();
                            }
                        }
                    }
                }
                State::Capture(_, left) => {
                    let count = (*left).min(chunk.len());
                    let (taken, after) = chunk.split_at(count);
                    self.captured.extend_from_slice(taken);
                    *left -= count;
                    self.position += count;
                    chunk = after;
                    if *left == 0 {
                        self.take();
                    }
                }
                State::Skip(left) => {
                    let count = (*left).min(chunk.len());
                    *left -= count;
                    self.position += count;
                    (_, chunk) = chunk.split_at(count);
                    if *left == 0 {
                        self.state = State::Key(0, 0);
                    }
                }
            }
            self.close(&mut sink)?;
        }
        Ok(())
    }

    fn skip(&mut self, length: usize) {
        self.state = if length == 0 {
            State::Key(0, 0)
        } else {
            State::Skip(length)
        };
    }

    fn take(&mut self) {
        let State::Capture(what, _) = self.state else {
            return;
        };
        let bytes = &self.captured;
        match what {
            Use::SystemVersion => self.message.version.clone_from(bytes),
            Use::TypeUrl => self.message.kind = Kind::from_url(bytes),
            Use::Nonce => self.message.nonce = String::from_utf8_lossy(bytes).into_owned(),
            Use::Removed => self.message.removed += 1,
            Use::Name if self.message.kind == Some(Kind::Endpoint) => {
                self.name = endpoint_number(bytes);
            }
            Use::Name => self.name = service_number(bytes),
            Use::Glob => {
                let glob = String::from_utf8_lossy(bytes).into_owned();
                self.message.globs.push(glob);
            }
            Use::Version => {
                let text = std::str::from_utf8(bytes).unwrap_or_default();
                self.version = u64::from_str_radix(text, 16).unwrap_or_default();
            }
            Use::Skip | Use::Enter => {}
        }
        self.state = State::Key(0, 0);
        // Nothing after the name is needed of a resource in SotW.
        if what == Use::Name
            && self.form == Form::Sotw
            && let Some(end) = self.ends.last()
        {
            self.skip(end - self.position);
        }
    }

    /// Closes what ends here.
    fn close(&mut self, sink: &mut impl FnMut(Message) -> Result<()>) -> Result<()> {
        if !matches!(self.state, State::Key(_, 0)) {
            return Ok(());
        }
        while let Some(end) = self.ends.last() {
            if self.position < *end {
                return Ok(());
            }
            ensure!(self.position == *end, "a field overlaps the end");
            self.ends.pop();
            match self.ends.len() {
                0 => {
                    self.state = State::Head([0; 5], 0);
                    sink(std::mem::take(&mut self.message))?;
                }
                1 => {
                    let resource = (self.name.take(), std::mem::take(&mut self.version));
                    self.message.resources.push(resource);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// One byte of a varint. Says whether it was the last.
fn varint(value: &mut u64, shift: &mut u32, byte: u8) -> Result<bool> {
    ensure!(*shift < 64, "a varint without end");
    *value |= u64::from(byte & 0x7f) << *shift;
    *shift += 7;
    Ok(byte & 0x80 == 0)
}

/// A request.
#[derive(Debug, Default)]
pub(crate) struct Ask<'a> {
    /// `node.id`, in the first request of a stream.
    pub(crate) node: Option<&'a str>,
    /// All names in SotW, new ones in delta.
    pub(crate) names: &'a [String],
    pub(crate) nonce: &'a str,
    pub(crate) version: &'a [u8],
    /// Delta: versions by service, 0 where there is none.
    pub(crate) has: &'a [u64],
}

/// The gRPC frame of a request.
pub(crate) fn request(form: Form, kind: Kind, ask: &Ask<'_>) -> Vec<u8> {
    let mut out = vec![0; 5];
    if let Some(id) = ask.node {
        let mut node = Vec::new();
        field(&mut node, 1, id.as_bytes());
        field(&mut node, 2, b"edge");
        field(&mut node, 6, form.user_agent().as_bytes());
        let number = match form {
            Form::Sotw => 2,
            Form::Delta | Form::Leds => 1,
        };
        field(&mut out, number, &node);
    }
    match form {
        Form::Sotw => {
            if !ask.version.is_empty() {
                field(&mut out, 1, ask.version);
            }
            for name in ask.names {
                field(&mut out, 3, name.as_bytes());
            }
            field(&mut out, 4, kind.url().as_bytes());
            if !ask.nonce.is_empty() {
                field(&mut out, 5, ask.nonce.as_bytes());
            }
        }
        Form::Delta | Form::Leds => {
            field(&mut out, 2, kind.url().as_bytes());
            for name in ask.names {
                field(&mut out, 3, name.as_bytes());
            }
            for (number, version) in ask
                .has
                .iter()
                .enumerate()
                .filter(|(_, version)| **version != 0)
            {
                let mut entry = Vec::new();
                field(&mut entry, 1, service_name(number).as_bytes());
                field(&mut entry, 2, format!("{version:016x}").as_bytes());
                field(&mut out, 5, &entry);
            }
            if !ask.nonce.is_empty() {
                field(&mut out, 6, ask.nonce.as_bytes());
            }
        }
    }
    let length = u32::try_from(out.len() - 5).unwrap_or(u32::MAX);
    if let Some(head) = out.get_mut(1..5) {
        head.copy_from_slice(&length.to_be_bytes());
    }
    out
}

fn field(out: &mut Vec<u8>, number: u8, value: &[u8]) {
    out.push(number << 3 | 2);
    let mut length = value.len();
    while length >= 0x80 {
        out.push(0x80 | u8::try_from(length & 0x7f).unwrap_or_default());
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap_or_default());
    out.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut out = vec![0];
        out.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        out.extend_from_slice(body);
        out
    }

    fn delta() -> Vec<u8> {
        let mut resource = Vec::new();
        field(&mut resource, 1, b"00000000000000ff");
        field(&mut resource, 2, &[7; 3000]);
        field(&mut resource, 3, b"s-00042");
        let mut body = Vec::new();
        field(&mut body, 1, b"v");
        field(&mut body, 2, &resource);
        field(&mut body, 4, Kind::Assignment.url().as_bytes());
        field(&mut body, 5, b"9");
        field(&mut body, 6, b"s-00001");
        framed(&body)
    }

    fn message_of(kind: Kind, resource: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        field(&mut body, 1, b"v");
        field(&mut body, 4, kind.url().as_bytes());
        field(&mut body, 5, b"9");
        field(&mut body, 2, resource);
        framed(&body)
    }

    fn leds() -> Vec<u8> {
        let mut assignment = Vec::new();
        field(&mut assignment, 1, b"s-00042");
        for glob in ["x/*", "y/*"] {
            let (mut config, mut locality) = (Vec::new(), Vec::new());
            field(&mut config, 1, &[7; 10]);
            field(&mut config, 2, glob.as_bytes());
            field(&mut locality, 1, b"");
            field(&mut locality, 8, &config);
            field(&mut assignment, 2, &locality);
        }
        let (mut any, mut resource) = (Vec::new(), Vec::new());
        field(&mut any, 1, b"url");
        field(&mut any, 2, &assignment);
        field(&mut resource, 1, b"00000000000000ff");
        field(&mut resource, 2, &any);
        field(&mut resource, 3, b"s-00042");
        message_of(Kind::Assignment, &resource)
    }

    fn leds_endpoint() -> Vec<u8> {
        let mut resource = Vec::new();
        field(&mut resource, 1, b"000000ff");
        field(&mut resource, 2, &[7; 100]);
        field(
            &mut resource,
            3,
            b"xdstp://vitals/kind/g.1/s-00042/g/127.1.1.3-80",
        );
        message_of(Kind::Endpoint, &resource)
    }

    fn sotw() -> Vec<u8> {
        let mut value = Vec::new();
        field(&mut value, 1, b"s-00007");
        field(&mut value, 2, &[7; 3000]);
        let mut any = Vec::new();
        field(&mut any, 1, b"url");
        field(&mut any, 2, &value);
        let mut body = Vec::new();
        field(&mut body, 1, b"v");
        field(&mut body, 2, &any);
        field(&mut body, 2, &any);
        field(&mut body, 4, Kind::Cluster.url().as_bytes());
        field(&mut body, 5, b"9");
        framed(&body)
    }

    #[test]
    fn responses_are_read_the_same_in_any_chunks() {
        for (form, bytes, expected) in [
            (
                Form::Delta,
                delta(),
                Message {
                    kind: Some(Kind::Assignment),
                    nonce: "9".into(),
                    version: b"v".to_vec(),
                    resources: vec![(Some(42), 0xff)],
                    removed: 1,
                    globs: vec![],
                },
            ),
            (
                Form::Leds,
                leds(),
                Message {
                    kind: Some(Kind::Assignment),
                    nonce: "9".into(),
                    version: b"v".to_vec(),
                    resources: vec![(Some(42), 0xff)],
                    removed: 0,
                    globs: vec!["x/*".into(), "y/*".into()],
                },
            ),
            (
                Form::Leds,
                leds_endpoint(),
                Message {
                    kind: Some(Kind::Endpoint),
                    nonce: "9".into(),
                    version: b"v".to_vec(),
                    resources: vec![(Some(258), 0xff)],
                    removed: 0,
                    globs: vec![],
                },
            ),
            (
                Form::Sotw,
                sotw(),
                Message {
                    kind: Some(Kind::Cluster),
                    nonce: "9".into(),
                    version: b"v".to_vec(),
                    resources: vec![(Some(7), 0), (Some(7), 0)],
                    removed: 0,
                    globs: vec![],
                },
            ),
        ] {
            let twice = [bytes.clone(), bytes].concat();
            for size in [1, 2, 7, 1000, twice.len()] {
                let (mut reader, mut seen) = (Reader::new(form), Vec::new());
                for chunk in twice.chunks(size) {
                    reader
                        .feed(chunk, |message| {
                            seen.push(message);
                            Ok(())
                        })
                        .unwrap();
                }
                assert_eq!(seen.len(), 2, "chunks of {size}");
                assert!(seen.iter().all(|message| *message == expected), "{seen:?}");
            }
        }
    }

    #[test]
    fn garbage_is_an_error() {
        let mut reader = Reader::new(Form::Delta);
        assert!(reader.feed(&framed(&[0x0f, 1, 2]), |_| Ok(())).is_err());
        let mut reader = Reader::new(Form::Delta);
        assert!(reader.feed(&framed(&[0x0a, 9, 2]), |_| Ok(())).is_err() || reader.ends.len() == 1);
    }
}
