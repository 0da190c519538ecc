//! RPM packages for Fedora and its relatives.

use flate2::Compression;
use quorate_shell::{Failed, root};
use rpm::{BuildConfig, CompressionWithLevel, Dependency, FileOptions, PackageBuilder};

use crate::{
    program::Program,
    release::Release,
    tree::{Places, What, installed},
};

const PACKAGING: &str = "1";

pub(crate) fn make(
    program: &Program,
    release: &Release,
    level: Compression,
) -> Result<(String, Vec<u8>), Failed> {
    let zsh = "usr/share/zsh/site-functions/_quorate";
    let tree = installed(program, release, &root(), &Places { zsh })?;
    let machine = program.machine.rpm;
    let summary = "Replicated store that keeps what it acknowledged";
    let mut builder =
        PackageBuilder::new("quorate", &release.version, "MIT OR Apache-2.0", machine, summary);
    let level = CompressionWithLevel::Gzip(level.level());
    let config = BuildConfig::v4().compression(level).source_date(release.time);
    builder
        .using_config(config)
        .release(PACKAGING)
        // By default, the package would contain this machine's name.
        .build_host("localhost")
        .cookie("")
        .description(
            "A consensus engine of the Paxos family with a key-value store that speaks the Redis protocol, and with \
             byte streams. Three machines keep on while one of them is gone.",
        )
        .post_install_script(include_str!("../../../packaging/rpm/post"))
        .pre_uninstall_script(include_str!("../../../packaging/rpm/preun"))
        .post_uninstall_script(include_str!("../../../packaging/rpm/postun"))
        .requires(Dependency::script_post("/usr/sbin/useradd"));
    for (library, version) in &program.needs {
        // Use the names that rpm's own generator gives to a library's symbols.
        builder.requires(Dependency::any(format!("{library}({version})(64bit)")));
    }
    let failed = |error: rpm::Error| Failed(format!("the .rpm: {error}"));
    for (path, entry) in tree.all() {
        let to = format!("/{path}");
        let permissions = u16::try_from(entry.mode).map_err(|error| Failed(error.to_string()))?;
        let options = FileOptions::new(to).permissions(permissions);
        match &entry.what {
            What::File(bytes) => {
                builder.with_file_contents(bytes.as_slice(), options).map_err(failed)?;
            }
            What::Config(bytes) => {
                let options = options.config().noreplace();
                builder.with_file_contents(bytes.as_slice(), options).map_err(failed)?;
            }
            // Folders that are not our own belong to the distribution.
            What::Folder => {
                if path.ends_with("/quorate") {
                    let options = FileOptions::dir(format!("/{path}")).permissions(permissions);
                    builder.with_dir_entry(options).map_err(failed)?;
                }
            }
        }
    }
    let package = builder.build().map_err(failed)?;
    let mut bytes = Vec::new();
    package.write(&mut bytes).map_err(failed)?;
    let name = format!("quorate-{}-{PACKAGING}.{machine}.rpm", release.version);
    Ok((name, bytes))
}
