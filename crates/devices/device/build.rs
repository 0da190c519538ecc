//! Provides the objects that the crate embeds: compiled by clang if it is installed, otherwise the
//! committed objects, if they match the sources.

use std::{env, fs, path::Path};

#[path = "src/xdp/compile.rs"]
#[allow(dead_code, unreachable_pub, reason = "the crate uses the rest")]
mod compile;

fn main() {
    let own = env::var("CARGO_MANIFEST_DIR").expect("cargo says it");
    let made = env::var("OUT_DIR").expect("cargo says it");
    let (folder, made) = (Path::new(&own).join("../programs/xdp"), Path::new(&made));
    let sources = folder.join("bpf");
    let sources = sources.canonicalize().expect("crates/devices/programs/xdp/bpf is there");
    println!("cargo::rerun-if-env-changed=QUORATE_CLANG");
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed={}", folder.join("object").display());
    for file in compile::source_files(&sources).expect("sources can be read") {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    let compiled = compile::find_clang().ok_or_else(|| "clang is not installed".to_owned());
    let compiled = compiled.and_then(|clang| {
        compile::PROGRAMS.iter().try_for_each(|program| {
            compile::compile(&clang, &sources, program, &object_path(made, program))
        })
    });
    let origin = match compiled {
        Ok(()) => "compiled in this build".to_owned(),
        Err(why) => {
            use_committed(&folder, &sources, made, &why);
            format!("the committed objects: {}", why.lines().next().unwrap_or_default())
        }
    };
    println!("cargo::rustc-env=QUORATE_XDP_ORIGIN={origin}");
}

fn object_path(made: &Path, program: &str) -> std::path::PathBuf {
    made.join(format!("{program}.o"))
}

fn use_committed(folder: &Path, sources: &Path, made: &Path, why: &str) {
    let hash = compile::hash_sources(sources).expect("sources can be read");
    let known = fs::read_to_string(folder.join("object/sources.sha1")).unwrap_or_default();
    assert!(
        known.trim() == hash,
        "the objects in crates/devices/programs/xdp/object are of other sources, and there is no other way: {why}\n\
         install clang, or run `cargo xtask offload object` on a machine that has it"
    );
    for program in compile::PROGRAMS {
        let object = folder.join(format!("object/{program}.o"));
        fs::copy(&object, object_path(made, program)).expect("the committed object can be copied");
    }
}
