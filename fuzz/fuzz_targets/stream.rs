//! The xDS stream: whatever a client does while the state changes, it must end with exactly the server's state.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vitals::stream::oracle::fuzz(input));
