//! An HTTP/1 answer: arbitrary bytes, cut where the input says, must come to a verdict without a panic and without growing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vitals_prober::probe::fuzzing::http1_response(input));
