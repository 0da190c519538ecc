//! Build script that records the commit that the program is built from, as determined by
//! `stamp.rs`.
#![allow(clippy::print_stdout, reason = "so Cargo is told")]

mod stamp;

use std::{env, path::PathBuf};

fn main() {
    let here = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let root = here.and_then(|here| Some(here.ancestors().nth(3)?.to_owned()));
    let root = root.and_then(|root| root.canonicalize().ok());
    println!("cargo::rerun-if-changed=build");
    // Otherwise the builder may set it, and rustc reads the variable itself.
    if let Some(root) = root
        && let Some(commit) = stamp::commit(&root)
    {
        println!("cargo::rustc-env=QUORATE_COMMIT={commit}");
        for path in stamp::watched(&root) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}
