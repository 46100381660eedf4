//! Configuration files: arbitrary bytes must become a model or findings, each with a place that is in its file.
//!
//! The byte 0xff, which no UTF-8 has, divides the input into files.
#![no_main]

use vitals::config::{Diagnostic, Source, parse_sources};

/// Files of one configuration.
const FILES: usize = 3;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let files = input.splitn(FILES, |byte| *byte == 0xff).enumerate();
    let sources: Vec<Source> = files
        .map(|(n, bytes)| Source::new(format!("{n}.yaml"), bytes))
        .collect();
    match parse_sources(&sources) {
        Ok(loaded) => loaded.warnings.iter().for_each(|d| placed(d, &sources)),
        Err(errors) => {
            assert!(!errors.is_empty(), "refused without a reason");
            errors.iter().for_each(|d| placed(d, &sources));
        }
    }
});

fn placed(found: &Diagnostic, sources: &[Source]) {
    let source = sources.iter().find(|source| source.name == found.file);
    let source = source.unwrap_or_else(|| panic!("in no file: {found:?}"));
    let is_end = |byte: &&u8| matches!(byte, b'\n' | b'\r');
    // The place of what is missing at the end is behind the last line.
    let lines = source.bytes.iter().filter(is_end).count() + 2;
    let line = usize::try_from(found.line).expect("usize has 32 bits");
    let column = usize::try_from(found.column).expect("usize has 32 bits");
    assert!((1..=lines).contains(&line), "{found:?}");
    assert!((1..=source.bytes.len() + 1).contains(&column), "{found:?}");
    assert!(!found.message.is_empty(), "{found:?}");
    let text = found.to_string();
    assert!(!text.contains(char::is_control), "{text:?}");
}
