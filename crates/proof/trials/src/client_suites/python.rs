//! redis-py: its source package includes its tests, for pytest.

use std::{path::PathBuf, process::Command};

use super::{Failed, Report, TestFile, output_of, own_file, with_time_limit, work_folder};
use crate::shell::{is_installed, read_output};

const VERSION: &str = "6.4.0";
/// Filter for tests that the suite's authors exclude on a standalone server: clusters, modules,
/// other servers.
const TEST_FILTER: &str =
    "not onlycluster and not redismod and not replica and not ssl and not cp_integration";

pub(super) fn fetch() -> Result<PathBuf, Failed> {
    if !is_installed("python3") {
        return Err(Failed("no python3; ./setup installs it".to_owned()));
    }
    let all = work_folder("python")?;
    let venv = all.join("venv");
    let pip = || {
        let mut command = Command::new(venv.join("bin/pip"));
        command.args(["--quiet", "--disable-pip-version-check"]);
        command
    };
    if !venv.join("bin/pytest").is_file() {
        read_output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        let mut install = pip();
        install.args(["install", "--requirement"]);
        read_output(install.arg(own_file("requirements.txt")))?;
    }
    let source = all.join(format!("redis-{VERSION}"));
    if !source.is_dir() {
        let mut download = pip();
        download.args(["download", "--no-deps", "--no-binary", "redis", "--dest"]);
        read_output(download.arg(&all).arg(format!("redis=={VERSION}")))?;
        let mut tar = Command::new("tar");
        tar.arg("--extract").arg("--directory").arg(&all);
        let archive = all.join(format!("redis-{VERSION}.tar.gz"));
        read_output(tar.arg("--file").arg(archive))?;
    }
    Ok(source)
}

/// Runs a file of tests. File names begin with the protocol: `resp2/test_commands`.
pub(super) fn run(task: &TestFile<'_>) -> Result<Report, Failed> {
    let (protocol, file) = task.file.split_once('/').unwrap_or(("resp2", task.file));
    // Use the library in the folder of the tests, not an installed one.
    let path = format!("{}:{}", task.folder.display(), own_file("").display());
    let mut command = with_time_limit(task.folder.with_file_name("venv/bin/python"));
    command
        .args(["-m", "pytest", "-p", "quorate_pytest", "-p", "no:cacheprovider"])
        .args(["--timeout=120", "-m", TEST_FILTER])
        .arg(task.folder.join("tests").join(file).with_extension("py"))
        .arg(format!("--redis-url=redis://127.0.0.1:{}/0", task.port))
        .arg(format!("--protocol={}", protocol.trim_start_matches("resp")))
        .current_dir(task.folder)
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("QUORATE_REPORT", task.report);
    Report::parse_lines(task, output_of(&mut command)?)
}
