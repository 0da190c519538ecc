//! Checks dependencies against `deny.toml`: licences, bans, sources and advisories.

use crate::shell::{Failed, cargo, has, root, skip};

/// Checks both workspaces by the same rules.
pub(crate) fn run() -> Result<(), Failed> {
    if !has("cargo-deny") {
        return skip("deny", "cargo-deny is not installed; cargo install --locked cargo-deny");
    }
    let mut checks = vec!["bans", "licenses", "sources"];
    // Without a network the advisory database cannot be fetched; check everything else.
    let advisories = cargo(&["deny", "--log-level", "off", "fetch", "db"]).is_ok();
    if advisories {
        checks.push("advisories");
    }
    let config = root().join("deny.toml").display().to_string();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut words = vec!["deny", "--log-level", "error", "--config", &config];
        words.extend(["--workspace", "--manifest-path", manifest, "check"]);
        words.extend(&checks);
        cargo(&words)?;
    }
    if !advisories {
        skip("advisories", "their list cannot be fetched from here")?;
    }
    Ok(())
}
