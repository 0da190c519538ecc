//! Compiles an example with `cc`, using the files that the install script installs.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use tempfile::TempDir;

pub(crate) struct Built {
    program: PathBuf,
    _folder: TempDir,
}

/// Prints why a test is skipped. Fails if `QUORATE_NO_SKIPS=true`.
pub(crate) fn skip(why: &str) {
    let all = env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
    assert!(!all, "QUORATE_NO_SKIPS=true, and {why}");
    eprintln!("SKIPPED: programs in C: {why}");
}

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Returns the folder that contains the library built for this test.
fn libraries() -> PathBuf {
    let own = env::current_exe().expect("a program");
    own.parent().expect("a folder").to_owned()
}

/// Installs the library once for all tests. Prints a reason and returns `None` if that is
/// impossible.
fn installed() -> Option<&'static Path> {
    static INSTALLED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let installed = INSTALLED.get_or_init(|| {
        if Command::new("cc").arg("--version").output().is_err() {
            skip("there is no cc");
            return None;
        }
        // The folder is fixed because the libraries are large, so each run replaces those of the
        // previous one.
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prefix");
        let mut install = Command::new(here("install"));
        install.arg("--prefix").arg(&prefix).arg("--from").arg(libraries());
        if has_libevent() {
            install.arg("--libpaxos");
        }
        let install = install.output().expect("a shell");
        assert!(install.status.success(), "{}", String::from_utf8_lossy(&install.stderr));
        Some(prefix)
    });
    installed.as_deref()
}

/// Returns whether programs that use libevent can be compiled.
fn has_libevent() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let source = folder.path().join("event.c");
        fs::write(
            &source,
            "#include <event2/event.h>\nint main(void) { return !event_base_new(); }\n",
        )
        .expect("written");
        let mut compile = Command::new("cc");
        compile.arg("-o").arg(folder.path().join("event")).arg(&source).arg("-levent");
        compile.output().is_ok_and(|output| output.status.success())
    })
}

/// Returns whether C++ accepts a header, included once and twice. Returns `true` without a C++
/// compiler.
pub(crate) fn is_cxx(header: &str) -> bool {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("header.cc");
    let line = format!("#include <{header}>\n");
    fs::write(&source, format!("{line}{line}int main() {{ return 0; }}\n")).expect("written");
    let Some(prefix) = installed() else {
        return true;
    };
    let mut compile = Command::new("c++");
    compile
        .args(["-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .arg(prefix.join("include"));
    compile.arg("-I").arg(prefix.join("include/libpaxos")).arg(&source);
    compile.output().is_ok_and(|output| {
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        output.status.success()
    }) || Command::new("c++").arg("--version").output().is_err()
}

impl Built {
    /// Compiles the example called `name` against LibPaxos3's interface.
    pub(crate) fn of_libpaxos(name: &str) -> Option<Self> {
        if !has_libevent() {
            skip("libevent's headers are not there (libevent-dev)");
            return None;
        }
        let include = installed()?.join("include/libpaxos");
        let include = include.to_str().expect("a name");
        Self::compiled(name, &["-I", include, "-levpaxos", "-levent"])
    }

    /// Compiles the example called `name`. Returns `None` without a C compiler.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::compiled(name, &["-lquorate"])
    }

    /// Compiles the example called `name` with the static library, as `pkg-config --static` would.
    pub(crate) fn with_library(name: &str) -> Option<Self> {
        let pc = fs::read_to_string(installed()?.join("lib/pkgconfig/quorate.pc"));
        let pc = pc.expect("installed");
        let line = pc.lines().find_map(|line| line.strip_prefix("Libs.private: "));
        let mut libraries = vec!["-l:libquorate.a"];
        libraries.extend(line.expect("said").split_whitespace());
        Self::compiled(name, &libraries)
    }

    fn compiled(name: &str, more: &[&str]) -> Option<Self> {
        let prefix = installed()?;
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join(name);
        let source =
            ["examples", "tests/suite/c"].map(|place| here(place).join(format!("{name}.c")));
        let source = source.iter().find(|file| file.exists()).expect("an example");
        let pc = fs::read_to_string(prefix.join("lib/pkgconfig/quorate.pc")).expect("installed");
        assert!(pc.contains(&format!("prefix={}\n", prefix.display())), "{pc}");
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
            .args(more)
            .arg(format!("-Wl,-rpath,{}", prefix.join("lib").display()))
            .output()
            .expect("cc runs");
        assert!(compile.status.success(), "{}", String::from_utf8_lossy(&compile.stderr));
        Some(Self { program, _folder: folder })
    }

    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    pub(crate) fn command(&self) -> Command {
        Command::new(&self.program)
    }

    /// Runs the program until it ends and returns its output.
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let output = self.command().args(arguments).output().expect("runs");
        let (out, err) = (&output.stdout, &output.stderr);
        let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
        assert!(output.status.success(), "{}\n{out}\n{err}", output.status);
        out.into_owned()
    }
}
