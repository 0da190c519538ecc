//! Builds the sending and receiving programs. Missing dependencies are fetched, or named in the
//! error.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{super::systems::SOURCES_FOLDER, built_folder, systems::System};
use crate::shell::{self, Failed};

/// Library that forces the requested size of socket buffers.
pub(super) const BUFFER_LIBRARY: &str = "force.so";

/// Builds a system's programs. Inside the namespaces, which have no network, fetches nothing.
pub(super) fn build_system(system: System, is_inside: bool) -> Result<(), Failed> {
    let name = system.name();
    match system {
        System::Bare | System::Quorate => return Ok(()),
        System::Corosync => {
            if !shell::is_installed("corosync") && !Path::new("/usr/sbin/corosync").exists() {
                let what = "corosync is not installed (Debian: corosync, libcpg-dev)";
                return Err(Failed(what.to_owned()));
            }
            compile_c("corosync/load.c", "corosync-load", &["-lcpg"])?;
        }
        System::Jgroups | System::Aeron => {
            let lib = built_folder(name)?.join("lib");
            if !is_inside {
                fetch_jars(name, &lib)?;
            }
            check_hashes(name, &lib)?;
            compile_java(name, &lib)?;
        }
    }
    compile_c("buffers/force.c", BUFFER_LIBRARY, &["-shared", "-fPIC", "-ldl"])
}

fn sources_folder() -> PathBuf {
    shell::workspace_root().join(SOURCES_FOLDER)
}

fn compile_c(source: &str, program: &str, more: &[&str]) -> Result<(), Failed> {
    let place = built_folder("bin")?;
    fs::create_dir_all(&place)?;
    require_program("cc", "gcc, libc6-dev")?;
    let mut command = Command::new("cc");
    command
        .args(["-O2", "-Wall", "-o"])
        .arg(place.join(program))
        .arg(sources_folder().join(source))
        .args(more);
    shell::read_output(&mut command).map(drop)
}

/// Fetches jars from Maven Central, in the versions of the project file.
fn fetch_jars(name: &str, lib: &Path) -> Result<(), Failed> {
    if check_hashes(name, lib).is_ok() {
        return Ok(());
    }
    require_program("mvn", "maven")?;
    eprintln!("fetching {name}");
    let mut command = Command::new("mvn");
    command
        .args(["--quiet", "--batch-mode", "--file"])
        .arg(sources_folder().join(name).join("pom.xml"))
        .args(["dependency:copy-dependencies", "-DincludeScope=runtime"])
        .arg(format!("-DoutputDirectory={}", lib.display()));
    shell::read_output(&mut command).map(drop)
}

/// Checks that the files are identical to those reviewed when the version was chosen.
fn check_hashes(name: &str, lib: &Path) -> Result<(), Failed> {
    if !lib.is_dir() {
        return Err(Failed(format!("{name} was not fetched")));
    }
    let mut command = Command::new("sha256sum");
    command
        .args(["--check", "--strict", "--quiet"])
        .arg(sources_folder().join(name).join("jars.sha256"))
        .current_dir(lib);
    shell::read_output(&mut command).map(drop)
}

fn compile_java(name: &str, lib: &Path) -> Result<(), Failed> {
    require_program("javac", "default-jdk-headless, 17 or newer")?;
    let mut command = Command::new("javac");
    command
        .arg("-d")
        .arg(built_folder(name)?)
        .arg("-cp")
        .arg(lib.join("*"))
        .arg(sources_folder().join(name).join("Load.java"));
    shell::read_output(&mut command).map(drop)
}

fn require_program(program: &str, packages: &str) -> Result<(), Failed> {
    if shell::is_installed(program) {
        return Ok(());
    }
    Err(Failed(format!("there is no `{program}` (Debian: {packages})")))
}
