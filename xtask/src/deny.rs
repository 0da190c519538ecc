//! Checks dependencies against `deny.toml`: licences, bans, sources and advisories.

use crate::shell::{Failed, is_installed, report_skip, run_cargo, workspace_root};

/// Checks both workspaces by the same rules.
pub(crate) fn run() -> Result<(), Failed> {
    if !is_installed("cargo-deny") {
        return report_skip(
            "deny",
            "cargo-deny is not installed; cargo install --locked cargo-deny",
        );
    }
    let mut checks = vec!["bans", "licenses", "sources"];
    // Without a network the advisory database cannot be fetched; check everything else.
    let advisories = run_cargo(&["deny", "--log-level", "off", "fetch", "db"]).is_ok();
    if advisories {
        checks.push("advisories");
    }
    let config = workspace_root().join("deny.toml").display().to_string();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        let mut words = vec!["deny", "--log-level", "error", "--config", &config];
        words.extend(["--workspace", "--manifest-path", manifest, "check"]);
        words.extend(&checks);
        run_cargo(&words)?;
    }
    if !advisories {
        report_skip("advisories", "their list cannot be fetched from here")?;
    }
    Ok(())
}
