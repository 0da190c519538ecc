//! A container image without a base image: the binary, its shared libraries, a user, and a data
//! folder.
//!
//! It is an image layout of the Open Container Initiative as one tar file (`oci-archive`), which
//! podman, skopeo and Docker 25 or newer load. The libraries are a separate layer, which stays the
//! same from one release to the next.

use std::{fmt::Write as _, fs, path::Path};

use flate2::Compression;
use quorate_shell::{Failed, root};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    archive::{gzip, tar},
    program::Program,
    release::Release,
    tree::Tree,
};

/// Id of the image's user, above the ids of a machine's own users and services.
pub(crate) const USER: u32 = 10_001;
/// Default environment of a container. The container's own environment and flags override it. The
/// ports accept connections from outside.
const ENVIRONMENT: [&str; 5] = [
    "QUORATE_DATA=/data/node",
    "QUORATE_CLIENT=0.0.0.0:7450",
    "QUORATE_PEER=0.0.0.0:7451",
    "QUORATE_ADMIN=0.0.0.0:7452",
    "QUORATE_STREAM=0.0.0.0:7453",
];
const PORTS: [&str; 5] = ["7450/tcp", "7451/tcp", "7451/udp", "7452/tcp", "7453/tcp"];
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Debian packages whose licence notices are shipped with their libraries.
const NOTICES: [&str; 2] = ["libc6", "libgcc-s1"];

pub(crate) fn make(
    program: &Program,
    release: &Release,
    level: Compression,
) -> Result<(String, Vec<u8>), Failed> {
    let mut layout = Tree::default();
    let mut layers = Vec::new();
    let mut unpacked = Vec::new();
    for tree in [base(program)?, own(program, release)?] {
        let bytes = tar(&tree, "", release.time)?;
        unpacked.push(format!("sha256:{}", digest(&bytes)));
        layers.push(blob(&mut layout, gzip(&bytes, level)?, LAYER));
    }
    let labels = json!({
        "org.opencontainers.image.title": "quorate",
        "org.opencontainers.image.description": "A replicated store that keeps what it acknowledged",
        "org.opencontainers.image.version": release.version,
        "org.opencontainers.image.revision": release.revision,
        "org.opencontainers.image.created": release.date(),
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
    });
    let config = json!({
        "created": release.date(),
        "architecture": program.machine.debian,
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "Env": ENVIRONMENT,
            "Entrypoint": ["/usr/bin/quorate"],
            "Cmd": ["start"],
            "ExposedPorts": set(&PORTS),
            "Volumes": set(&["/data"]),
            "WorkingDir": "/data",
            "StopSignal": "SIGTERM",
            "Labels": labels,
        },
        "rootfs": {"type": "layers", "diff_ids": unpacked},
        "history": [
            {"created": release.date(), "created_by": "the libraries that the binary is linked with"},
            {"created": release.date(), "created_by": "the binary"},
        ],
    });
    let config = blob(&mut layout, text(&config), CONFIG);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": layers,
        "annotations": labels,
    });
    let mut manifest = blob(&mut layout, text(&manifest), MANIFEST);
    manifest["platform"] = json!({"architecture": program.machine.debian, "os": "linux"});
    // Docker reads the whole name from the first annotation, other tools the tag from the second.
    manifest["annotations"] = json!({
        "io.containerd.image.name": format!("docker.io/library/quorate:{}", release.version),
        "org.opencontainers.image.ref.name": release.version,
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]});
    layout.file("index.json", text(&index));
    layout.file("oci-layout", text(&json!({"imageLayoutVersion": "1.0.0"})));
    let name = format!("quorate-{}-{}.oci.tar", release.version, program.machine.debian);
    Ok((name, tar(&layout, "", release.time)?))
}

/// Returns the layer with everything but the binary.
fn base(program: &Program) -> Result<Tree, Failed> {
    let mut tree = Tree::default();
    for place in program.places()? {
        tree.program(inside(&place), fs::read(&place).map_err(Failed::at(&place))?);
    }
    let loader = Path::new(&program.loader);
    tree.program(inside(loader), fs::read(loader).map_err(Failed::at(loader))?);
    for package in NOTICES {
        let notice = format!("/usr/share/doc/{package}/copyright");
        if let Ok(bytes) = fs::read(&notice) {
            tree.file(inside(Path::new(&notice)), bytes);
        }
    }
    let users = format!("root:x:0:0::/:/\nquorate:x:{USER}:{USER}::/data:/\n");
    tree.file("etc/passwd", users.into_bytes());
    let groups = format!("root:x:0:\nquorate:x:{USER}:\n");
    tree.file("etc/group", groups.into_bytes());
    tree.file("etc/nsswitch.conf", b"hosts: files dns\n".to_vec());
    tree.folder("data", 0o750, USER);
    tree.folder("tmp", 0o1777, 0);
    Ok(tree)
}

/// Returns the layer with the programs, their licences and the list of their parts.
fn own(program: &Program, release: &Release) -> Result<Tree, Failed> {
    let mut tree = Tree::default();
    for (name, bytes) in program.all() {
        tree.program(&format!("usr/bin/{name}"), bytes.clone());
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = root().join(name);
        let bytes = fs::read(&path).map_err(Failed::at(&path))?;
        tree.file(&format!("usr/share/doc/quorate/{name}"), bytes);
    }
    tree.file("usr/share/doc/quorate/NOTICES", release.parts.notices());
    tree.file("usr/share/doc/quorate/quorate.cdx.json", release.parts.list(release));
    Ok(tree)
}

/// Converts a path of this machine to one in the image.
fn inside(path: &Path) -> &str {
    path.to_str().unwrap_or_default().trim_start_matches('/')
}

/// Stores a blob at the path of its digest, and returns its descriptor.
fn blob(layout: &mut Tree, bytes: Vec<u8>, kind: &str) -> Value {
    let digest = digest(&bytes);
    let descriptor = json!({
        "mediaType": kind,
        "digest": format!("sha256:{digest}"),
        "size": bytes.len(),
    });
    layout.file(&format!("blobs/sha256/{digest}"), bytes);
    descriptor
}

/// Returns the SHA-256 digest, in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn set(names: &[&str]) -> Value {
    let entries = names.iter().map(|name| ((*name).to_owned(), json!({})));
    Value::Object(entries.collect())
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_standard() {
        // FIPS 180-2, B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest(b"abc"), expected);
    }
}
