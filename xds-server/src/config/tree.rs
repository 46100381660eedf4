//! YAML text → a tree whose every key and value knows its line and column.
//!
//! In: the bytes of one file. Out: a [`Node`], or findings: text that is not YAML, a key written twice, a tag, a second
//! document. The parser reports events; we build the tree ourselves, because serde stops at the first error and forgets
//! where things stand, and we report all of them with their place.
//!
//! Everything here is bounded, as the file may be anything: its size, the depth of its nesting, and the nodes and
//! bytes that it has once aliases are expanded ([`Budget`]). An alias shares the tree it refers to, so it costs memory
//! once; it still counts in full, because readers visit it in full.
//!
//! Not here: bytes that are no text (`text`), and what the keys mean (`read` and the files above it).

use std::borrow::Cow;
use std::collections::HashMap;
use std::rc::Rc;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle};

use super::diagnostic::{Kind, Path, Place, Sink, clip, quote};
use super::text::{MAX_FILE, from_one, position, readable};

/// How many nodes all files together may have, aliases expanded: 600,000 endpoints.
const MAX_NODES: usize = 2_000_000;

/// How many bytes of text all files together may have, aliases expanded.
const MAX_TEXT: usize = 2 * MAX_FILE;

/// How deep lists and maps may be nested; the schema needs 7, Envoy's own resources some 30.
const MAX_DEPTH: usize = 64;

/// A value and where it starts.
#[derive(Clone, Debug)]
pub(super) struct Node<'t> {
    pub(super) place: Place,
    pub(super) value: Value<'t>,
}

/// What a node is.
#[derive(Clone, Debug)]
pub(super) enum Value<'t> {
    /// A word; `plain` when it stands without quotes, so that `443` is a number and `"443"` is not.
    Scalar { text: Cow<'t, str>, plain: bool },
    /// `- …` or `[…]`
    List(Rc<Vec<Node<'t>>>),
    /// `key: …` or `{…}`
    Map(Rc<Vec<(Key<'t>, Node<'t>)>>),
}

/// A key and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Key<'t> {
    pub(super) place: Place,
    pub(super) text: Cow<'t, str>,
}

/// What is left of the limits that hold for all files of a configuration together.
#[derive(Debug)]
pub(super) struct Budget {
    nodes: usize,
    text: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            nodes: MAX_NODES,
            text: MAX_TEXT,
        }
    }
}

/// What a tree counts, aliases expanded.
#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    nodes: usize,
    text: usize,
    height: usize,
}

/// Reads one file. `None`: it is not a tree (the sink knows why), or holds nothing at all.
pub(super) fn parse<'t>(
    bytes: &'t [u8],
    file: u32,
    budget: &mut Budget,
    sink: &Sink<'_>,
) -> Option<Node<'t>> {
    let text = match readable(bytes) {
        Ok(text) => text,
        Err(problem) => {
            let (line, column) = position(bytes, problem.offset);
            let place = Place { file, line, column };
            sink.push(Kind::Error, place, &Path::Root, problem.message);
            sink.set_incomplete();
            return None;
        }
    };
    let builder = Builder {
        text,
        file,
        budget,
        sink,
        frames: Vec::new(),
        anchors: HashMap::new(),
        root: None,
        documents: 0,
    };
    match builder.run() {
        Ok(root) => root,
        Err(fatal) => {
            sink.push(
                Kind::Error,
                fatal.place,
                &Path::Text(&fatal.path),
                fatal.message,
            );
            sink.set_incomplete();
            None
        }
    }
}

fn too_large() -> String {
    format!(
        "the configuration has more than {MAX_NODES} keys and values, or {} MiB of text; make it smaller",
        MAX_TEXT >> 20
    )
}

struct Fatal {
    place: Place,
    path: String,
    message: String,
}

/// A list or map that is not complete.
struct Frame<'t> {
    place: Place,
    anchor: usize,
    weight: Weight,
    open: Open<'t>,
}

enum Open<'t> {
    List(Vec<Node<'t>>),
    Map(Vec<(Key<'t>, Node<'t>)>, Option<Key<'t>>),
}

struct Builder<'t, 'b, 's> {
    text: &'t str,
    file: u32,
    budget: &'b mut Budget,
    sink: &'b Sink<'s>,
    frames: Vec<Frame<'t>>,
    /// Complete anchored trees by the parser's number for the anchor.
    anchors: HashMap<usize, (Node<'t>, Weight)>,
    root: Option<Node<'t>>,
    documents: usize,
}

impl<'t> Builder<'t, '_, '_> {
    fn run(mut self) -> Result<Option<Node<'t>>, Fatal> {
        let mut parser = Parser::new_from_str(self.text);
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|e| Fatal {
                place: self.place(*e.marker()),
                path: self.path(),
                message: format!("this is not YAML: {}", clip(e.info())),
            })?;
            let place = self.place(span.start);
            match event {
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
                Event::StreamEnd => break,
                Event::DocumentStart(_) => {
                    self.documents += 1;
                    if self.documents > 1 {
                        let message = "a second document begins here; use one file for each";
                        return Err(self.fatal(place, message));
                    }
                }
                Event::Alias(anchor) => self.alias(anchor, place, span.start)?,
                Event::Scalar(text, style, anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    self.scalar(text, style, anchor, place)?;
                }
                Event::SequenceStart(anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    self.open(place, anchor, Open::List(Vec::new()))?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.refuse_tag(tag.is_some(), place);
                    self.open(place, anchor, Open::Map(Vec::new(), None))?;
                }
                Event::SequenceEnd | Event::MappingEnd => self.close()?,
            }
        }
        Ok(self.root)
    }

    fn place(&self, marker: Marker) -> Place {
        Place {
            file: self.file,
            line: u32::try_from(marker.line()).unwrap_or(u32::MAX).max(1),
            column: from_one(marker.col()),
        }
    }

    fn fatal(&self, place: Place, message: impl Into<String>) -> Fatal {
        Fatal {
            place,
            path: self.path(),
            message: message.into(),
        }
    }

    /// The path of what comes next.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match &frame.open {
                Open::List(items) => path.push_str(&format!("[{}]", items.len())),
                Open::Map(_, Some(key)) => {
                    let dot = if path.is_empty() { "" } else { "." };
                    path.push_str(&format!("{dot}{}", clip(&key.text)));
                }
                Open::Map(_, None) => {}
            }
        }
        path
    }

    fn refuse_tag(&self, tagged: bool, place: Place) {
        if tagged {
            let message = "tags (!…) have no meaning here; remove it".into();
            self.sink
                .push(Kind::Error, place, &Path::Text(&self.path()), message);
        }
    }

    fn scalar(
        &mut self,
        text: Cow<'t, str>,
        style: ScalarStyle,
        anchor: usize,
        place: Place,
    ) -> Result<(), Fatal> {
        let weight = Weight {
            nodes: 1,
            text: text.len(),
            height: 0,
        };
        self.spend(weight, place, too_large)?;
        if let Some(Frame {
            open: Open::Map(_, key @ None),
            weight: sum,
            ..
        }) = self.frames.last_mut()
        {
            sum.nodes += weight.nodes;
            sum.text += weight.text;
            *key = Some(Key { place, text });
            // An anchor on a key: nothing would be gained by allowing it.
            if anchor != 0 {
                return Err(self.fatal(place, "a key cannot have an anchor; put it on the value"));
            }
            return Ok(());
        }
        let plain = style == ScalarStyle::Plain;
        let value = Value::Scalar { text, plain };
        self.add(Node { place, value }, weight, anchor)
    }

    fn alias(&mut self, anchor: usize, place: Place, marker: Marker) -> Result<(), Fatal> {
        let text = self.text;
        let name = move || {
            let rest = text.chars().skip(marker.index());
            let name: String = rest
                .take_while(|c| !c.is_whitespace() && !",[]{}".contains(*c))
                .collect();
            clip(&name).into_owned()
        };
        let Some((node, weight)) = self.anchors.get(&anchor).cloned() else {
            let message = format!(
                "{} refers to a value that contains it; break the ring",
                name()
            );
            return Err(self.fatal(place, message));
        };
        self.spend(weight, place, || {
            format!(
                "with the alias {} the configuration has more than {MAX_NODES} keys and values, or {} MiB of text; \
                 write less through aliases",
                name(),
                MAX_TEXT >> 20
            )
        })?;
        if self.frames.len() + weight.height > MAX_DEPTH {
            let message = format!(
                "with the alias {} this is nested more than {MAX_DEPTH} deep; flatten it",
                name()
            );
            return Err(self.fatal(place, message));
        }
        let value = node.value;
        self.add(Node { place, value }, weight, 0)
    }

    /// Takes a weight out of what is left.
    fn spend(
        &mut self,
        weight: Weight,
        place: Place,
        message: impl FnOnce() -> String,
    ) -> Result<(), Fatal> {
        let nodes = self.budget.nodes.checked_sub(weight.nodes);
        let text = self.budget.text.checked_sub(weight.text);
        let (Some(nodes), Some(text)) = (nodes, text) else {
            return Err(self.fatal(place, message()));
        };
        *self.budget = Budget { nodes, text };
        Ok(())
    }

    fn open(&mut self, place: Place, anchor: usize, open: Open<'t>) -> Result<(), Fatal> {
        if self.frames.len() >= MAX_DEPTH {
            let message = format!("this is nested more than {MAX_DEPTH} deep; flatten it");
            return Err(self.fatal(place, message));
        }
        let weight = Weight {
            nodes: 1,
            ..Weight::default()
        };
        self.spend(weight, place, too_large)?;
        self.frames.push(Frame {
            place,
            anchor,
            weight,
            open,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fatal> {
        let Some(frame) = self.frames.pop() else {
            return Ok(());
        };
        let value = match frame.open {
            Open::List(items) => Value::List(Rc::new(items)),
            Open::Map(mut entries, _) => {
                self.refuse_twins(&entries);
                // Most maps are one endpoint: what they grew into is larger than what they hold.
                entries.shrink_to_fit();
                Value::Map(Rc::new(entries))
            }
        };
        let weight = Weight {
            height: frame.weight.height + 1,
            ..frame.weight
        };
        let place = frame.place;
        self.add(Node { place, value }, weight, frame.anchor)
    }

    /// Hands a complete value to the list or map around it.
    fn add(&mut self, node: Node<'t>, weight: Weight, anchor: usize) -> Result<(), Fatal> {
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), weight));
        }
        let Some(frame) = self.frames.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        let sum = &mut frame.weight;
        sum.nodes += weight.nodes;
        sum.text += weight.text;
        sum.height = sum.height.max(weight.height);
        match &mut frame.open {
            Open::List(items) => items.push(node),
            Open::Map(entries, key) => match (key.take(), node) {
                (Some(key), node) => entries.push((key, node)),
                (None, Node { place, value }) => match value {
                    Value::Scalar { text, .. } => *key = Some(Key { place, text }),
                    Value::List(_) | Value::Map(_) => {
                        let message = "a list or map cannot be a key; a key is one word";
                        return Err(self.fatal(place, message));
                    }
                },
            },
        }
        Ok(())
    }

    fn refuse_twins(&self, entries: &[(Key<'t>, Node<'t>)]) {
        let mut first: HashMap<&str, Place> = HashMap::with_capacity(entries.len());
        for (key, _) in entries {
            let earlier = *first.entry(&key.text).or_insert(key.place);
            if earlier != key.place {
                let message = format!(
                    "the key {} stands here again, first at {}; keep one",
                    quote(&key.text),
                    self.sink.show(earlier)
                );
                self.sink
                    .push(Kind::Error, key.place, &Path::Text(&self.path()), message);
            }
        }
    }
}
