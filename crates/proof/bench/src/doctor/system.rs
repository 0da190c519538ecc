//! Reads the files in which a machine describes itself (`/proc`, `/sys`, `/run`), or a file tree
//! created by a test.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::{Path, PathBuf},
};

const FILE_BYTES_MAX: u64 = 1 << 20;
const NAMES_MAX: usize = 1024;

/// Root folder below which `/proc`, `/sys` and `/run` are read.
#[derive(Clone, Debug)]
pub struct SystemFiles {
    root: PathBuf,
}

/// Reason why a file could not be read or parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnreadableFile(pub String);

impl SystemFiles {
    /// Returns the system of this machine, with the root `/`.
    pub fn this_machine() -> Self {
        Self::with_root("/")
    }

    /// Returns a system with root folder `root`, for tests.
    pub fn with_root(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the text of a file without surrounding white space.
    pub fn read_text(&self, path: &str) -> Result<String, UnreadableFile> {
        let read = || -> io::Result<String> {
            let mut text = String::new();
            let file = File::open(self.path(path))?;
            file.take(FILE_BYTES_MAX).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|error| UnreadableFile(format!("/{path}: {error}")))?;
        Ok(text.trim().to_owned())
    }

    /// Parses a file whose only content is a number.
    pub fn read_number(&self, path: &str) -> Result<u64, UnreadableFile> {
        let text = self.read_text(path)?;
        text.parse()
            .map_err(|_| UnreadableFile(format!("/{path}: {:?} is no number", shorten(&text))))
    }

    pub fn exists(&self, path: &str) -> bool {
        self.path(path).exists()
    }

    /// Returns the sorted names in a folder.
    pub fn list_names(&self, path: &str) -> Result<Vec<String>, UnreadableFile> {
        let read = || -> io::Result<Vec<String>> {
            let entries = fs::read_dir(self.path(path))?.take(NAMES_MAX);
            entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
        };
        let mut names = read().map_err(|error| UnreadableFile(format!("/{path}: {error}")))?;
        names.sort();
        Ok(names)
    }

    /// Returns the last component of a symbolic link's target.
    pub fn link_target_name(&self, path: &str) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(path).strip_prefix("/").unwrap_or(Path::new(path)))
    }
}

/// Shortens text for an error message.
fn shorten(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A temporary file tree, for tests.
    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn of(files: &[(&str, &str)]) -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            files.iter().for_each(|(path, text)| tree.put(path, text));
            tree
        }

        pub(crate) fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn system(&self) -> SystemFiles {
            SystemFiles::with_root(self.0.path())
        }
    }

    #[test]
    fn present_files_are_parsed_and_missing_ones_have_a_reason() {
        let tree = Tree::of(&[("proc/a", " 7\n"), ("proc/b", "seven"), ("proc/c", "")]);
        let system = tree.system();
        assert_eq!(system.read_number("proc/a"), Ok(7));
        assert_eq!(system.read_number("/proc/a"), Ok(7), "never the real one");
        let why = |path| system.read_number(path).unwrap_err().0;
        assert_eq!(why("proc/b"), "/proc/b: \"seven\" is no number");
        assert!(why("proc/c").contains("no number"), "{}", why("proc/c"));
        assert!(why("proc/d").contains("No such file"), "{}", why("proc/d"));
        assert_eq!(system.list_names("proc").unwrap(), ["a", "b", "c"]);
        assert!(system.list_names("sys").is_err());
        let binary = tree.0.path().join("proc/e");
        fs::write(binary, [0xff, 0xfe]).unwrap();
        assert!(system.read_text("proc/e").is_err());
    }
}
