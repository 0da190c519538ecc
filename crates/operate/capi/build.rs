//! Names the shared library for the loader: programs that were linked against it find one of the
//! same interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libquorate.so.0");
}
