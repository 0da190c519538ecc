//! Generates the messages and services of `proto/*.proto` as Rust, without `protoc`:
//!
//! ```text
//! cargo run --manifest-path crates/services/etcd/generate/Cargo.toml
//! ```
use std::{error::Error, fs, io, path::Path};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let proto = root.join("proto");
    let files = ["rpc.proto", "lock.proto", "election.proto", "health.proto"];
    let mut described = protox::compile(files, [&proto])?;
    let commented = described.clone();
    // Descriptors of all messages and services, for reflection and JSON.
    for file in &mut described.file {
        file.source_code_info = None;
    }
    let folder = root.join("src/proto");
    fs::write(folder.join("descriptors.bin"), described.encode_to_vec())?;
    // The services of a node, and their clients for tests.
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .out_dir(&folder)
        .compile_fds(commented)?;
    fs::rename(folder.join("grpc.health.v1.rs"), folder.join("health.rs"))?;
    say(&folder.join("authpb.rs"), "What users and roles may do")?;
    say(&folder.join("mvccpb.rs"), "Keys and events")?;
    say(&folder.join("etcdserverpb.rs"), "Requests, replies, services and clients")?;
    say(&folder.join("v3lockpb.rs"), "The service Lock")?;
    say(&folder.join("v3electionpb.rs"), "The service Election")?;
    say(&folder.join("health.rs"), "The service Health of gRPC")?;
    Ok(())
}

/// Prepends the first line of a generated file.
fn say(file: &Path, what: &str) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    fs::write(
        file,
        format!("//! {what}, made of `proto/*.proto` by `generate/`; do not edit.\n{text}"),
    )
}
