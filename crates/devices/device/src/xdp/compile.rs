//! Compiles the programs of `crates/devices/programs/xdp/bpf` to objects, for the build script and
//! for tests with injected faults.
//!
//! It must not use other modules of this crate, because the build script includes the file.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
};

/// Names of the programs' source files.
pub const PROGRAMS: [&str; 6] = ["acceptor", "coordinator", "host", "decided", "pass", "echo"];

/// Returns the C compiler, if there is one: `QUORATE_CLANG`, or `clang` from the path.
pub fn find_clang() -> Option<PathBuf> {
    find_tool("QUORATE_CLANG", "clang")
}

fn find_tool(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(named) = env::var_os(variable) {
        return (!named.is_empty()).then(|| PathBuf::from(named));
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Compiles one program of the folder `sources`. Absolute paths are removed from the object.
pub fn compile(clang: &Path, sources: &Path, program: &str, to: &Path) -> Result<(), String> {
    let output = Command::new(clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-fno-builtin"])
        .args(["-Wall", "-Wextra", "-Werror"])
        .arg(format!("-ffile-prefix-map={}=.", sources.display()))
        .arg("-fdebug-compilation-dir=.")
        .arg("-c")
        .arg(sources.join(format!("{program}.bpf.c")))
        .arg("-o")
        .arg(to)
        .output()
        .map_err(|error| format!("{}: {error}", clang.display()))?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{program}.bpf.c does not compile\n{said}"))
    }
}

/// Removes debug information from an object that will be committed.
pub fn strip_debug_info(object: &Path) -> Result<(), String> {
    let objcopy =
        find_tool("QUORATE_OBJCOPY", "llvm-objcopy").ok_or("llvm-objcopy is not installed")?;
    let status = Command::new(objcopy)
        .args(["-g", "--discard-all"])
        .args(["--remove-section=.BTF.ext", "--remove-section=.rel.BTF.ext"])
        .args(["--remove-section=.rel.BTF", "--remove-section=.llvm_addrsig"])
        .arg(object)
        .status()
        .map_err(|error| error.to_string())?;
    status.success().then_some(()).ok_or_else(|| "llvm-objcopy failed".to_owned())
}

/// Returns all source files of the programs, sorted by name.
pub fn source_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_source = path.extension().is_some_and(|ending| ending == "c" || ending == "h");
        if is_source {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns a hash over the names and contents of all sources. It is stored next to the committed
/// objects.
pub fn hash_sources(folder: &Path) -> io::Result<String> {
    let mut text = Vec::new();
    for file in source_files(folder)? {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        text.extend_from_slice(name.as_bytes());
        text.push(0);
        text.extend(fs::read(&file)?);
        text.push(0);
    }
    Ok(sha1_smol::Sha1::from(text).digest().to_string())
}
