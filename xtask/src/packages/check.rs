//! Checks packages with independent tools where these are installed: Debian's and Red Hat's own
//! tools, skopeo, and a root folder in which the binary runs. Skipped checks are printed.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Command, Stdio},
};

use flate2::read::GzDecoder;
use quorate_shell::{Failed, has, read, skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    Kind,
    image::{USER, digest},
    program::Program,
    release::Release,
};

/// Some of the files that every package installs.
const INSTALLED: [&str; 11] = [
    "/etc/quorate/quorate.toml",
    "/usr/bin/quorate",
    "/usr/bin/quorate-p4",
    "/usr/bin/quorate-tools",
    "/usr/lib/systemd/system/quorate.service",
    "/usr/lib/sysusers.d/quorate.conf",
    "/usr/share/bash-completion/completions/quorate",
    "/usr/share/doc/quorate/NOTICES.gz",
    "/usr/share/doc/quorate/quorate.cdx.json",
    "/usr/share/man/man1/quorate-start.1.gz",
    "/usr/share/man/man1/quorate.1.gz",
];

pub(crate) fn check(
    kind: Kind,
    file: &Path,
    program: &Program,
    release: &Release,
) -> Result<(), Failed> {
    match kind {
        Kind::Deb => deb(file, program, release),
        Kind::Rpm => rpm(file, release),
        Kind::Oci => oci(file, release),
    }
}

fn deb(file: &Path, program: &Program, release: &Release) -> Result<(), Failed> {
    if !has("dpkg-deb") {
        return skip("the .deb is not read back", "there is no dpkg-deb");
    }
    let field = |name: &str| {
        let mut command = Command::new("dpkg-deb");
        let text = read(command.arg("--field").arg(file).arg(name))?;
        Ok::<_, Failed>(text.trim().to_owned())
    };
    demand("Version", &field("Version")?, &format!("{}-1", release.version))?;
    demand("Architecture", &field("Architecture")?, program.machine.debian)?;
    let depends = field("Depends")?;
    let libc = format!("libc6 (>= {})", program.libc());
    if !depends.contains(&libc) {
        return Err(Failed(format!("Depends lacks {libc}: {depends}")));
    }
    let folder = tempfile::tempdir()?;
    let mut command = Command::new("dpkg-deb");
    read(command.arg("--raw-extract").arg(file).arg(folder.path()))?;
    let configs = fs::read_to_string(folder.path().join("DEBIAN/conffiles"))?;
    demand("conffiles", &configs, "/etc/quorate/quorate.toml\n")?;
    all_there(|path| folder.path().join(path.trim_start_matches('/')).is_file())?;
    let binary = folder.path().join("usr/bin/quorate");
    demand_version(&read(Command::new(&binary).arg("--version"))?, release)?;
    println!("  dpkg-deb unpacks it, and its binary runs");
    if !has("dpkg") {
        return skip("the .deb is not installed", "there is no dpkg");
    }
    install(file, "deb", release)
}

/// Installs a package with all its scripts in an overlay of this machine, and removes it. The
/// machine itself is not changed.
fn install(file: &Path, kind: &str, release: &Release) -> Result<(), Failed> {
    if !rustix::process::geteuid().is_root() {
        return skip(&format!("the .{kind} is not installed"), "that takes root");
    }
    let folder = tempfile::tempdir()?;
    let file = file.canonicalize()?;
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", include_str!("overlay.sh"), "sh"])
        .args([folder.path(), &file, Path::new(kind)])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if !text.lines().any(|line| line == "mounted") {
        return skip(&format!("the .{kind} is not installed"), complaint.trim());
    }
    let version =
        text.lines().find(|line| line.starts_with(&format!("quorate {}", release.version)));
    if !output.status.success() {
        return Err(Failed(format!("installed, removed: {}\n{text}{complaint}", output.status)));
    }
    demand_version(version.unwrap_or_default(), release)?;
    let verified = text.contains("verified by systemd-analyze");
    let unit = if verified { ", systemd-analyze takes its unit" } else { "" };
    println!(
        "  installed with its scripts on an overlay of this machine{unit}, and removed: data stay"
    );
    if !verified {
        skip("the unit is not verified", "there is no systemd-analyze")?;
    }
    Ok(())
}

fn rpm(file: &Path, release: &Release) -> Result<(), Failed> {
    let package = rpm::Package::open(file).map_err(Failed::at(file))?;
    package.verify_digests().map_err(Failed::at(file))?;
    let paths = package.metadata.get_file_paths().map_err(Failed::at(file))?;
    let paths: BTreeSet<String> = paths.iter().map(|path| path.display().to_string()).collect();
    all_there(|path| paths.contains(path))?;
    println!("  {} files, and every digest is right", paths.len());
    if !has("rpm") {
        return skip("the .rpm is not read by rpm", "there is no rpm");
    }
    // Use a separate database, independent of the packages installed here.
    let folder = tempfile::tempdir()?;
    let ask = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--dbpath").arg(folder.path()).args(words).arg(file);
        read(&mut command)
    };
    demand(
        "version",
        &ask(&["-qp", "--queryformat", "%{VERSION}-%{RELEASE}"])?,
        &format!("{}-1", release.version),
    )?;
    let listed = ask(&["-qpl"])?;
    let listed: BTreeSet<&str> = listed.lines().collect();
    all_there(|path| listed.contains(path))?;
    demand("configuration", &ask(&["-qpc"])?, "/etc/quorate/quorate.toml\n")?;
    let requires = ask(&["-qpR"])?;
    if !requires.contains("libc.so.6(GLIBC_") {
        return Err(Failed(format!("it requires no version of the C library: {requires}")));
    }
    // Check the digests with rpm; the package is unsigned.
    ask(&["-K", "--nosignature"])?;
    println!("  rpm reads it");
    install(file, "rpm", release)
}

fn oci(file: &Path, release: &Release) -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    tar::Archive::new(fs::File::open(file)?).unpack(folder.path())?;
    let blob = |descriptor: &Value| {
        let digest_given = descriptor["digest"].as_str().unwrap_or_default();
        let name = digest_given.strip_prefix("sha256:").unwrap_or_default();
        let bytes = fs::read(folder.path().join("blobs/sha256").join(name))?;
        demand("digest", &digest(&bytes), name)?;
        demand("size", &bytes.len().to_string(), &descriptor["size"].to_string())?;
        Ok::<_, Failed>(bytes)
    };
    let json = |bytes: &[u8]| {
        serde_json::from_slice::<Value>(bytes)
            .map_err(|error| Failed(format!("the image: {error}")))
    };
    let index = json(&fs::read(folder.path().join("index.json"))?)?;
    let manifest = json(&blob(&index["manifests"][0])?)?;
    let config = json(&blob(&manifest["config"])?)?;
    let label = &config["config"]["Labels"]["org.opencontainers.image.version"];
    demand("version", label.as_str().unwrap_or_default(), &release.version)?;
    let inside = tempfile::tempdir()?;
    // Preserve the owners of the files in the layers, if permitted.
    let is_root = rustix::process::geteuid().is_root();
    for (at, layer) in manifest["layers"].as_array().into_iter().flatten().enumerate() {
        let mut bytes = Vec::new();
        GzDecoder::new(blob(layer)?.as_slice()).read_to_end(&mut bytes)?;
        let expected = config["rootfs"]["diff_ids"][at].as_str().unwrap_or_default();
        demand("digest of a layer", &format!("sha256:{}", digest(&bytes)), expected)?;
        let mut layer = tar::Archive::new(bytes.as_slice());
        layer.set_preserve_ownerships(is_root);
        layer.unpack(inside.path())?;
    }
    println!("  every digest is right");
    runs_alone(inside.path(), release)?;
    if !has("skopeo") {
        return skip("the image is not read by skopeo", "there is no skopeo");
    }
    // Unpack, check and repack the image, as for a push to a registry.
    let copied = folder.path().join("copied.tar");
    let mut command = Command::new("skopeo");
    command.args(["--insecure-policy", "copy", "--quiet"]);
    command.arg(format!("oci-archive:{}", file.display()));
    read(command.arg(format!("docker-archive:{}:quorate:check", copied.display())))?;
    println!("  skopeo makes an image for older versions of Docker of it");
    Ok(())
}

/// Checks that the binary runs with only the image's files. As root, also runs a node as the
/// image's user.
fn runs_alone(root: &Path, release: &Release) -> Result<(), Failed> {
    let is_root = rustix::process::geteuid().is_root();
    let enter = |words: &[&str]| {
        let mut command = match is_root {
            true => Command::new("chroot"),
            false => Command::new("unshare"),
        };
        if !is_root {
            command.args(["--map-root-user", "chroot"]);
        }
        command.args(words).arg(root).arg("/usr/bin/quorate");
        command
    };
    if !is_root && read(Command::new("unshare").args(["--map-root-user", "true"])).is_err() {
        return skip("the image is not run", "that takes root, or a user namespace");
    }
    demand_version(&read(enter(&[]).arg("--version"))?, release)?;
    println!("  its binary runs with nothing but the image's files");
    if !is_root {
        return skip("no node is run from the image", "that takes root");
    }
    // Container engines provide this file.
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    let user = format!("--userspec={USER}:{USER}");
    let mut node = enter(&[&user])
        .args(["start", "--data", "/data/node", "--stream", "127.0.0.1:0"])
        .args(["--client", "localhost:0", "--peer", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = node.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    // The node may have exited already, which its status shows.
    let _ = kill_process(Pid::from_child(&node), Signal::TERM);
    let output = node.wait_with_output()?;
    if !line.starts_with("ready node=1 ") || !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(Failed(format!(
            "a node of the image says {line:?}, and ends with {}: {complaint}",
            output.status
        )));
    }
    println!("  a node of it starts and stops as the image's user");
    Ok(())
}

fn all_there(is_there: impl Fn(&str) -> bool) -> Result<(), Failed> {
    match INSTALLED.iter().find(|path| !is_there(path)) {
        Some(path) => Err(Failed(format!("{path} is not in it"))),
        None => Ok(()),
    }
}

fn demand(what: &str, found: &str, expected: &str) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(Failed(format!("{what} is {found:?}, and should be {expected:?}"))),
    }
}

fn demand_version(said: &str, release: &Release) -> Result<(), Failed> {
    match said.starts_with(&format!("quorate {}", release.version)) {
        true => Ok(()),
        false => {
            Err(Failed(format!("its binary says that it is {said:?}, and not {}", release.version)))
        }
    }
}
