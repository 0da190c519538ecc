//! Compiles an example with `cc`, against what the install script installs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

/// An example, as a program.
pub(crate) struct Built {
    program: PathBuf,
    _folder: TempDir,
}

/// Says what is not tested, and why; with `QUORATE_NO_SKIPS=true` everything must be there.
fn skip(why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "QUORATE_NO_SKIPS=true, and {why}");
    eprintln!("SKIPPED: programs in C: {why}");
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Where the library was built for this test.
fn libraries() -> PathBuf {
    let own = env::current_exe().expect("a program");
    own.parent().expect("a folder").to_owned()
}

/// Installs once for all tests; `None`: said already why not.
fn installed() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Option<TempDir>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        if Command::new("cc").arg("--version").output().is_err() {
            skip("there is no cc");
            return None;
        }
        let prefix = tempfile::tempdir().expect("a folder");
        let install = Command::new(here("install"))
            .arg("--prefix")
            .arg(prefix.path())
            .arg("--from")
            .arg(libraries())
            .output()
            .expect("a shell");
        assert!(
            install.status.success(),
            "{}",
            String::from_utf8_lossy(&install.stderr)
        );
        Some(prefix)
    });
    installed.as_ref().map(TempDir::path)
}

impl Built {
    /// The example of this name. `None`: there is no `cc`.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let prefix = installed()?;
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join(name);
        let source = ["examples", "tests/c"].map(|place| here(place).join(format!("{name}.c")));
        let source = source
            .iter()
            .find(|file| file.exists())
            .expect("an example");
        let pc = fs::read_to_string(prefix.join("lib/pkgconfig/quorate.pc")).expect("installed");
        assert!(
            pc.contains(&format!("prefix={}\n", prefix.display())),
            "{pc}"
        );
        let compile = Command::new("cc")
            .args([
                "-std=c11",
                "-D_GNU_SOURCE",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pedantic",
                "-O1",
                "-g",
            ])
            .arg("-o")
            .arg(&program)
            .arg(source)
            .arg("-I")
            .arg(prefix.join("include"))
            .arg("-L")
            .arg(prefix.join("lib"))
            .arg("-lquorate")
            .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
            .output()
            .expect("cc runs");
        assert!(
            compile.status.success(),
            "{}",
            String::from_utf8_lossy(&compile.stderr)
        );
        Some(Self {
            program,
            _folder: folder,
        })
    }

    /// A process of it.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Runs it to its end; what it wrote.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("runs");
        let (out, err) = (&output.stdout, &output.stderr);
        let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        out.into_owned()
    }
}
