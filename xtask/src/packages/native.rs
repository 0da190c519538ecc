//! Debian and RPM packages, made by nfpm from the descriptions in `packaging/nfpm`.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use flate2::Compression;
use quorate_shell::{Failed, build_folder, is_installed, read_output, workspace_root};
use serde_json::json;

use crate::{archive::compress_gzip, program::PackagedProgram, release::ReleaseIdentity};

/// Files of the repository that packages contain. Folders are copied without their subfolders.
const REPOSITORY_FILES: [&str; 12] = [
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "crates/operate/capi/include/quorate.h",
    "docs",
    "docs/operate",
    "docs/spec",
    "packaging",
    "packaging/kubernetes",
    "packaging/prometheus",
    "packaging/scripts",
    "packaging/systemd",
];

/// Names of a family of distributions.
pub(crate) struct DistributionFamily {
    packager: &'static str,
    /// Packages of the C library and of its header.
    library_package: &'static str,
    devel_package: &'static str,
    /// Folder of libraries, by the name of the machine.
    library_folder: fn(&str) -> String,
    /// Dependency on the library of a version.
    exact_dependency: fn(&str) -> String,
}

pub(crate) const DEBIAN: DistributionFamily = DistributionFamily {
    packager: "deb",
    library_package: "libquorate0",
    devel_package: "libquorate-dev",
    library_folder: |machine| format!("/usr/lib/{machine}-linux-gnu"),
    exact_dependency: |version| format!("libquorate0 (= {version}-1)"),
};

pub(crate) const RED_HAT: DistributionFamily = DistributionFamily {
    packager: "rpm",
    library_package: "libquorate",
    devel_package: "libquorate-devel",
    library_folder: |_| "/usr/lib64".to_owned(),
    exact_dependency: |version| format!("libquorate = {version}-1"),
};

/// Makes the packages of a family: the node's first, then the library's and that of its header.
/// Returns their file names and content.
pub(crate) fn make_packages(
    family: &DistributionFamily,
    program: &PackagedProgram,
    release: &ReleaseIdentity,
    level: Compression,
) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    let stage = tempfile::tempdir()?;
    let library = (family.library_folder)(program.machine.rpm);
    stage_files(stage.path(), program, release, &library)?;
    let variables = [
        ("ARCH", program.machine.debian),
        ("VERSION", &release.package_version()),
        ("LEVEL", &level.level().to_string()),
        ("LIBC", &program.libc_version()),
        ("LIB", &library),
        ("LIBRARY", family.library_package),
        ("LIBRARY_SAME", &(family.exact_dependency)(&release.package_version())),
        ("DEVEL", family.devel_package),
    ];
    let text = |name: &str| {
        let file = workspace_root().join("packaging/nfpm").join(name);
        fs::read_to_string(&file).map_err(Failed::at_path(&file))
    };
    let mut packages = Vec::new();
    for description in ["quorate.yaml", "library.yaml", "devel.yaml"] {
        let mut whole = text("common.yaml")? + &text(description)?;
        for (name, value) in variables {
            whole = whole.replace(&format!("${{{name}}}"), value);
        }
        let made = tempfile::tempdir()?;
        fs::write(stage.path().join(description), whole)?;
        let mut nfpm = Command::new(nfpm_path()?);
        nfpm.current_dir(stage.path()).env("SOURCE_DATE_EPOCH", release.unix_time.to_string());
        nfpm.args(["package", "--packager", family.packager, "--config", description, "--target"]);
        read_output(nfpm.arg(made.path()))?;
        for file in fs::read_dir(made.path())? {
            let file = file?;
            packages.push((file.file_name().to_string_lossy().into(), fs::read(file.path())?));
        }
    }
    Ok(packages)
}

/// Returns the program that ./setup installed, or else that of this machine.
fn nfpm_path() -> Result<PathBuf, Failed> {
    let installed = build_folder().join("nfpm/bin/nfpm");
    match installed.is_file() {
        true => Ok(installed),
        false if is_installed("nfpm") => Ok("nfpm".into()),
        false => Err(Failed("there is no nfpm, which makes packages: run ./setup".to_owned())),
    }
}

/// Writes the files that the descriptions name to a folder, all with the time of the release.
fn stage_files(
    stage: &Path,
    program: &PackagedProgram,
    release: &ReleaseIdentity,
    lib: &str,
) -> Result<(), Failed> {
    let put = |name: &str, bytes: &[u8], mode: u32| {
        let path = stage.join(name);
        fs::create_dir_all(path.parent().unwrap_or(stage))?;
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(release.unix_time.into());
        File::open(&path)?.set_modified(time)
    };
    let file = |name: &str, bytes: &[u8]| put(name, bytes, 0o644);
    let gz = |name: &str, bytes: &[u8]| file(name, &compress_gzip(bytes, Compression::best())?);
    for (name, bytes) in program.all_programs() {
        put(&format!("bin/{name}"), bytes, 0o755)?;
    }
    file("lib/libquorate.so", &program.library)?;
    for name in REPOSITORY_FILES {
        let from = workspace_root().join(name);
        // In the stage, the files of `packaging` are at the top.
        let to = Path::new(name.trim_start_matches("packaging").trim_start_matches('/'));
        if from.is_file() {
            let to = to.file_name().unwrap_or_default().to_string_lossy();
            file(&to, &fs::read(&from).map_err(Failed::at_path(&from))?)?;
            continue;
        }
        for entry in fs::read_dir(&from).map_err(Failed::at_path(&from))? {
            let path = entry?.path();
            let mode = if name.ends_with("scripts") { 0o755 } else { 0o644 };
            let is_page = path.extension().is_some_and(|kind| kind == "md");
            if path.is_file() && (is_page || !name.starts_with("docs")) {
                let to = to.join(path.file_name().unwrap_or_default());
                put(&to.to_string_lossy(), &fs::read(&path)?, mode)?;
            }
        }
    }
    for shell in ["bash", "zsh", "fish"] {
        file(shell, program.output_of(&["completions", shell])?.as_bytes())?;
    }
    let pages = tempfile::tempdir()?;
    program.output_of(&["man", "--to", &pages.path().display().to_string()])?;
    for page in fs::read_dir(pages.path())? {
        let page = page?;
        gz(&format!("man/{}.gz", page.file_name().to_string_lossy()), &fs::read(page.path())?)?;
    }
    gz("NOTICES.gz", &release.linked_crates.licence_notices())?;
    gz("changelog.gz", &fs::read(stage.join("CHANGELOG.md"))?)?;
    file("quorate.cdx.json", &release.linked_crates.cyclonedx_list(release))?;
    let pc = include_str!("../../../crates/operate/capi/quorate.pc.in");
    let pc = pc.replace("@PREFIX@/lib", lib).replace("@PREFIX@", "/usr");
    file("quorate.pc", pc.replace("@VERSION@", &release.version).as_bytes())?;
    // Changelog of the package, which nfpm converts to the format of each distribution.
    let log = json!([{
        "semver": format!("{}-1", release.version),
        "date": release.rfc3339_date(),
        "packager": "The Quorate authors <quorate@localhost>",
        "deb": {"urgency": "medium", "distributions": ["stable"]},
        "changes": [{"note": "Release; changelog.gz says what users notice"}],
    }]);
    file("changelog.yaml", log.to_string().as_bytes())?;
    Ok(())
}
