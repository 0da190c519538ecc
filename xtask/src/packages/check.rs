//! Checks packages with independent tools where these are installed: Debian's and Red Hat's own
//! tools, skopeo, and a root folder in which the binary runs. Skipped checks are printed.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use quorate_shell::{Failed, is_installed, read_output, report_skip, workspace_root};
use serde_json::Value;

use crate::{Kind, containers, program::PackagedProgram, release::ReleaseIdentity};

/// Some of the files that every package installs.
const INSTALLED_FILES: [&str; 14] = [
    "/etc/quorate/quorate.toml",
    "/usr/bin/quorate",
    "/usr/bin/quorate-p4",
    "/usr/bin/quorate-tools",
    "/usr/lib/systemd/system/quorate.service",
    "/usr/lib/sysusers.d/quorate.conf",
    "/usr/share/bash-completion/completions/quorate",
    "/usr/share/doc/quorate/NOTICES.gz",
    "/usr/share/doc/quorate/docs/operate/first-hour.md",
    "/usr/share/doc/quorate/examples/grafana.json",
    "/usr/share/doc/quorate/examples/prometheus-rules.yaml",
    "/usr/share/doc/quorate/quorate.cdx.json",
    "/usr/share/man/man1/quorate-start.1.gz",
    "/usr/share/man/man1/quorate.1.gz",
];

/// Tags of lintian to ignore, which do not apply: the packages are not in Debian's archive, and the
/// maintainers have no address.
const IGNORED_LINTIAN_TAGS: [&str; 4] = [
    "bogus-mail-host",
    "bogus-mail-host-in-debian-changelog",
    "initial-upload-closes-no-bugs",
    // For builds of Debian packages that depend on the library.
    "no-shlibs",
];

pub(crate) fn check_packages(
    kind: Kind,
    files: &[PathBuf],
    program: &PackagedProgram,
    release: &ReleaseIdentity,
) -> Result<(), Failed> {
    match kind {
        Kind::Deb => check_deb(files, program, release),
        Kind::Rpm => check_rpm(files, release),
        Kind::Oci => check_image(&files[0], program, release),
    }
}

fn check_deb(
    files: &[PathBuf],
    program: &PackagedProgram,
    release: &ReleaseIdentity,
) -> Result<(), Failed> {
    if !is_installed("dpkg-deb") {
        return report_skip("the .deb is not read back", "there is no dpkg-deb");
    }
    let file = &files[0];
    let field = |name: &str| {
        let mut command = Command::new("dpkg-deb");
        let text = read_output(command.arg("--field").arg(file).arg(name))?;
        Ok::<_, Failed>(text.trim().to_owned())
    };
    expect_equal("Version", &field("Version")?, &format!("{}-1", release.package_version()))?;
    expect_equal("Architecture", &field("Architecture")?, program.machine.debian)?;
    let depends = field("Depends")?;
    let libc = format!("libc6 (>= {})", program.libc_version());
    if !depends.contains(&libc) {
        return Err(Failed(format!("Depends lacks {libc}: {depends}")));
    }
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("dpkg-deb");
    read_output(command.arg("--raw-extract").arg(file).arg(folder.path()))?;
    let configs = fs::read_to_string(folder.path().join("DEBIAN/conffiles"))?;
    expect_equal("conffiles", &configs, "/etc/quorate/quorate.toml\n")?;
    check_complete(|path| folder.path().join(path.trim_start_matches('/')).is_file())?;
    let binary = folder.path().join("usr/bin/quorate");
    expect_version(&read_output(Command::new(&binary).arg("--version"))?, release)?;
    println!("  dpkg-deb unpacks it, and its binary runs");
    if !is_installed("dpkg") {
        return report_skip("the .deb is not installed", "there is no dpkg");
    }
    lint_deb(files)?;
    try_install(files, "deb", release)
}

/// Checks Debian packages against Debian's policy.
fn lint_deb(files: &[PathBuf]) -> Result<(), Failed> {
    if !is_installed("lintian") {
        return report_skip(
            "the .deb is not checked against Debian's policy",
            "there is no lintian",
        );
    }
    let mut command = Command::new("lintian");
    command.args([
        "--allow-root",
        "--fail-on",
        "error,warning",
        "--suppress-tags",
        &IGNORED_LINTIAN_TAGS.join(","),
    ]);
    read_output(command.args(files))?;
    println!("  lintian has no objection");
    Ok(())
}

/// Installs packages with all scripts in an overlay of this machine, and removes them. The machine
/// itself is not changed.
fn try_install(files: &[PathBuf], kind: &str, release: &ReleaseIdentity) -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        return report_skip(&format!("the .{kind} is not installed"), "that takes root");
    }
    let folder = tempfile::tempdir()?;
    let example = workspace_root().join("crates/operate/capi/examples/first.c");
    let output = Command::new("unshare")
        .args(["--mount", "--net", "sh", "-c", include_str!("overlay.sh"), "sh"])
        .args([folder.path(), Path::new(kind), &example])
        .args(files)
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !text.lines().any(|line| line == "mounted") {
        return report_skip(&format!("the .{kind} is not installed"), complaint.trim());
    }
    let version =
        text.lines().find(|line| line.starts_with(&format!("quorate {}", release.version)));
    if !output.status.success() {
        return Err(Failed(format!("installed, removed: {}\n{text}{complaint}", output.status)));
    }
    expect_version(version.unwrap_or_default(), release)?;
    let verified = text.contains("verified by systemd-analyze");
    let unit = if verified { ", systemd-analyze takes its unit" } else { "" };
    println!(
        "  installed with its scripts on an overlay of this machine{unit}, and removed: data stay"
    );
    if !verified {
        report_skip("the unit is not verified", "there is no systemd-analyze")?;
    }
    match text.contains("compiled") {
        true => println!("  a C program is compiled with the packaged library, and runs"),
        false => report_skip("no C program is compiled", "there is no cc, or no pkg-config")?,
    }
    Ok(())
}

fn check_rpm(files: &[PathBuf], release: &ReleaseIdentity) -> Result<(), Failed> {
    if !is_installed("rpm") {
        return report_skip("the .rpm is not read by rpm", "there is no rpm");
    }
    // Use a separate database, independent of the packages installed here.
    let (folder, file) = (tempfile::tempdir()?, &files[0]);
    let ask = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--dbpath").arg(folder.path()).args(words).arg(file);
        read_output(&mut command)
    };
    expect_equal(
        "version",
        &ask(&["-qp", "--queryformat", "%{VERSION}-%{RELEASE}"])?,
        &format!("{}-1", release.package_version()),
    )?;
    let listed = ask(&["-qpl"])?;
    let listed: BTreeSet<&str> = listed.lines().collect();
    check_complete(|path| listed.contains(path))?;
    expect_equal("configuration", &ask(&["-qpc"])?, "/etc/quorate/quorate.toml\n")?;
    let requires = ask(&["-qpR"])?;
    if !requires.contains("libc.so.6(GLIBC_") {
        return Err(Failed(format!("it requires no version of the C library: {requires}")));
    }
    // Check the digests with rpm; the package is unsigned.
    ask(&["-K", "--nosignature"])?;
    println!("  rpm reads it");
    try_install(files, "rpm", release)
}

fn check_image(
    file: &Path,
    program: &PackagedProgram,
    release: &ReleaseIdentity,
) -> Result<(), Failed> {
    if !is_installed("skopeo") {
        return report_skip("the image is not read back", "there is no skopeo");
    }
    let folder = tempfile::tempdir()?;
    let archive = format!("oci-archive:{}", file.display());
    let config = read_output(Command::new("skopeo").args(["inspect", "--config", &archive]))?;
    let config: Value = serde_json::from_str(&config).map_err(Failed::at_path(file))?;
    let label = &config["config"]["Labels"]["org.opencontainers.image.version"];
    expect_equal("version", label.as_str().unwrap_or_default(), &release.version)?;
    let (layout, inside) = (folder.path().join("layout"), folder.path().join("inside"));
    tar::Archive::new(fs::File::open(file)?).unpack(&layout)?;
    let mut unpack = Command::new("umoci");
    unpack.args(["raw", "unpack", "--image"]);
    unpack.arg(format!("{}:{}", layout.display(), release.version));
    if !rustix::process::geteuid().is_root() {
        unpack.arg("--rootless");
    }
    read_output(unpack.arg(&inside))?;
    println!("  every digest is right");
    check_runs_alone(&inside, &config, program, release)?;
    // Unpack, check and repack the image, as for a push to a registry.
    let copied = folder.path().join("copied.tar");
    let mut command = Command::new("skopeo");
    command.args(["--insecure-policy", "copy", "--quiet"]);
    command.arg(archive);
    read_output(command.arg(format!("docker-archive:{}:quorate:check", copied.display())))?;
    println!("  skopeo makes an image for older versions of Docker of it");
    Ok(())
}

/// Checks that the binary runs with only the image's files. As root, also runs containers.
fn check_runs_alone(
    image: &Path,
    config: &Value,
    program: &PackagedProgram,
    release: &ReleaseIdentity,
) -> Result<(), Failed> {
    let is_root = rustix::process::geteuid().is_root();
    let enter = || {
        let mut command = match is_root {
            true => Command::new("chroot"),
            false => Command::new("unshare"),
        };
        if !is_root {
            command.args(["--map-root-user", "chroot"]);
        }
        command.arg(image).arg("/usr/bin/quorate");
        command
    };
    if !is_root && read_output(Command::new("unshare").args(["--map-root-user", "true"])).is_err() {
        return report_skip("the image is not run", "that takes root, or a user namespace");
    }
    expect_version(&read_output(enter().arg("--version"))?, release)?;
    println!("  its binary runs with nothing but the image's files");
    match is_root {
        true => containers::check_containers(image, config, program),
        false => report_skip("no container is run", "that takes root"),
    }
}

fn check_complete(is_there: impl Fn(&str) -> bool) -> Result<(), Failed> {
    match INSTALLED_FILES.iter().find(|path| !is_there(path)) {
        Some(path) => Err(Failed(format!("{path} is not in it"))),
        None => Ok(()),
    }
}

fn expect_equal(what: &str, found: &str, expected: &str) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(Failed(format!("{what} is {found:?}, and should be {expected:?}"))),
    }
}

fn expect_version(said: &str, release: &ReleaseIdentity) -> Result<(), Failed> {
    match said.starts_with(&format!("quorate {}", release.version)) {
        true => Ok(()),
        false => {
            Err(Failed(format!("its binary says that it is {said:?}, and not {}", release.version)))
        }
    }
}
