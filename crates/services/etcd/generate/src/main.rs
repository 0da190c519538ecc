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
    let compile = || protox::compile(files, [&proto]);
    // Descriptors of all messages and services, for reflection and JSON.
    let mut described = compile()?;
    for file in &mut described.file {
        file.source_code_info = None;
    }
    fs::write(root.join("src/proto/descriptors.bin"), described.encode_to_vec())?;
    // Services of a node.
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .out_dir(root.join("src/proto"))
        .compile_fds(compile()?)?;
    let server = root.join("src/proto");
    fs::rename(server.join("grpc.health.v1.rs"), server.join("health.rs"))?;
    say(&server.join("authpb.rs"), "What users and roles may do")?;
    say(&server.join("mvccpb.rs"), "Keys and events")?;
    say(&server.join("etcdserverpb.rs"), "Requests, replies and services")?;
    say(&server.join("v3lockpb.rs"), "The service Lock")?;
    say(&server.join("v3electionpb.rs"), "The service Election")?;
    say(&server.join("health.rs"), "The service Health of gRPC")?;
    // Clients for the tests, with the same messages.
    let client = root.join("tests/suite/client");
    fs::create_dir_all(&client)?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .extern_path(".authpb", "::quorate_etcd::proto::authpb")
        .extern_path(".mvccpb", "::quorate_etcd::proto::mvccpb")
        .extern_path(".etcdserverpb", "::quorate_etcd::proto::etcdserverpb")
        .extern_path(".v3lockpb", "::quorate_etcd::proto::v3lockpb")
        .extern_path(".v3electionpb", "::quorate_etcd::proto::v3electionpb")
        .extern_path(".grpc.health.v1", "::quorate_etcd::proto::health")
        .out_dir(&client)
        .compile_fds(compile()?)?;
    fs::rename(client.join("grpc.health.v1.rs"), client.join("health.rs"))?;
    say(&client.join("etcdserverpb.rs"), "Clients of the services")?;
    say(&client.join("v3lockpb.rs"), "Clients of the service Lock")?;
    say(&client.join("v3electionpb.rs"), "Clients of the service Election")?;
    say(&client.join("health.rs"), "Clients of the service Health")?;
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
