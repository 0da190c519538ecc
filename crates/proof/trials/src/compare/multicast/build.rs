//! Builds the sending and receiving programs. Missing dependencies are fetched, or named in the
//! error.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{super::systems::FOLDER, built_folder, systems::System};
use crate::shell::{self, Failed};

/// Library that forces the requested size of socket buffers.
pub(super) const FORCE: &str = "force.so";

/// Builds a system's programs. Inside the namespaces, which have no network, fetches nothing.
pub(super) fn build_system(system: System, is_inside: bool) -> Result<(), Failed> {
    let name = system.name();
    match system {
        System::Bare | System::Quorate => return Ok(()),
        System::Corosync => {
            if !shell::has("corosync") && !Path::new("/usr/sbin/corosync").exists() {
                let what = "corosync is not installed (Debian: corosync, libcpg-dev)";
                return Err(Failed(what.to_owned()));
            }
            c("corosync/load.c", "corosync-load", &["-lcpg"])?;
        }
        System::Jgroups | System::Aeron => {
            let lib = built_folder(name)?.join("lib");
            if !is_inside {
                jars(name, &lib)?;
            }
            check(name, &lib)?;
            java(name, &lib)?;
        }
    }
    c("buffers/force.c", FORCE, &["-shared", "-fPIC", "-ldl"])
}

fn sources() -> PathBuf {
    shell::root().join(FOLDER)
}

fn c(source: &str, program: &str, more: &[&str]) -> Result<(), Failed> {
    let place = built_folder("bin")?;
    fs::create_dir_all(&place)?;
    need("cc", "gcc, libc6-dev")?;
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-Wall", "-o"])
        .arg(place.join(program))
        .arg(sources().join(source))
        .args(more);
    shell::read(&mut command).map(drop)
}

/// Fetches jars from Maven Central, in the versions of the project file.
fn jars(name: &str, lib: &Path) -> Result<(), Failed> {
    if check(name, lib).is_ok() {
        return Ok(());
    }
    need("mvn", "maven")?;
    eprintln!("fetching {name}");
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(sources().join(name).join("pom.xml"))
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", lib.display()));
    shell::read(&mut command).map(drop)
}

/// Checks that the files are identical to those reviewed when the version was chosen.
fn check(name: &str, lib: &Path) -> Result<(), Failed> {
    if !lib.is_dir() {
        return Err(Failed(format!("{name} was not fetched")));
    }
    let mut command = Command::new("sha256sum");
    command
        .args(["--check", "--strict", "--quiet"])
        .arg(sources().join(name).join("jars.sha256"))
        .current_dir(lib);
    shell::read(&mut command).map(drop)
}

fn java(name: &str, lib: &Path) -> Result<(), Failed> {
    need("javac", "default-jdk-headless, 17 or newer")?;
    let mut command = Command::new("javac");
    command
        .arg("-d")
        .arg(built_folder(name)?)
        .arg("-cp")
        .arg(lib.join("*"))
        .arg(sources().join(name).join("Load.java"));
    shell::read(&mut command).map(drop)
}

fn need(program: &str, packages: &str) -> Result<(), Failed> {
    if shell::has(program) {
        return Ok(());
    }
    Err(Failed(format!("there is no `{program}` (Debian: {packages})")))
}
