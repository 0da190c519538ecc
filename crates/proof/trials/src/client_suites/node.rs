//! ioredis, in the last version whose package includes its tests, for Mocha. The packages of
//! node-redis include none.

use std::{path::PathBuf, process::Command};

use super::{Failed, Report, TestFile, output_of, own_file, with_time_limit, work_folder};
use crate::shell::{is_installed, read_output};

const VERSION: &str = "2.3.1";
const NEEDED_PACKAGES: [&str; 4] =
    ["mocha@2.5.3", "chai@3.5.0", "sinon@1.17.7", "server-destroy@1.0.1"];

pub(super) fn fetch() -> Result<PathBuf, Failed> {
    if !is_installed("node") || !is_installed("npm") {
        return Err(Failed("no Node.js with npm; ./setup installs them".to_owned()));
    }
    let folder = work_folder("node")?;
    let npm = || {
        let mut command = Command::new("npm");
        command.current_dir(&folder).args(["--silent", "--no-audit", "--no-fund"]);
        command
    };
    let source = folder.join("package");
    if !source.is_dir() {
        let library = format!("ioredis@{VERSION}");
        // Install the dependencies of the library and of its tests. Modules are looked up in the
        // parent folder.
        let mut install = npm();
        install.args(["install", "--prefix", "."]);
        read_output(install.arg(&library).args(NEEDED_PACKAGES))?;
        let archive = read_output(npm().arg("pack").arg(library))?;
        let mut tar = Command::new("tar");
        tar.current_dir(&folder).args(["--extract", "--file"]);
        read_output(tar.arg(archive.trim()))?;
    }
    Ok(source)
}

pub(super) fn run(task: &TestFile<'_>) -> Result<Report, Failed> {
    let helpers = task.folder.join("test/helpers/global.js");
    let file = task.folder.join("test/functional").join(task.file);
    let mut command = with_time_limit("node");
    command
        .arg("--require")
        .arg(own_file("port.js"))
        .arg("../node_modules/mocha/bin/_mocha")
        .args(["--opts", "/dev/null", "--reporter"])
        .arg(own_file("mocha.js"))
        .arg(helpers)
        .arg(file.with_extension("js"))
        .current_dir(task.folder)
        .env("NODE_ENV", "test")
        .env("QUORATE_PORT", task.port.to_string())
        .env("QUORATE_REPORT", task.report);
    Report::parse_lines(task, output_of(&mut command)?)
}
