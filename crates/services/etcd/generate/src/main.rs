//! Writes the messages and services of `proto/*.proto` as Rust, without `protoc`:
//!
//! ```text
//! cargo run --manifest-path crates/services/etcd/generate/Cargo.toml
//! ```
use std::{error::Error, fs, path::Path};

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
    Ok(())
}
