//! Builds the Lua interpreter, which executes scripts, from its sources: `cargo xtask lua`.
//!
//! The interpreter, a WebAssembly module, is committed because any change of its bytes may change
//! what scripts cost, and because building Quorate then needs no compiler for WebAssembly. This
//! task checks that the committed module matches its sources, or replaces it.

mod module;
mod regions;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{Failed, build_folder, run_checked, workspace_root};

/// Debian's source package, which includes patches for Lua and its libraries.
const SOURCE_PACKAGE: &str = "redis=5:7.0.15-1~deb12u10";
const APT_SOURCES_LINE: &str = "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main
deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian-security bookworm-security main
";

/// Files of Lua and its libraries, in `deps/lua/src`.
const LUA_FILES: [&str; 30] = [
    "fpconv",
    "lapi",
    "lauxlib",
    "lbaselib",
    "lcode",
    "ldebug",
    "ldo",
    "ldump",
    "lfunc",
    "lgc",
    "llex",
    "lmathlib",
    "lmem",
    "lobject",
    "lopcodes",
    "lparser",
    "lstate",
    "lstring",
    "lstrlib",
    "ltable",
    "ltablib",
    "ltm",
    "lua_bit",
    "lua_cjson",
    "lua_cmsgpack",
    "lua_struct",
    "lundump",
    "lvm",
    "lzio",
    "strbuf",
];
/// Files of Redis, in `src`.
const REDIS_FILES: [&str; 2] = ["rand", "sha1"];
/// Our own source files, in `crates/services/lua/machine`.
const OWN_FILES: [&str; 5] = ["library", "memory", "run", "streams", "values"];

/// Compiler flags. Without `nontrapping-fptoint`, out-of-range numbers are converted to the lowest
/// integer, as on x86.
const COMPILER_FLAGS: [&str; 11] = [
    "--target=wasm32-wasi",
    "-O2",
    "-mbulk-memory",
    "-msign-ext",
    "-mno-nontrapping-fptoint",
    "-ftls-model=local-exec",
    "-ffunction-sections",
    "-fdata-sections",
    "-fno-strict-aliasing",
    "-DNDEBUG",
    "-w",
];

/// Linker flags. The stack is at the lowest addresses, so that an overflow leaves the memory and
/// traps.
const LINKER_FLAGS: &str = "-Wl,--no-entry,--gc-sections,--strip-all,--stack-first,-z,stack-size=196608,\
                    --initial-memory=524288,--max-memory=67108864,--export=__stack_pointer,\
                    --wrap=strtod,--wrap=__wasi_fd_close,--wrap=__wasi_fd_read,\
                    --wrap=__wasi_fd_write,--wrap=__wasi_fd_seek";

/// Content of the `config.h` that `sha1.c` includes.
const CONFIG_HEADER: &str = "#define LITTLE_ENDIAN 1234\n#define BIG_ENDIAN 4321\n#undef BYTE_ORDER\n\
                      #define BYTE_ORDER LITTLE_ENDIAN\n";

/// Builds the module and compares it with the committed one, or replaces that one.
pub(crate) fn run(words: &[&str]) -> Result<(), Failed> {
    let (keep, source) = match words {
        [] => (true, fetch_sources()?),
        ["--write"] => (false, fetch_sources()?),
        _ => return Err(Failed("lua [--write]".to_owned())),
    };
    let own = workspace_root().join("crates/services/lua/machine");
    patch_sources(&source, &own)?;
    let linked = build(&source, &own)?;
    let made = regions::rewrite_module(&fs::read(linked)?).map_err(Failed)?;
    let committed = own.join("lua.wasm");
    if fs::read(&committed)? == made {
        println!("the committed machine is what its sources say");
        return Ok(());
    }
    if keep {
        return Err(Failed("the committed machine differs from its sources: --write".to_owned()));
    }
    println!("written; if scripts may cost or do something else, this needs a feature level");
    Ok(fs::write(committed, made)?)
}

/// Fetches the source package, and returns the folder with Debian's patches applied.
fn fetch_sources() -> Result<PathBuf, Failed> {
    let folder = build_folder().join("lua");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(folder.join("lists/partial"))?;
    fs::write(folder.join("list"), APT_SOURCES_LINE)?;
    let option =
        |name: &str, value: &str| format!("-oDir::{name}={}", folder.join(value).display());
    for words in [&["update"][..], &["source", SOURCE_PACKAGE]] {
        let mut command = Command::new("apt-get");
        command.args([option("Etc::SourceList", "list"), option("State::Lists", "lists")]);
        command.args(["-oDir::Etc::SourceParts=-", "-qq"]).args(words).current_dir(&folder);
        run_checked(command, &format!("apt-get {}", words.join(" ")))?;
    }
    Ok(folder.join("redis-7.0.15"))
}

fn patch_sources(source: &Path, own: &Path) -> Result<(), Failed> {
    let mut command = Command::new("patch");
    command.args(["--strip=1", "--silent", "--directory"]).arg(source.join("deps/lua"));
    command.arg("--input").arg(own.join("lua.patch"));
    run_checked(command, "patch lua.patch")
}

/// Compiles and links the module. Paths are relative, so that the result does not depend on this
/// machine.
fn build(source: &Path, own: &Path) -> Result<PathBuf, Failed> {
    fs::create_dir_all(source.join("own"))?;
    for entry in fs::read_dir(own)? {
        let path = entry?.path();
        fs::copy(&path, source.join("own").join(path.file_name().unwrap_or_default()))?;
    }
    fs::create_dir_all(source.join("own/config"))?;
    fs::write(source.join("own/config/config.h"), CONFIG_HEADER)?;
    fs::write(source.join("own/config/solarisfixes.h"), "")?;
    let folders =
        [("deps/lua/src", &LUA_FILES[..]), ("own", &OWN_FILES), ("own/config", &REDIS_FILES)];
    for name in REDIS_FILES {
        for ending in ["c", "h"] {
            let from = source.join(format!("src/{name}.{ending}"));
            fs::copy(from, source.join(format!("own/config/{name}.{ending}")))?;
        }
    }
    let mut objects = Vec::new();
    for (folder, names) in folders {
        for name in names {
            let object = format!("own/{}-{name}.o", objects.len());
            compile_file(source, &format!("{folder}/{name}.c"), &object)?;
            objects.push(object);
        }
    }
    let mut command = Command::new("clang");
    command.args(["--target=wasm32-wasi", "-nostartfiles", LINKER_FLAGS, "-o", "own/linked.wasm"]);
    command.args(objects).current_dir(source);
    run_checked(command, "clang (link)")?;
    Ok(source.join("own/linked.wasm"))
}

fn compile_file(source: &Path, file: &str, object: &str) -> Result<(), Failed> {
    let mut command = Command::new("clang");
    command.args(COMPILER_FLAGS).args(["-I", "deps/lua/src", "-I", "own", "-I", "own/config"]);
    if !file.starts_with("own/config") {
        command.args(["-include", "own/settings.h"]);
    }
    command.args(["-c", file, "-o", object]).current_dir(source);
    run_checked(command, &format!("clang {file}"))
}
