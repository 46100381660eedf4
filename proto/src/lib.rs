//! Generated protobuf types, nothing else: `vitals/prober/v1/prober.proto` says what they mean.

#[allow(missing_docs, clippy::all)]
pub mod prober {
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/vitals.prober.v1.rs"));
    }
}
