//! A container image without a base image: the binary, its shared libraries, a user, and a data
//! folder.
//!
//! The image is an image layout of the Open Container Initiative in one tar file (`oci-archive`),
//! written by umoci, which podman, skopeo and Docker 25 or newer load. The libraries are a separate
//! layer, which stays the same from one release to the next.

use std::{fs, path::Path, process::Command};

use quorate_shell::{Failed, read, root};
use serde_json::Value;

use crate::{archive::tar, program::Program, release::Release, tree::Tree};

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
/// Debian packages whose licence notices are shipped with their libraries.
const NOTICES: [&str; 2] = ["libc6", "libgcc-s1"];

pub(crate) fn make(program: &Program, release: &Release) -> Result<(String, Vec<u8>), Failed> {
    let folder = tempfile::tempdir()?;
    let (layout, layer) = (folder.path().join("layout"), folder.path().join("layer"));
    let image = format!("{}:{}", layout.display(), release.version);
    let date = release.date();
    let umoci = |words: &[&str]| read(Command::new("umoci").args(words));
    umoci(&["init", "--layout", &layout.to_string_lossy()])?;
    umoci(&["new", "--image", &image])?;
    for (tree, what) in [
        (base(program)?, "the libraries that the binary is linked with"),
        (own(program, release)?, "the binary"),
    ] {
        fs::write(&layer, tar(&tree, "", release.time)?)?;
        let mut words = vec!["raw", "add-layer", "--image", &image, "--history.created", &date];
        words.extend(["--history.created_by", what]);
        let layer = layer.to_string_lossy();
        words.push(&layer);
        umoci(&words)?;
    }
    let machine = program.machine.debian;
    let user = format!("{USER}:{USER}");
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
    let mut text: Value = serde_json::from_slice(&fs::read(&index)?).map_err(Failed::at(&index))?;
    let name = format!("docker.io/library/quorate:{}", release.version);
    text["manifests"][0]["annotations"]["io.containerd.image.name"] = name.into();
    fs::write(&index, text.to_string())?;
    let mut tree = Tree::default();
    for folder in ["", "blobs/sha256"] {
        for file in fs::read_dir(layout.join(folder))? {
            let path = file?.path();
            if path.is_file() {
                let inside = path.strip_prefix(&layout).unwrap_or(&path);
                tree.file(&inside.to_string_lossy(), fs::read(&path)?);
            }
        }
    }
    let name = format!("quorate-{}-{machine}.oci.tar", release.version);
    Ok((name, tar(&tree, "", release.time)?))
}

/// Returns the base layer: the libraries with their notices, the users, and the folders.
fn base(program: &Program) -> Result<Tree, Failed> {
    let mut tree = Tree::default();
    for place in program.debug_paths()? {
        tree.program(path_in_image(&place), fs::read(&place).map_err(Failed::at(&place))?);
    }
    let loader = Path::new(&program.loader);
    tree.program(path_in_image(loader), fs::read(loader).map_err(Failed::at(loader))?);
    for package in NOTICES {
        let notice = format!("/usr/share/doc/{package}/copyright");
        if let Ok(bytes) = fs::read(&notice) {
            tree.file(path_in_image(Path::new(&notice)), bytes);
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
    for (name, bytes) in program.all_programs() {
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
fn path_in_image(path: &Path) -> &str {
    path.to_str().unwrap_or_default().trim_start_matches('/')
}
