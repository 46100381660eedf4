//! A TLS server's records: arbitrary bytes, cut where the input says, must end a handshake without a panic and without growing.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| vitals_prober::probe::fuzzing::tls_records(input));
