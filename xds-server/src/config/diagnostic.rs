//! What is wrong in a configuration, and where.
//!
//! In: findings of every later stage, each with a [`Place`] and a [`Path`]. Out: [`Diagnostic`]s in the order of files
//! and lines, which print as `file:line:column path: what is wrong, what would be right`.
//!
//! All findings are collected before anything is said, so that one edit can mend them all. Their number is bounded:
//! a large file of rubbish must not become a larger list of complaints.
//!
//! Not here: any rule about the configuration itself.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::path::PathBuf;

/// So many errors are reported in full; the last line counts the others.
const MAX_REPORTED: usize = 10_000;

/// So many characters of a value are shown in a message.
const MAX_SHOWN: usize = 60;

/// Suggestions cost a comparison with every known word, so only the first errors get one.
const MAX_SUGGESTIONS: usize = 200;

/// What kind of finding a [`Diagnostic`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The configuration is wrong; it does not run.
    Error,
    /// The configuration is right, but this version of Vitals cannot do what it asks; it does not run.
    NotSupported,
    /// The configuration runs, but probably not as meant.
    Warning,
}

/// One finding in a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The file, by the path that led to it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
    /// Path of the field, such as `backendServices[0].probing.by[1]`; empty where it is about the file as a whole.
    pub path: String,
    /// What is wrong, and what would be right.
    pub message: String,
    /// How bad it is.
    pub kind: Kind,
}

impl Diagnostic {
    /// A finding about a file as a whole.
    pub(super) fn whole_file(file: &str, message: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: 1,
            column: 1,
            path: String::new(),
            message: message.into(),
            kind: Kind::Error,
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{} ", self.file, self.line, self.column)?;
        if self.kind == Kind::NotSupported {
            f.write_str("not supported yet: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Where something stands: file by its number in the [`Sink`], line and column from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) file: u32,
    pub(super) line: u32,
    pub(super) column: u32,
}

/// The way from the root of a file to a field. Borrowed links on the stack: it becomes a string only in a finding.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'p> {
    Root,
    /// A path that is written out already.
    Text(&'p str),
    Key(&'p Path<'p>, &'p str),
    Index(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Key(Path::Root, key) => f.write_str(&clip(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", clip(key)),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Collects findings. Shared by reference among readers that borrow from each other, hence the cell.
#[derive(Debug)]
pub(super) struct Sink<'s> {
    files: Vec<&'s str>,
    found: RefCell<Found>,
    incomplete: Cell<bool>,
}

#[derive(Debug, Default)]
struct Found {
    errors: Vec<(Place, Diagnostic)>,
    unreported: usize,
    warnings: Vec<(Place, Diagnostic)>,
    suggestions: usize,
}

impl<'s> Sink<'s> {
    /// A sink for findings in these files.
    pub(super) fn new(files: Vec<&'s str>) -> Self {
        Self {
            files,
            found: RefCell::default(),
            incomplete: Cell::new(false),
        }
    }

    /// Notes that a file is missing from what is read: what refers to it must not be called wrong.
    pub(super) fn set_incomplete(&self) {
        self.incomplete.set(true);
    }

    /// Whether a file is missing from what is read.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete.get()
    }

    /// Takes a finding in.
    pub(super) fn push(&self, kind: Kind, place: Place, path: &Path<'_>, message: String) {
        let mut found = self.found.borrow_mut();
        // Each kind has its own bound: an error behind many warnings must not be lost, for then nothing would be wrong.
        match kind {
            Kind::Warning if found.warnings.len() >= MAX_REPORTED => return,
            Kind::Error | Kind::NotSupported if found.errors.len() >= MAX_REPORTED => {
                found.unreported += 1;
                return;
            }
            Kind::Error | Kind::NotSupported | Kind::Warning => {}
        }
        let diagnostic = Diagnostic {
            file: self.file(place).into(),
            line: place.line,
            column: place.column,
            path: path.to_string(),
            message,
            kind,
        };
        match kind {
            Kind::Error | Kind::NotSupported => found.errors.push((place, diagnostic)),
            Kind::Warning => found.warnings.push((place, diagnostic)),
        }
    }

    /// `file:line:column`, for a finding that points at a second place.
    pub(super) fn show(&self, place: Place) -> String {
        format!("{}:{}:{}", self.file(place), place.line, place.column)
    }

    /// The known word that `word` was probably meant to be, as ` did you mean …?`; else empty.
    pub(super) fn suggest<'w>(
        &self,
        word: &str,
        known: impl IntoIterator<Item = &'w str>,
    ) -> String {
        let mut found = self.found.borrow_mut();
        found.suggestions += 1;
        if found.suggestions > MAX_SUGGESTIONS {
            return String::new();
        }
        match closest(word, known) {
            Some(close) => format!("; did you mean {close}?"),
            None => String::new(),
        }
    }

    /// How many errors there are so far.
    pub(super) fn errors(&self) -> usize {
        let found = self.found.borrow();
        found.errors.len().saturating_add(found.unreported)
    }

    /// Whether one of the errors behind the first `known` stands there.
    pub(super) fn has_error(&self, known: usize, place: Place) -> bool {
        let found = self.found.borrow();
        let mut new = found.errors.iter().skip(known);
        new.any(|(other, _)| *other == place)
    }

    /// The path that is meant where a file names another, which is relative to its own folder.
    pub(super) fn beside(&self, place: Place, path: &str) -> PathBuf {
        let folder = std::path::Path::new(self.file(place)).parent();
        folder.map_or_else(|| path.into(), |folder| folder.join(path))
    }

    /// Errors and warnings in the order of files, lines and columns.
    pub(super) fn finish(self) -> (Vec<Diagnostic>, Vec<Diagnostic>) {
        let Found {
            errors,
            unreported,
            warnings,
            ..
        } = self.found.into_inner();
        let sorted = |mut list: Vec<(Place, Diagnostic)>| {
            list.sort_by_key(|(place, _)| *place);
            list.into_iter()
                .map(|(_, diagnostic)| diagnostic)
                .collect::<Vec<_>>()
        };
        let mut errors = sorted(errors);
        if unreported > 0
            && let Some(last) = errors.last()
        {
            let message = format!("and {unreported} more errors; mend those above first");
            errors.push(Diagnostic::whole_file(&last.file.clone(), message));
        }
        (errors, sorted(warnings))
    }

    fn file(&self, place: Place) -> &'s str {
        usize::try_from(place.file)
            .ok()
            .and_then(|i| self.files.get(i))
            .copied()
            .unwrap_or("?")
    }
}

/// A value as a message shows it: quoted, escaped, cut where it is long.
pub(super) fn quote(text: &str) -> String {
    format!("{:?}", clip(text))
}

/// A text cut where it is long.
pub(super) fn clip(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(MAX_SHOWN) {
        None => text.into(),
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()).into(),
    }
}

/// The known word nearest to `word`, if one is near: at most a third of its letters differ, whatever their case.
fn closest<'w>(word: &str, known: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    if word.len() > 64 {
        return None;
    }
    let word: Vec<char> = word.to_lowercase().chars().collect();
    known
        .into_iter()
        .map(|candidate| (distance(&word, &candidate.to_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len().min(word.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Levenshtein's distance, one row at a time.
fn distance(a: &[char], b: &str) -> usize {
    let mut row: Vec<usize> = (0..=a.len()).collect();
    for (i, cb) in b.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (slot, ca) in row.iter_mut().skip(1).zip(a) {
            let up = *slot;
            let changed = diagonal + usize::from(*ca != cb);
            left = changed.min(up + 1).min(left + 1);
            diagonal = up;
            *slot = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_word_is_suggested_and_a_far_one_is_not() {
        let known = ["quorum", "guard", "vantages", "hds", "by"];
        assert_eq!(closest("quorom", known), Some("quorum"));
        assert_eq!(closest("Guard", known), Some("guard"));
        assert_eq!(closest("vantage", known), Some("vantages"));
        assert_eq!(closest("elephant", known), None);
        assert_eq!(closest("", known), None);
    }

    #[test]
    fn distance_counts_edits() {
        let chars = |s: &str| s.chars().collect::<Vec<_>>();
        assert_eq!(distance(&chars("kitten"), "sitting"), 3);
        assert_eq!(distance(&chars(""), "abc"), 3);
        assert_eq!(distance(&chars("abc"), "abc"), 0);
    }

    #[test]
    fn an_error_behind_any_number_of_warnings_is_told() {
        let sink = Sink::new(vec!["a.yaml"]);
        let place = Place {
            file: 0,
            line: 1,
            column: 1,
        };
        for _ in 0..20_000 {
            sink.push(Kind::Warning, place, &Path::Root, "odd".into());
        }
        sink.push(Kind::Error, place, &Path::Root, "wrong".into());
        let (errors, warnings) = sink.finish();
        assert_eq!((errors.len(), warnings.len()), (1, 10_000));
    }

    #[test]
    fn the_list_of_errors_is_bounded_and_says_how_many_it_leaves_out() {
        let sink = Sink::new(vec!["a.yaml"]);
        for line in 0..20_000 {
            let place = Place {
                file: 0,
                line,
                column: 1,
            };
            sink.push(Kind::Error, place, &Path::Root, "wrong".into());
        }
        let (errors, _) = sink.finish();
        assert_eq!(errors.len(), 10_001);
        assert_eq!(
            errors.last().unwrap().message,
            "and 10000 more errors; mend those above first"
        );
    }
}
