//! Sets the soname of the shared library, so that the loader gives programs a library with the
//! interface that they were linked against.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libquorate.so.0");
}
