//! Redis' source: a given folder, or the source package of the system's package manager.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{self, Failed, is_installed, read_output};

const HELPER_FILE: &str = "tests/test_helper.tcl";
/// Last of the suite's own files that the suite loads before its tests.
const LAST_LOADED_FILE: &str = "tests/support/util.tcl";
const LOAD_HOOK: &str = "\nsource $::env(QUORATE_SUITE)\n";

/// Returns a copy of the suite that also loads our file.
pub(super) fn suite_folder(given: Option<&Path>) -> Result<PathBuf, Failed> {
    let copy = shell::build_folder().join("redis-suite/source");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    match given {
        Some(folder) if folder.join(HELPER_FILE).is_file() => {
            // Copy the tests and the file with the version.
            let mut command = Command::new("cp");
            command.arg("-R").arg(folder.join("tests"));
            read_output(command.arg(&copy))?;
            fs::create_dir_all(copy.join("src"))?;
            fs::copy(folder.join("src/version.h"), copy.join("src/version.h"))?;
        }
        Some(folder) => {
            let folder = folder.display();
            return Err(Failed(format!("{folder} has no {HELPER_FILE}: it is not Redis' source")));
        }
        None => {
            let mut command = Command::new("tar");
            command.arg("--extract").arg("--file").arg(package_archive()?);
            read_output(command.args(["--strip-components", "1", "--directory"]).arg(&copy))?;
        }
    }
    let last = copy.join(LAST_LOADED_FILE);
    let text = fs::read_to_string(&last)?;
    fs::write(last, text + LOAD_HOOK)?;
    Ok(copy)
}

/// Returns the version stated by the source.
pub(super) fn source_version(source: &Path) -> Result<String, Failed> {
    let text = fs::read_to_string(source.join("src/version.h"))?;
    let version = text.lines().find_map(|line| line.strip_prefix("#define REDIS_VERSION "));
    let version = version.ok_or_else(|| Failed("src/version.h has no version".to_owned()))?;
    Ok(version.trim_matches('"').to_owned())
}

/// Returns the archive of the source package, and fetches it if necessary.
fn package_archive() -> Result<PathBuf, Failed> {
    let folder = shell::build_folder().join("redis-suite/package");
    if let Some(archive) = find_archive(&folder)? {
        return Ok(archive);
    }
    let otherwise = "give the folder of a Redis source tree with --source";
    if !is_installed("apt-get") {
        return Err(Failed(format!("no apt-get to fetch the source with; {otherwise}")));
    }
    fetch_package(&folder).map_err(|Failed(why)| Failed(format!("{why}\n{otherwise}")))?;
    let nothing = || Failed(format!("apt-get fetched no archive; {otherwise}"));
    find_archive(&folder)?.ok_or_else(nothing)
}

fn find_archive(folder: &Path) -> Result<Option<PathBuf>, Failed> {
    if !folder.is_dir() {
        return Ok(None);
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().contains(".orig.tar.") {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Fetches the source package from the system's package repositories. Uses its own package lists,
/// so that the system is not changed.
fn fetch_package(folder: &Path) -> Result<(), Failed> {
    let lists = folder.join("lists");
    fs::create_dir_all(lists.join("partial"))?;
    let format = "deb-src $(SITE) $(RELEASE) $(COMPONENT)";
    let places = read_output(Command::new("apt-get").args([
        "indextargets",
        "--format",
        format,
        "Created-By: Packages",
    ]))?;
    // Other vendors' repositories rarely have sources, and never these.
    let mut places: Vec<&str> = places
        .lines()
        .filter(|place| place.contains("/debian") || place.contains("/ubuntu"))
        .collect();
    places.sort_unstable();
    places.dedup();
    let file = folder.join("sources.list");
    fs::write(&file, places.join("\n") + "\n")?;
    let option = |name: &str, value: &Path| format!("{name}={}", value.display());
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        for option in [
            option("Dir::Etc::sourcelist", &file),
            "Dir::Etc::sourceparts=-".to_owned(),
            option("Dir::State::lists", &lists),
            // Keyrings that the system's own lists reference individually.
            "Dir::Etc::trustedparts=/usr/share/keyrings".to_owned(),
            "Dir::Cache::pkgcache=".to_owned(),
            "Dir::Cache::srcpkgcache=".to_owned(),
        ] {
            command.args(["-o", &option]);
        }
        read_output(command.args(words).current_dir(folder))
    };
    apt(&["--quiet", "update"])?;
    apt(&["--quiet", "source", "--download-only", "redis"])?;
    Ok(())
}
