//! Debian packages: an `ar` archive of a format version, the control files, and the content.

use flate2::Compression;
use quorate_shell::{Failed, root};

use crate::{
    archive::{gzip, tar},
    program::Program,
    release::Release,
    tree::{Places, Tree, What, installed},
};

/// Package revision. It distinguishes packages of the same version.
const PACKAGING: &str = "1";
/// Debian packages that contain the libraries.
const LIBRARIES: [(&str, &str); 4] = [
    ("libc.so.6", "libc6"),
    ("libm.so.6", "libc6"),
    ("ld-linux", "libc6"),
    ("libgcc_s.so.1", "libgcc-s1"),
];
const SCRIPTS: [(&str, &str); 3] = [
    ("postinst", include_str!("../../../packaging/debian/postinst")),
    ("prerm", include_str!("../../../packaging/debian/prerm")),
    ("postrm", include_str!("../../../packaging/debian/postrm")),
];

pub(crate) fn make(
    program: &Program,
    release: &Release,
    level: Compression,
) -> Result<(String, Vec<u8>), Failed> {
    let zsh = "usr/share/zsh/vendor-completions/_quorate";
    let tree = installed(program, release, &root(), &Places { zsh })?;
    let mut control = Tree::default();
    control.file("control", self::control(program, release, &tree)?.into_bytes());
    let configs = tree.all().filter(|(_, entry)| matches!(entry.what, What::Config(_)));
    let configs: String = configs.map(|(path, _)| format!("/{path}\n")).collect();
    control.file("conffiles", configs.into_bytes());
    for (name, text) in SCRIPTS {
        control.program(name, text.as_bytes().to_vec());
    }
    let gz = |tree: &Tree| gzip(&tar(tree, "./", release.time)?, level);
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gz(&control)?),
        ("data.tar.gz", gz(&tree)?),
    ];
    let name = format!("quorate_{}-{PACKAGING}_{}.deb", release.version, program.machine.debian);
    Ok((name, ar(&parts, release.time)))
}

fn control(program: &Program, release: &Release, tree: &Tree) -> Result<String, Failed> {
    let mut depends = Vec::new();
    for library in program.libraries() {
        let package = LIBRARIES.iter().find(|(name, _)| library.starts_with(name));
        let (_, package) = package.ok_or_else(|| {
            Failed(format!(
                "{library} is needed, and which package of Debian has it is not known here"
            ))
        })?;
        depends.push(match *package {
            "libc6" => format!("libc6 (>= {})", program.libc()),
            other => other.to_owned(),
        });
    }
    depends.push("passwd".to_owned());
    depends.sort();
    depends.dedup();
    Ok(format!(
        "Package: quorate\n\
         Version: {}-{PACKAGING}\n\
         Architecture: {}\n\
         Maintainer: The Quorate authors <quorate@localhost>\n\
         Installed-Size: {}\n\
         Depends: {}\n\
         Section: database\n\
         Priority: optional\n\
         Description: replicated store that keeps what it acknowledged\n \
         A consensus engine of the Paxos family with a key-value store that speaks the\n \
         Redis protocol, and with byte streams. Three machines keep on while one of\n \
         them is gone.\n",
        release.version,
        program.machine.debian,
        tree.size().div_ceil(1024),
        depends.join(", "),
    ))
}

/// Builds an `ar` archive: each part has a header of 60 characters and begins at an even offset.
fn ar(parts: &[(&str, Vec<u8>)], time: u32) -> Vec<u8> {
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, part) in parts {
        let header =
            format!("{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 100_644, part.len());
        bytes.extend(header.bytes());
        bytes.extend(part);
        if part.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_at_even_places() {
        let bytes = ar(&[("a", b"x".to_vec()), ("b", b"yz".to_vec())], 7);
        let text = String::from_utf8(bytes).unwrap();
        let header = |name: &str, size: u32| {
            format!("{name:<16}7           0     0     100644  {size:<10}`\n")
        };
        assert_eq!(text, format!("!<arch>\n{}x\n{}yz", header("a", 1), header("b", 2)));
    }
}
