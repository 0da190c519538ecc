//! The files of a package: what lies where, with which rights.

use std::{
    collections::{BTreeMap, btree_map::Iter},
    fs,
    path::Path,
};

use flate2::Compression;
use quorate_shell::Failed;

use crate::{archive::gzip, program::Program, release::Release};

/// Files and folders by their paths, which begin without a slash. A folder comes before what is in
/// it.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

/// A file or a folder.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) what: What,
    pub(crate) mode: u32,
    /// Number of its user and group.
    pub(crate) owner: u32,
}

/// Kind of an entry.
#[derive(Debug)]
pub(crate) enum What {
    Folder,
    File(Vec<u8>),
    /// A file that operators change.
    Config(Vec<u8>),
}

impl Tree {
    /// Returns all entries in the order of archives.
    pub(crate) fn all(&self) -> Iter<'_, String, Entry> {
        self.0.iter()
    }

    pub(crate) fn file(&mut self, path: &str, bytes: Vec<u8>) {
        self.put(path, What::File(bytes), 0o644, 0);
    }

    pub(crate) fn program(&mut self, path: &str, bytes: Vec<u8>) {
        self.put(path, What::File(bytes), 0o755, 0);
    }

    pub(crate) fn folder(&mut self, path: &str, mode: u32, owner: u32) {
        self.put(path, What::Folder, mode, owner);
    }

    /// Adds an entry with the folders above it.
    fn put(&mut self, path: &str, what: What, mode: u32, owner: u32) {
        for (at, _) in path.match_indices('/') {
            let folder = Entry { what: What::Folder, mode: 0o755, owner: 0 };
            self.0.entry(path[..at].to_owned()).or_insert(folder);
        }
        self.0.insert(path.to_owned(), Entry { what, mode, owner });
    }

    /// Bytes of all files.
    pub(crate) fn size(&self) -> u64 {
        let sizes = self.0.values().map(|entry| match &entry.what {
            What::Folder => 0,
            What::File(bytes) | What::Config(bytes) => bytes.len() as u64,
        });
        sizes.sum()
    }
}

/// Places that differ between distributions.
pub(crate) struct Places {
    pub(crate) zsh: &'static str,
}

/// Returns the files that a package of a distribution installs.
pub(crate) fn installed(
    program: &Program,
    release: &Release,
    root: &Path,
    places: &Places,
) -> Result<Tree, Failed> {
    let mut tree = Tree::default();
    tree.program("usr/bin/quorate", program.bytes.clone());
    tree.program("usr/bin/quorate-tools", program.tools.clone());
    let source = |name: &str| {
        let path = root.join(name);
        fs::read(&path).map_err(Failed::at(&path))
    };
    for (from, to) in [
        ("packaging/systemd/quorate.service", "usr/lib/systemd/system/quorate.service"),
        ("packaging/systemd/sysusers.conf", "usr/lib/sysusers.d/quorate.conf"),
        ("packaging/systemd/devices.conf", "usr/share/doc/quorate/examples/devices.conf"),
        ("packaging/kubernetes/quorate.yaml", "usr/share/doc/quorate/examples/kubernetes.yaml"),
        ("LICENSE-MIT", "usr/share/doc/quorate/LICENSE-MIT"),
        ("LICENSE-APACHE", "usr/share/doc/quorate/LICENSE-APACHE"),
        ("packaging/debian/copyright", "usr/share/doc/quorate/copyright"),
    ] {
        tree.file(to, source(from)?);
    }
    let changes = gzip(&source("CHANGELOG.md")?, Compression::best())?;
    tree.file("usr/share/doc/quorate/changelog.gz", changes);
    let notices = gzip(&release.parts.notices(), Compression::best())?;
    tree.file("usr/share/doc/quorate/NOTICES.gz", notices);
    tree.file("usr/share/doc/quorate/quorate.cdx.json", release.parts.list(release));
    let config = What::Config(source("packaging/quorate.toml")?);
    tree.put("etc/quorate/quorate.toml", config, 0o644, 0);
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/quorate"),
        ("zsh", places.zsh),
        ("fish", "usr/share/fish/vendor_completions.d/quorate.fish"),
    ] {
        tree.file(to, program.says(&["completions", shell])?.into_bytes());
    }
    for (name, page) in pages(program)? {
        let page = gzip(&page, Compression::best())?;
        tree.file(&format!("usr/share/man/man1/{name}.gz"), page);
    }
    Ok(tree)
}

/// The manual, as the binary writes it.
fn pages(program: &Program) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let folder = tempfile::tempdir()?;
    program.says(&["man", "--to", &folder.path().display().to_string()])?;
    let mut pages = Vec::new();
    for file in fs::read_dir(folder.path())? {
        let file = file?;
        let name = file.file_name().to_string_lossy().into_owned();
        pages.push((name, fs::read(file.path())?));
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut tree = Tree::default();
        tree.folder("data", 0o750, 7);
        tree.file("usr/share/a", vec![1, 2]);
        tree.program("usr/bin/b", vec![3]);
        let paths: Vec<&str> = tree.all().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["data", "usr", "usr/bin", "usr/bin/b", "usr/share", "usr/share/a"]);
        let rights = tree.all().map(|(_, entry)| (entry.mode, entry.owner));
        assert!(rights.eq([
            (0o750, 7),
            (0o755, 0),
            (0o755, 0),
            (0o755, 0),
            (0o755, 0),
            (0o644, 0)
        ]));
        assert_eq!(tree.size(), 3);
    }
}
