//! The `quorate` binary: one file per subcommand.
fn main() {}
