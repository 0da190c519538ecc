//! User-level tests, run as on users' machines: `cargo xtask users`.
//!
//! CI runs as root with full permissions. Test programs that access the system, built by `cargo
//! test`, run here again as an ordinary user: unprivileged, with the usual limits, another language
//! and time zone, and a temporary folder whose name contains a space. Tests that load programs into
//! the kernel also run as root where systemd has mounted the BPF file system.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value as Json;

use crate::shell::{self, Failed, is_installed, report_skip};

/// Test programs by package and target, with filters for test names.
const USER_TESTS: &[(&str, &str, &[&str])] = &[
    ("quorate-net", "suite", &[]),
    ("quorate-packets", "suite", &["socket::", "wire::"]),
    ("quorate-device", "suite", &["kernel::"]),
    ("quorate-cli", "suite", &["devices::"]),
    ("quorate-tools", "suite", &["wan::", "doctor::"]),
];
const BPF_TESTS: &[(&str, &str, &[&str])] = &[("quorate-device", "suite", &["kernel::"])];

/// Id of the unprivileged user, the same on every system.
const USER_ID: &str = "65534";
/// Shell command that runs a program with a user's limits, and allows skips even if they are
/// forbidden elsewhere.
const LIMITED_COMMAND: &str =
    "umask 077; ulimit -Sn 1024; ulimit -l 8192; unset QUORATE_NO_SKIPS; exec \"$@\"";
/// Shell command that runs a program with its own BPF file system, and checks that it leaves
/// nothing in the shared one.
const BPF_MOUNT_COMMAND: &str =
    "mount -t bpf bpf /sys/fs/bpf && \"$@\" && test ! -e /sys/fs/bpf/quorate";

pub(crate) fn run() -> Result<(), Failed> {
    let programs = TestPrograms::list_built()?;
    let root = rustix::process::geteuid().is_root();
    let home = tempfile::Builder::new().prefix("quorate users ").tempdir()?;
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o1777))?;
    if root && !is_installed("setpriv") {
        report_skip("tests of an ordinary user", "there is no `setpriv` (Debian: util-linux)")?;
    } else {
        let become_user: &[&str] = if root {
            &["setpriv", "--reuid", USER_ID, "--regid", USER_ID, "--clear-groups"]
        } else {
            &["env"]
        };
        if programs.can_user_execute(become_user) {
            let words = [become_user, &["sh", "-c", LIMITED_COMMAND, "sh"]].concat();
            for program in USER_TESTS {
                programs.run(program, &words, home.path())?;
            }
        } else {
            report_skip("tests of an ordinary user", "this folder is closed to other users")?;
        }
    }
    if !root {
        return report_skip("tests next to the BPF file system", "only root may mount it");
    }
    let words = ["unshare", "--mount", "sh", "-c", BPF_MOUNT_COMMAND, "sh"];
    BPF_TESTS.iter().try_for_each(|program| programs.run(program, &words, home.path()))
}

/// Test programs by package and target, with the folder of the package.
struct TestPrograms(BTreeMap<(String, String), (PathBuf, PathBuf)>);

impl TestPrograms {
    /// Lists all test programs as built by `cargo test`; nothing is rebuilt afterwards.
    fn list_built() -> Result<Self, Failed> {
        let words = ["test", "--no-run", "--quiet", "--message-format", "json"];
        let said = shell::read_output(&mut shell::cargo_command(&words))?;
        Ok(Self(said.lines().filter_map(parse_test_program).collect()))
    }

    /// Returns whether the user may execute the test programs. A checkout below `/root` may be
    /// inaccessible.
    fn can_user_execute(&self, become_user: &[&str]) -> bool {
        let Some((program, _)) = self.0.values().next() else { return false };
        let mut command = Command::new(become_user[0]);
        command.args(&become_user[1..]).args(["test", "-x"]).arg(program);
        command.status().is_ok_and(|status| status.success())
    }

    fn run(
        &self,
        (package, target, filters): &(&str, &str, &[&str]),
        words: &[&str],
        home: &Path,
    ) -> Result<(), Failed> {
        let found = self.0.get(&((*package).to_owned(), (*target).to_owned()));
        let (program, folder) =
            found.ok_or_else(|| Failed(format!("{package} has no test program {target}")))?;
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg(program).args(*filters).current_dir(folder);
        for variable in ["HOME", "TMPDIR"] {
            command.env(variable, home);
        }
        command.env("LC_ALL", "de_DE.UTF-8").env("TZ", "Asia/Kathmandu");
        shell::run_checked(
            command,
            &format!("{} {package} {target} {}", words[0], filters.join(" ")),
        )
    }
}

/// Parses a line of cargo's output about a test program.
fn parse_test_program(line: &str) -> Option<((String, String), (PathBuf, PathBuf))> {
    let line: Json = serde_json::from_str(line).ok()?;
    let program = line["executable"].as_str().filter(|_| line["profile"]["test"] == true)?;
    let folder = Path::new(line["manifest_path"].as_str()?).parent()?;
    let package = line["package_id"].as_str()?;
    // `path+file:///folder/net#quorate-net@0.2.0`, or `…/quorate#0.2.0` if the folder has the
    // package's name.
    let (place, id) = package.rsplit_once('#')?;
    let name = match id.split_once('@') {
        Some((name, _)) => name,
        None => place.rsplit('/').next()?,
    };
    let target = line["target"]["name"].as_str()?;
    Some(((name.to_owned(), target.to_owned()), (program.into(), folder.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_parsed_from_cargo_output() {
        let line = |id: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"{id}","manifest_path":"/w/net/Cargo.toml","target":{{"name":"suite"}},"profile":{{"test":true}},"executable":"/t/suite-1"}}"#
            )
        };
        for (id, name) in [
            ("path+file:///w/net#quorate-net@0.2.0", "quorate-net"),
            ("path+file:///w/net#0.2.0", "net"),
        ] {
            let (key, (program, folder)) = parse_test_program(&line(id)).unwrap();
            assert_eq!(key, (name.to_owned(), "suite".to_owned()));
            assert_eq!((program, folder), ("/t/suite-1".into(), "/w/net".into()));
        }
        assert_eq!(parse_test_program(&line("x#y@1").replace("true", "false")), None);
        assert_eq!(parse_test_program("no object"), None);
    }
}
