//! Reads typed values out of a located tree.
//!
//! In: [`Item`]s, each a node with the path that leads to it. Out: words, numbers, durations, choices, lists and
//! [`Fields`], or `None` after a finding went to the sink: a reader never stops at the first error, its callers go on
//! with what they have. A configuration with any error is thrown away at the end, so `None` needs no care.
//!
//! Not here: the schema (`checks`, `groups`, `services`, `fleets`).

use std::borrow::Cow;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::diagnostic::{Kind, Path, Place, Sink, clip, quote};
use super::tree::{Key, Node, Value};
use crate::model::Name;

/// What is said of a key without a value.
pub(super) const NO_VALUE: &str = "the key has no value; give it one, or leave the key out";

/// A value in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item<'f> {
    pub(super) node: &'f Node<'f>,
    /// Where its key stands; in a list, where the value stands.
    pub(super) key: Place,
    pub(super) path: Path<'f>,
    pub(super) sink: &'f Sink<'f>,
}

impl<'f> Item<'f> {
    /// The root of a file.
    pub(super) fn root(node: &'f Node<'f>, sink: &'f Sink<'f>) -> Self {
        Self {
            node,
            key: node.place,
            path: Path::Root,
            sink,
        }
    }

    /// Reports that this value is wrong.
    pub(super) fn error(&self, message: impl Into<String>) {
        self.sink
            .push(Kind::Error, self.node.place, &self.path, message.into());
    }

    /// Reports that this key should not stand here.
    pub(super) fn misplaced(&self, message: impl Into<String>) {
        self.sink
            .push(Kind::Error, self.key, &self.path, message.into());
    }

    /// Reports something that is allowed but probably not meant.
    pub(super) fn warning(&self, message: impl Into<String>) {
        self.sink
            .push(Kind::Warning, self.node.place, &self.path, message.into());
    }

    /// Reports a value that a later version will take.
    pub(super) fn value_unsupported(&self, what: impl Display, today: &str) {
        let message = format!("{what}; {today}");
        self.sink
            .push(Kind::NotSupported, self.node.place, &self.path, message);
    }

    /// Reports a key that a later version will take.
    pub(super) fn key_unsupported(&self, what: &str, today: &str) {
        let message = format!("{what}; {today}");
        self.sink
            .push(Kind::NotSupported, self.key, &self.path, message);
    }

    /// A string. Plain numbers and the like are not strings: other readers of the same file would take `1e3`, `010` or
    /// `true` for something else than what is written.
    pub(super) fn text(&self) -> Option<&'f str> {
        match &self.node.value {
            Value::Scalar { text, plain } if *plain && is_other_type(text) => {
                let what = if text.parse::<f64>().is_ok() {
                    "number"
                } else {
                    "truth value"
                };
                self.error(format!(
                    "{} is a {what}; put it in quotes: {:?}",
                    clip(text),
                    clip(text)
                ));
                None
            }
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => self.wrong_form("a string"),
        }
    }

    /// A string where plain numbers cannot be mistaken, such as `200` among statuses.
    pub(super) fn text_or_number(&self) -> Option<&'f str> {
        match &self.node.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => self.wrong_form("a string"),
        }
    }

    /// The name that a definition gives.
    pub(super) fn name(&self) -> Option<Name> {
        let text = self.text()?;
        let name = Name::new(text);
        if name.is_none() {
            self.error(format!(
                "{} is not a name; write 1–63 of a-z, 0-9 and -",
                quote(text)
            ));
        }
        name
    }

    /// A whole number.
    pub(super) fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let (least, most) = (*range.start(), *range.end());
        let number = self.plain(|text| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let whole = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            // Too large for the type is out of range too, not another form.
            whole.then(|| text.parse::<u64>().ok())
        });
        let Some(number) = number else {
            return self.wrong_form(&format!(
                "a whole number, {least} to {most}, without quotes"
            ));
        };
        match number.filter(|n| range.contains(n)) {
            Some(number) => Some(number),
            None => {
                let text = self.scalar().unwrap_or_default();
                self.error(format!(
                    "{} is out of range; {least} to {most} is allowed",
                    clip(text)
                ));
                None
            }
        }
    }

    /// A port, 1–65535.
    pub(super) fn port(&self) -> Option<u16> {
        self.integer(1..=65535).and_then(|n| u16::try_from(n).ok())
    }

    /// A number within a range.
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let (least, most) = (*range.start(), *range.end());
        let number = self.plain(|text| {
            let form = text.starts_with(|c: char| c.is_ascii_digit() || c == '-');
            form.then(|| text.parse::<f64>().ok()).flatten()
        });
        let Some(number) = number else {
            return self.wrong_form(&format!("a number, {least:?} to {most:?}, without quotes"));
        };
        if range.contains(&number) {
            return Some(number);
        }
        self.error(format!(
            "{number:?} is out of range; {least:?} to {most:?} is allowed"
        ));
        None
    }

    /// `true` or `false`.
    pub(super) fn boolean(&self) -> Option<bool> {
        let value = self.plain(|text| match text {
            "true" => Some(true),
            "false" => Some(false),
            _ => None,
        });
        value.or_else(|| self.wrong_form("true or false, without quotes"))
    }

    /// A whole number with its unit.
    pub(super) fn duration(&self) -> Option<Duration> {
        let Some(text) = self.scalar() else {
            return self.wrong_form("a duration: 5s, 250ms, 5m or 1h");
        };
        let duration = parse_duration(text);
        if duration.is_none() {
            self.error(format!(
                "{} is not a duration; write a whole number and its unit: 5s, 250ms, 5m or 1h",
                quote(text)
            ));
        }
        duration
    }

    /// The value as it is written, short enough for a message.
    pub(super) fn written(&self) -> Cow<'f, str> {
        clip(self.scalar().unwrap_or_default())
    }

    /// One of the words of an enumeration.
    pub(super) fn choice<T: Copy>(&self, words: &[(&'static str, T)]) -> Option<T> {
        let Some(text) = self.scalar() else {
            return self.wrong_form(&format!("one of {}", join(words.iter().map(|w| w.0))));
        };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*value);
        }
        let all = join(words.iter().map(|w| w.0));
        let hint = self.sink.suggest(text, words.iter().map(|w| w.0));
        self.error(format!("{} is not one of {all}{hint}", quote(text)));
        None
    }

    /// The members of a list.
    pub(super) fn list<'l>(&'l self) -> impl Iterator<Item = Item<'l>> {
        let items: &'l [Node<'l>] = match &self.node.value {
            Value::List(items) => items,
            Value::Scalar { .. } | Value::Map(_) => {
                self.wrong_form::<()>("a list: [ … ], or lines that begin with -");
                &[]
            }
        };
        items.iter().enumerate().map(|(i, node)| Item {
            node,
            key: node.place,
            path: Path::Index(&self.path, i),
            sink: self.sink,
        })
    }

    /// Reads a list of strings for its form only.
    pub(super) fn texts(&self) {
        for item in self.list() {
            item.text();
        }
    }

    /// The fields of a map that may have these keys and no other.
    pub(super) fn fields(&self, known: &'static [&'static str]) -> Option<Fields<'f>> {
        let fields = self.entries()?;
        for (key, _) in fields.entries {
            if !known.contains(&&*key.text) {
                let hint = match &*key.text {
                    "<<" => "; merging is no YAML 1.2, write the fields out.".into(),
                    text => self.sink.suggest(text, known.iter().copied()),
                };
                let all = join(known.iter().copied());
                let known_here = if hint.is_empty() { "; known" } else { " Known" };
                let message = format!("there is no such key{hint}{known_here} here: {all}");
                let path = Path::Key(&self.path, &key.text);
                self.sink.push(Kind::Error, key.place, &path, message);
            }
        }
        Some(fields)
    }

    /// The fields of a map whose keys are the writer's own.
    pub(super) fn entries(&self) -> Option<Fields<'f>> {
        match &self.node.value {
            Value::Map(entries) => Some(Fields {
                entries,
                place: self.node.place,
                path: self.path,
                sink: self.sink,
            }),
            Value::Scalar { .. } | Value::List(_) => self.wrong_form("a map: key: value"),
        }
    }

    /// The text of a scalar, quoted or not.
    pub(super) fn scalar(&self) -> Option<&'f str> {
        match &self.node.value {
            Value::Scalar { text, .. } => Some(text),
            Value::List(_) | Value::Map(_) => None,
        }
    }

    fn plain<T>(&self, read: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        match &self.node.value {
            Value::Scalar { text, plain: true } => read(text),
            Value::Scalar { .. } | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Whether the key has no value.
    pub(super) fn is_null(&self) -> bool {
        is_null(self.node)
    }

    /// Reports that this value has another form than the right one.
    pub(super) fn wrong_form<T>(&self, right: &str) -> Option<T> {
        let wrong = match &self.node.value {
            Value::Scalar { text, .. } => quote(text),
            Value::List(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        };
        self.error(format!("{wrong} stands where {right} belongs"));
        None
    }
}

/// The fields of a map.
#[derive(Debug)]
pub(super) struct Fields<'f> {
    entries: &'f [(Key<'f>, Node<'f>)],
    place: Place,
    path: Path<'f>,
    sink: &'f Sink<'f>,
}

impl<'f> Fields<'f> {
    /// The field of that key, if it is there. A key without a value is an error: it reads like a setting and is none.
    pub(super) fn get<'s>(&'s self, key: &'static str) -> Option<Item<'s>> {
        let (found, node) = self.entries.iter().find(|(k, _)| k.text == key)?;
        let item = self.item(found, node);
        if item.is_null() {
            item.misplaced(NO_VALUE);
            return None;
        }
        Some(item)
    }

    /// The field of that key, which must be there.
    pub(super) fn required<'s>(&'s self, key: &'static str, right: &str) -> Option<Item<'s>> {
        if !self.entries.iter().any(|(k, _)| k.text == key) {
            self.missing(key, right);
        }
        self.get(key)
    }

    /// Reports that a key is not there.
    pub(super) fn missing(&self, key: &str, right: &str) {
        let path = Path::Key(&self.path, key);
        let message = format!("missing; {right}");
        self.sink.push(Kind::Error, self.place, &path, message);
    }

    /// All fields, in the order of writing.
    pub(super) fn all<'s>(&'s self) -> impl Iterator<Item = (&'f str, Item<'s>)> {
        self.entries
            .iter()
            .map(|(key, node)| (&*key.text, self.item(key, node)))
    }

    fn item<'s>(&'s self, key: &'s Key<'f>, node: &'s Node<'f>) -> Item<'s> {
        Item {
            node,
            key: key.place,
            path: Path::Key(&self.path, &key.text),
            sink: self.sink,
        }
    }
}

/// `5s`, `250ms`, `5m`, `1h`
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

/// Whether a plain word is a number or a truth value to YAML.
fn is_other_type(text: &str) -> bool {
    matches!(text, "true" | "True" | "TRUE" | "false" | "False" | "FALSE")
        || (text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
            && text.parse::<f64>().is_ok())
}

fn is_null(node: &Node<'_>) -> bool {
    match &node.value {
        Value::Scalar { text, plain } => {
            *plain && matches!(&**text, "" | "~" | "null" | "Null" | "NULL")
        }
        Value::List(_) | Value::Map(_) => false,
    }
}

/// `a, b, c`
pub(super) fn join<'w>(words: impl Iterator<Item = &'w str>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_whole_number_and_a_unit() {
        let ms = |text| parse_duration(text).map(|d| d.as_millis());
        assert_eq!(ms("5s"), Some(5_000));
        assert_eq!(ms("250ms"), Some(250));
        assert_eq!(ms("5m"), Some(300_000));
        assert_eq!(ms("1h"), Some(3_600_000));
        assert_eq!(ms("0s"), Some(0));
        for bad in [
            "",
            "5",
            "s",
            "5 s",
            "-5s",
            "1.5s",
            "5S",
            "5sec",
            "99999999999999999999s",
            "18446744073709551615h",
            "５s",
        ] {
            assert_eq!(ms(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn numbers_and_truth_values_are_no_strings() {
        for other in ["200", "-1", "1.5", "1e3", "true", ".5"] {
            assert!(is_other_type(other), "{other}");
        }
        for text in ["200-299", "10.0.0.1", "nan", "infinity", "e", "yes", "web"] {
            assert!(!is_other_type(text), "{text}");
        }
    }
}
