//! A container image without a base image: the binary, its shared libraries, a user, and a data
//! folder.
//!
//! The image is an image layout of the Open Container Initiative in one tar file (`oci-archive`),
//! written by umoci, which podman, skopeo and Docker 25 or newer load. The libraries are a separate
//! layer, which stays the same from one release to the next.

use std::{fs, path::Path, process::Command};

use quorate_shell::{Failed, read_output, workspace_root};
use serde_json::Value;

use crate::{
    archive::make_tar, program::PackagedProgram, release::ReleaseIdentity, tree::FileTree,
};

/// Id of the image's user, above the ids of a machine's own users and services.
pub(crate) const USER_ID: u32 = 10_001;
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
/// Debian packages whose licence notices are shipped with their libraries.
const NOTICE_PACKAGES: [&str; 2] = ["libc6", "libgcc-s1"];

pub(crate) fn make_image(
    program: &PackagedProgram,
    release: &ReleaseIdentity,
) -> Result<(String, Vec<u8>), Failed> {
    let folder = tempfile::tempdir()?;
    let (layout, layer) = (folder.path().join("layout"), folder.path().join("layer"));
    let image = format!("{}:{}", layout.display(), release.version);
    let date = release.rfc3339_date();
    let umoci = |words: &[&str]| read_output(Command::new("umoci").args(words));
    umoci(&["init", "--layout", &layout.to_string_lossy()])?;
    umoci(&["new", "--image", &image])?;
    for (tree, what) in [
        (base_layer(program)?, "the libraries that the binary is linked with"),
        (program_layer(program, release)?, "the binary"),
    ] {
        fs::write(&layer, make_tar(&tree, "", release.unix_time)?)?;
        let mut words = vec!["raw", "add-layer", "--image", &image, "--history.created", &date];
        words.extend(["--history.created_by", what]);
        let layer = layer.to_string_lossy();
        words.push(&layer);
        umoci(&words)?;
    }
    let machine = program.machine.debian;
    let user = format!("{USER_ID}:{USER_ID}");
    let mut config = vec!["config", "--no-history", "--image", &image, "--created", &date];
    config.extend(["--architecture", machine, "--os", "linux", "--config.user", &user]);
    config.extend(["--config.entrypoint", "/usr/bin/quorate", "--config.cmd", "start"]);
    config.extend(["--config.volume", "/data", "--config.workingdir", "/data"]);
    config.extend(["--config.stopsignal", "SIGTERM"]);
    config.extend(ENVIRONMENT.iter().flat_map(|one| ["--config.env", one]));
    config.extend(PORTS.iter().flat_map(|one| ["--config.exposedports", one]));
    let labels = [
        ("title", "quorate"),
        ("description", "A replicated store that keeps what it acknowledged"),
        ("version", &release.version),
        ("revision", &release.revision),
        ("created", &date),
        ("licenses", "MIT OR Apache-2.0"),
    ];
    let labels = labels.map(|(name, value)| format!("org.opencontainers.image.{name}={value}"));
    for label in &labels {
        config.extend(["--config.label", label, "--manifest.annotation", label]);
    }
    umoci(&config)?;
    umoci(&["gc", "--layout", &layout.to_string_lossy()])?;
    // Docker reads the whole name from an annotation of its own.
    let index = layout.join("index.json");
    let mut text: Value =
        serde_json::from_slice(&fs::read(&index)?).map_err(Failed::at_path(&index))?;
    let name = format!("docker.io/library/quorate:{}", release.version);
    text["manifests"][0]["annotations"]["io.containerd.image.name"] = name.into();
    fs::write(&index, text.to_string())?;
    let mut tree = FileTree::default();
    for folder in ["", "blobs/sha256"] {
        for file in fs::read_dir(layout.join(folder))? {
            let path = file?.path();
            if path.is_file() {
                let inside = path.strip_prefix(&layout).unwrap_or(&path);
                tree.add_file(&inside.to_string_lossy(), fs::read(&path)?);
            }
        }
    }
    let name = format!("quorate-{}-{machine}.oci.tar", release.version);
    Ok((name, make_tar(&tree, "", release.unix_time)?))
}

/// Returns the base layer: the libraries with their notices, the users, and the folders.
fn base_layer(program: &PackagedProgram) -> Result<FileTree, Failed> {
    let mut tree = FileTree::default();
    for place in program.library_paths()? {
        tree.add_program(path_in_image(&place), fs::read(&place).map_err(Failed::at_path(&place))?);
    }
    let loader = Path::new(&program.loader);
    tree.add_program(path_in_image(loader), fs::read(loader).map_err(Failed::at_path(loader))?);
    for package in NOTICE_PACKAGES {
        let notice = format!("/usr/share/doc/{package}/copyright");
        if let Ok(bytes) = fs::read(&notice) {
            tree.add_file(path_in_image(Path::new(&notice)), bytes);
        }
    }
    let users = format!("root:x:0:0::/:/\nquorate:x:{USER_ID}:{USER_ID}::/data:/\n");
    tree.add_file("etc/passwd", users.into_bytes());
    let groups = format!("root:x:0:\nquorate:x:{USER_ID}:\n");
    tree.add_file("etc/group", groups.into_bytes());
    tree.add_file("etc/nsswitch.conf", b"hosts: files dns\n".to_vec());
    tree.add_folder("data", 0o750, USER_ID);
    tree.add_folder("tmp", 0o1777, 0);
    Ok(tree)
}

/// Returns the layer with the programs, their licences and the list of their parts.
fn program_layer(program: &PackagedProgram, release: &ReleaseIdentity) -> Result<FileTree, Failed> {
    let mut tree = FileTree::default();
    for (name, bytes) in program.all_programs() {
        tree.add_program(&format!("usr/bin/{name}"), bytes.clone());
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let path = workspace_root().join(name);
        let bytes = fs::read(&path).map_err(Failed::at_path(&path))?;
        tree.add_file(&format!("usr/share/doc/quorate/{name}"), bytes);
    }
    tree.add_file("usr/share/doc/quorate/NOTICES", release.linked_crates.licence_notices());
    tree.add_file(
        "usr/share/doc/quorate/quorate.cdx.json",
        release.linked_crates.cyclonedx_list(release),
    );
    Ok(tree)
}

/// Converts a path of this machine to one in the image.
fn path_in_image(path: &Path) -> &str {
    path.to_str().unwrap_or_default().trim_start_matches('/')
}
