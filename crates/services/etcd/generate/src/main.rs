//! Writes the messages and services of `proto/*.proto` as Rust, without `protoc`:
//!
//! ```text
//! cargo run --manifest-path crates/services/etcd/generate/Cargo.toml
//! ```
use std::{error::Error, fs, io, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let proto = root.join("proto");
    let compile = || protox::compile(["rpc.proto"], [&proto]);
    // What a node offers.
    tonic_prost_build::configure()
        .build_client(false)
        .build_transport(false)
        .bytes(".")
        .out_dir(root.join("src/proto"))
        .compile_fds(compile()?)?;
    say(&root.join("src/proto/mvccpb.rs"), "Keys and events")?;
    say(&root.join("src/proto/etcdserverpb.rs"), "Requests, replies and services")?;
    // Its tests ask as clients, with the same messages.
    let client = root.join("tests/suite/client");
    fs::create_dir_all(&client)?;
    tonic_prost_build::configure()
        .build_server(false)
        .build_transport(false)
        .extern_path(".mvccpb", "::quorate_etcd::proto::mvccpb")
        .extern_path(".etcdserverpb", "::quorate_etcd::proto::etcdserverpb")
        .out_dir(&client)
        .compile_fds(compile()?)?;
    say(&client.join("etcdserverpb.rs"), "Clients of the services")?;
    Ok(())
}

/// The first line of every file says what it is for.
fn say(file: &Path, what: &str) -> io::Result<()> {
    let text = fs::read_to_string(file)?;
    fs::write(file, format!("//! {what}, made of `proto/*.proto` by `generate/`; do not edit.\n{text}"))
}
