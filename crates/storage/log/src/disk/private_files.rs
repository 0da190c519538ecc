//! Creates files and folders with access for their owner only, whatever the umask: they hold all
//! data, and hashes of passwords.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::Path,
};

pub fn private_file() -> OpenOptions {
    let mut options = File::options();
    options.mode(0o600);
    options
}

pub fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)
}

/// Removes other users' permissions from a file, or from a folder and its contents, without
/// following links. Adds to the counts of changes and failures in `done`. Failures are expected on
/// a volume whose files belong to another user.
pub fn make_private(path: &Path, done: &mut (usize, usize)) {
    let Ok(found) = fs::symlink_metadata(path) else {
        return;
    };
    let mode = found.permissions().mode();
    if !found.is_symlink() && mode & 0o077 != 0 {
        match fs::set_permissions(path, Permissions::from_mode(mode & !0o077)) {
            Ok(()) => done.0 += 1,
            Err(_) => done.1 += 1,
        }
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).into_iter().flatten().flatten() {
            make_private(&entry.path(), done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn folder_contents_are_made_private_but_not_link_targets() {
        let outer = tempfile::tempdir().unwrap();
        let at = |name: &str| outer.path().join(name);
        fs::create_dir_all(at("data/store")).unwrap();
        fs::write(at("e"), "x").unwrap();
        for (name, mode) in [("data", 0o2755), ("data/store", 0o777), ("e", 0o644)] {
            fs::set_permissions(at(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::copy(at("e"), at("data/store/a")).unwrap();
        symlink(at("e"), at("data/link")).unwrap();
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o7777;
        let mut done = (0, 0);
        for _ in 0..2 {
            make_private(&at("data"), &mut done);
            assert_eq!(done, (3, 0));
            let modes = ["data", "data/store", "data/store/a", "e"].map(mode);
            assert_eq!(modes, [0o2700, 0o700, 0o600, 0o644]);
        }
    }
}
