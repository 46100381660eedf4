//! Compiles the .proto files with protox, so that no `protoc` need be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["vitals/prober/v1/prober.proto"];
    println!("cargo::rerun-if-changed=vitals");
    prost_build::Config::new().compile_fds(protox::compile(files, ["."])?)?;
    Ok(())
}
