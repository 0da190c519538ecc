//! Tests our kernel programs on older Debian kernels, in a virtual machine without hardware
//! acceleration.
//!
//! Nothing is installed: kernels are unpacked from their packages, and the machine's only files are
//! busybox and our program with its libraries.

use std::{
    env, fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::shell::{
    Failed, build_folder, is_installed, read_output, release_path, report_skip, run_cargo,
};

/// Kernel versions with Debian's metapackage for virtual machines.
const KERNEL_PACKAGES: [(&str, &str); 2] =
    [("6.1", "linux-image-cloud-amd64"), ("6.12", "linux-image-6.12-cloud-amd64")];
const NEEDED_PROGRAMS: [(&str, &str); 4] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("dpkg-deb", "dpkg"),
    ("apt-get", "apt"),
];
/// Timeout. A machine without acceleration is about twenty times slower.
const TIMEOUT_SECONDS: &str = "900";
/// Line that the machine prints on success.
const SUCCESS_LINE: &str = "kernels: every program does what the reference does";

/// Script of the machine's first process.
const INIT_SCRIPT: &str = r#"#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /tmp /dev
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
echo
/bin/conformance kernel COUNT && echo "WELL"
/bin/busybox poweroff -f
"#;

/// Runs `count` random frames through each program on each kernel.
pub(crate) fn run(count: &str) -> Result<(), Failed> {
    count.parse::<u32>().map_err(|_| Failed(format!("{count} is no number")))?;
    let missing: Vec<&str> = NEEDED_PROGRAMS
        .iter()
        .filter(|(program, _)| !is_installed(program))
        .map(|(_, package)| *package)
        .collect();
    if !missing.is_empty() {
        let why = format!("apt-get install --no-install-recommends {}", missing.join(" "));
        return report_skip("offload kernels", &why);
    }
    run_cargo(&["build", "--release", "--quiet", "--bin", "conformance"])?;
    let folder = build_folder().join("offload/kernels");
    fs::create_dir_all(&folder)?;
    let files = build_initramfs(&folder, count)?;
    for (version, package) in KERNEL_PACKAGES {
        let kernel = match fetch_kernel(&folder, package) {
            Ok(kernel) => kernel,
            Err(why) => {
                report_skip(&format!("kernel {version}"), &why.to_string())?;
                continue;
            }
        };
        start(version, &kernel, &files)?;
    }
    Ok(())
}

/// Returns the kernel of the newest package, and fetches the package if necessary.
fn fetch_kernel(folder: &Path, package: &str) -> Result<PathBuf, Failed> {
    let said = read_output(Command::new("apt-cache").args(["depends", package]))?;
    let name = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .ok_or_else(|| Failed(format!("{package} is no package here")))?;
    let unpacked = folder.join(name);
    if let Some(kernel) = find_kernel_file(&unpacked)? {
        return Ok(kernel);
    }
    read_output(Command::new("apt-get").args(["download", name]).current_dir(folder))?;
    let prefix = format!("{name}_");
    let mut fetched = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let fetched = fetched.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(&prefix)
    });
    let fetched = fetched.ok_or_else(|| Failed(format!("{name} was not fetched")))?;
    read_output(Command::new("dpkg-deb").arg("--extract").args([&fetched, &unpacked]))?;
    fs::remove_file(fetched)?;
    // Modules are many files, and none of them is needed.
    for part in ["lib", "usr"] {
        match fs::remove_dir_all(unpacked.join(part)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    find_kernel_file(&unpacked)?.ok_or_else(|| Failed(format!("{name} has no kernel")))
}

fn find_kernel_file(unpacked: &Path) -> Result<Option<PathBuf>, Failed> {
    let Ok(boot) = fs::read_dir(unpacked.join("boot")) else {
        return Ok(None);
    };
    let mut paths = boot.flatten().map(|entry| entry.path());
    Ok(paths.find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz")
    }))
}

/// Builds the initial file system of the machine.
fn build_initramfs(folder: &Path, count: &str) -> Result<PathBuf, Failed> {
    let root = folder.join("machine");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let put = |from: &Path, to: &Path| -> Result<(), Failed> {
        let to = root.join(to.strip_prefix("/").unwrap_or(to));
        fs::create_dir_all(to.parent().unwrap_or(&root))?;
        fs::copy(from, &to)?;
        Ok(())
    };
    let program = release_path("conformance");
    put(&program, Path::new("/bin/conformance"))?;
    put(&find_program("busybox")?, Path::new("/bin/busybox"))?;
    for library in loaded_libraries(&program)? {
        put(&library, &library)?;
    }
    let init = root.join("init");
    fs::write(&init, INIT_SCRIPT.replace("COUNT", count).replace("WELL", SUCCESS_LINE))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    let archive = folder.join("machine.cpio");
    let pack = format!("busybox find . | busybox cpio -o -H newc > '{}'", archive.display());
    read_output(Command::new("sh").args(["-c", &pack]).current_dir(&root))?;
    Ok(archive)
}

fn find_program(program: &str) -> Result<PathBuf, Failed> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = env::split_paths(&path).map(|folder| folder.join(program));
    let found = places.find(|file| file.is_file());
    found.ok_or_else(|| Failed(format!("there is no {program}")))
}

/// Returns the libraries that a program loads, and the loader.
fn loaded_libraries(program: &Path) -> Result<Vec<PathBuf>, Failed> {
    let said = read_output(Command::new("ldd").arg(program))?;
    let words = said.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

fn start(version: &str, kernel: &Path, files: &Path) -> Result<(), Failed> {
    println!("== kernel {version}");
    let output = Command::new("timeout")
        .arg(TIMEOUT_SECONDS)
        .arg("qemu-system-x86_64")
        .args(["-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1024"])
        .args(["-nographic", "-no-reboot", "-nic", "none", "-monitor", "none"])
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(files)
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let ours = said.lines().map(str::trim_end).filter(|line| {
        let known = ["kernel", "host", "acceptor", "coordinator", "conformance"];
        known.iter().any(|word| line.starts_with(word))
    });
    ours.for_each(|line| println!("{line}"));
    if said.contains(SUCCESS_LINE) {
        return Ok(());
    }
    let tail: Vec<&str> = said.lines().rev().take(30).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    Err(Failed(format!("kernel {version}:\n{}", tail.join("\n"))))
}
