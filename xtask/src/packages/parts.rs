//! Software bill of materials: every crate linked into the programs, with its licence and the
//! checksum of its package.
//!
//! Packages contain two forms: a CycloneDX list for programs, and the texts of all licences for
//! readers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use cargo_metadata::{
    DependencyKind, Metadata, MetadataCommand, Node, NodeDep, Package, PackageId, Target,
};
use quorate_shell::Failed;
use serde_json::{Value, json};

use crate::{program::Machine, release::ReleaseIdentity};

/// The crate of the programs.
const ROOT_CRATE: &str = "quorate-cli";
/// Name prefixes of files with a licence, or with notices that a licence requires to be passed on.
const LICENCE_FILE_PREFIXES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];

/// All third-party crates, by name and version.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinkedCrates(Vec<ThirdPartyCrate>);

#[derive(Clone, Debug)]
struct ThirdPartyCrate {
    name: String,
    version: String,
    license: String,
    repository: String,
    /// SHA-256 of the crate's package, from `Cargo.lock`.
    checksum: String,
    licence_texts: Vec<String>,
}

impl LinkedCrates {
    /// Lists the crates that are linked into the programs for `machine`.
    pub(crate) fn linked_into(root: &Path, machine: &Machine) -> Result<Self, Failed> {
        let platform = format!("{}-unknown-linux-gnu", machine.rpm);
        let words = ["--locked", "--filter-platform", &platform].map(str::to_owned);
        let metadata = MetadataCommand::new().current_dir(root).other_options(words).exec();
        let metadata = metadata.map_err(|error| Failed(format!("cargo metadata: {error}")))?;
        let lock = root.join("Cargo.lock");
        let lock: toml::Table =
            toml::from_str(&fs::read_to_string(&lock)?).map_err(Failed::at_path(&lock))?;
        let locked = lock.get("package").and_then(toml::Value::as_array).into_iter().flatten();
        let text = |one: &toml::Value, key: &str| {
            one.get(key).and_then(toml::Value::as_str).unwrap_or_default().to_owned()
        };
        let checksums: BTreeMap<(String, String), String> = locked
            .map(|one| ((text(one, "name"), text(one, "version")), text(one, "checksum")))
            .collect();
        let mut parts = Vec::new();
        for package in linked_packages(&metadata)? {
            let named = (package.name.to_string(), package.version.to_string());
            parts.push(ThirdPartyCrate {
                licence_texts: read_licence_texts(
                    package.manifest_path.as_std_path().parent().unwrap_or(root),
                )?,
                license: package.license.clone().unwrap_or_default(),
                repository: package.repository.clone().unwrap_or_default(),
                checksum: checksums.get(&named).cloned().unwrap_or_default(),
                name: named.0,
                version: named.1,
            });
        }
        parts.sort_by(|one, two| (&one.name, &one.version).cmp(&(&two.name, &two.version)));
        Ok(Self(parts))
    }

    /// Returns the list in CycloneDX 1.5, for vulnerability scanners.
    pub(crate) fn cyclonedx_list(&self, release: &ReleaseIdentity) -> Vec<u8> {
        let components: Vec<Value> =
            self.0.iter().map(ThirdPartyCrate::cyclonedx_component).collect();
        let list = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": release.rfc3339_date(),
                "component": {
                    "type": "application",
                    "bom-ref": "quorate",
                    "name": "quorate",
                    "version": release.version,
                    "licenses": [{"expression": "MIT OR Apache-2.0"}],
                },
            },
            "components": components,
        });
        let mut text = format!("{list:#}").into_bytes();
        text.push(b'\n');
        text
    }

    /// Returns the texts of all licences, each once, with the crates that use it.
    pub(crate) fn licence_notices(&self) -> Vec<u8> {
        let mut under: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        let mut without = String::new();
        for part in &self.0 {
            for text in &part.licence_texts {
                under.entry(text).or_default().insert(part.to_string());
            }
            if part.licence_texts.is_empty() {
                let ThirdPartyCrate { license, repository, .. } = part;
                let _ = writeln!(without, "  {part}: {license}, {repository}");
            }
        }
        let mut all = "Quorate is built from the crates below, whose licences ask that these texts go with it.\n".to_owned();
        if !without.is_empty() {
            let _ = write!(
                all,
                "\nTheir packages name a licence but do not include its text:\n{without}"
            );
        }
        for (text, parts) in under {
            let parts: Vec<String> = parts.into_iter().collect();
            let line = "-".repeat(80);
            let _ = write!(all, "\n{line}\n{}\n{line}\n{text}\n", parts.join(", "));
        }
        all.into_bytes()
    }
}

impl ThirdPartyCrate {
    fn cyclonedx_component(&self) -> Value {
        let url = format!("pkg:cargo/{}@{}", self.name, self.version);
        let mut component = json!({
            "type": "library",
            "bom-ref": url,
            "name": self.name,
            "version": self.version,
            "purl": url,
        });
        if !self.license.is_empty() {
            // Older packages use a slash for "or".
            let expression = self.license.replace('/', " OR ");
            component["licenses"] = json!([{"expression": expression}]);
        }
        if !self.checksum.is_empty() {
            component["hashes"] = json!([{"alg": "SHA-256", "content": self.checksum}]);
        }
        component
    }
}

impl std::fmt::Display for ThirdPartyCrate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// Returns the third-party packages linked into the programs, without build dependencies and
/// macros.
fn linked_packages(metadata: &Metadata) -> Result<Vec<&Package>, Failed> {
    let nodes = metadata.resolve.iter().flat_map(|resolve| &resolve.nodes);
    let nodes: BTreeMap<&PackageId, &Node> = nodes.map(|node| (&node.id, node)).collect();
    let root = metadata.packages.iter().find(|one| one.name == ROOT_CRATE);
    let root = root.ok_or_else(|| Failed(format!("cargo metadata names no {ROOT_CRATE}")))?;
    let (mut waiting, mut seen) = (vec![&root.id], BTreeSet::new());
    while let Some(id) = waiting.pop() {
        let is_macro = metadata[id].targets.iter().any(Target::is_proc_macro);
        if is_macro || !seen.insert(id) {
            continue;
        }
        let is_linked =
            |one: &&NodeDep| one.dep_kinds.iter().any(|info| info.kind == DependencyKind::Normal);
        let linked = nodes.get(id).into_iter().flat_map(|node| &node.deps).filter(is_linked);
        waiting.extend(linked.map(|one| &one.pkg));
    }
    let packages = seen.into_iter().map(|id| &metadata[id]);
    Ok(packages.filter(|package| package.source.is_some()).collect())
}

/// Returns the licence texts in the folder of a manifest.
fn read_licence_texts(folder: &Path) -> Result<Vec<String>, Failed> {
    let mut texts = Vec::new();
    for file in fs::read_dir(folder).map_err(Failed::at_path(folder))? {
        let path = file?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let upper = name.to_uppercase();
        if LICENCE_FILE_PREFIXES.iter().any(|text| upper.starts_with(text)) && path.is_file() {
            let text = fs::read(&path).map_err(Failed::at_path(&path))?;
            let text = String::from_utf8_lossy(&text).trim().replace("\r\n", "\n");
            texts.push(text);
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, texts: &[&str]) -> ThirdPartyCrate {
        ThirdPartyCrate {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            license: "MIT/Apache-2.0".to_owned(),
            repository: "https://example.com".to_owned(),
            checksum: "00ff".to_owned(),
            licence_texts: texts.iter().map(|text| (*text).to_owned()).collect(),
        }
    }

    #[test]
    fn licence_text_appears_once_with_all_its_packages() {
        let parts =
            LinkedCrates(vec![part("a", &["one"]), part("b", &["one", "two"]), part("c", &[])]);
        let notices = String::from_utf8(parts.licence_notices()).unwrap();
        assert!(notices.contains("\na 1.2.3, b 1.2.3\n"), "{notices}");
        assert!(notices.contains("\nb 1.2.3\n"), "{notices}");
        assert!(notices.contains("  c 1.2.3: MIT/Apache-2.0, https://example.com\n"));
    }

    #[test]
    fn macros_and_build_or_test_dependencies_are_excluded() {
        let package = |name: &str, kind: &str, source: Option<&str>| {
            json!({
                "id": name, "name": name, "version": "1.0.0", "source": source, "features": {},
                "manifest_path": "/Cargo.toml", "dependencies": [],
                "targets": [{"name": name, "kind": [kind], "src_path": "/lib.rs"}],
            })
        };
        let dep = |name: &str, kind: Option<&str>| json!({"name": name, "pkg": name, "dep_kinds": [{"kind": kind, "target": null}]});
        let node =
            |name: &str, deps: &[Value]| json!({"id": name, "dependencies": [], "deps": deps});
        let metadata = json!({
            "packages": [
                package(ROOT_CRATE, "bin", None), package("own", "lib", None), package("far", "lib", Some("r")),
                package("macro", "proc-macro", Some("r")), package("of-macro", "lib", Some("r")),
                package("build", "lib", Some("r")), package("test", "lib", Some("r")),
            ],
            "resolve": {"root": null, "nodes": [
                node(ROOT_CRATE, &[dep("own", None), dep("macro", None), dep("build", Some("build")), dep("test", Some("dev"))]),
                node("own", &[dep("far", None), dep("own", None)]),
                node("macro", &[dep("of-macro", None)]),
            ]},
            "version": 1, "workspace_members": [], "workspace_root": "/", "target_directory": "/",
        });
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let names: Vec<&str> =
            linked_packages(&metadata).unwrap().iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["far"]);
    }
}
