//! Dependencies of the project: licences, bans, sources and advisories, as set in `deny.toml`.

use crate::shell::{Failed, cargo, has, root, skip};

/// Both workspaces are judged by the same rules.
pub(crate) fn run() -> Result<(), Failed> {
    if !has("cargo-deny") {
        return skip("deny", "cargo-deny is not installed; cargo install --locked cargo-deny");
    }
    let mut checks = vec!["bans", "licenses", "sources"];
    // The list of known flaws is fetched; without a network the rest is judged all the same.
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
