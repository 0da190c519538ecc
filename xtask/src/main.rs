//! Automation: `cargo xtask NAME`.
fn main() {}
