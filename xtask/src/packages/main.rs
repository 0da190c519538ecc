//! `package`: makes .deb and .rpm packages and a container image, without root or a daemon.
//! `cargo xtask package` calls it.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line")]

mod archive;
mod check;
mod containers;
mod first_hour;
mod image;
mod native;
mod parts;
mod program;
mod release;
mod symbols;
mod tree;

use std::{env, fs, path::PathBuf, process::ExitCode};

use flate2::Compression;
use program::PackagedProgram;
use quorate_shell::{Failed, workspace_root};
use release::ReleaseIdentity;
use sha2::{Digest as _, Sha256};

const USAGE: &str = "package [deb|rpm|oci|all] --binary PATH --to DIR [--check] [--fast]";

/// Kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Deb,
    Rpm,
    Oci,
}

/// Options of `package`.
struct PackageOptions {
    kinds: Vec<Kind>,
    binary: PathBuf,
    output_folder: PathBuf,
    /// Set to check the packages, and to make them a second time for comparison.
    checks_packages: bool,
    compression: Compression,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match parse_options(&words).and_then(|wanted| run(&wanted)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            println!("package: {why}");
            ExitCode::FAILURE
        }
    }
}

fn parse_options(words: &[String]) -> Result<PackageOptions, Failed> {
    let (mut kinds, mut binary, mut to) = (Vec::new(), None, None);
    let (mut check, mut level) = (false, Compression::best());
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "deb" => kinds.push(Kind::Deb),
            "rpm" => kinds.push(Kind::Rpm),
            "oci" => kinds.push(Kind::Oci),
            "all" => kinds.extend([Kind::Deb, Kind::Rpm, Kind::Oci]),
            "--binary" => binary = words.next().map(PathBuf::from),
            "--to" => to = words.next().map(PathBuf::from),
            "--check" => check = true,
            "--fast" => level = Compression::fast(),
            other => return Err(Failed(format!("{other} is unknown: {USAGE}"))),
        }
    }
    let missing = |flag: &str| Failed(format!("{flag} is missing: {USAGE}"));
    if kinds.is_empty() {
        kinds = vec![Kind::Deb, Kind::Rpm, Kind::Oci];
    }
    Ok(PackageOptions {
        kinds,
        binary: binary.ok_or_else(|| missing("--binary"))?,
        output_folder: to.ok_or_else(|| missing("--to"))?,
        checks_packages: check,
        compression: level,
    })
}

fn run(wanted: &PackageOptions) -> Result<(), Failed> {
    let program =
        PackagedProgram::read_binary(&wanted.binary)?.with_other_programs()?.split_symbols()?;
    let release = ReleaseIdentity::from_tree(&workspace_root(), &program.machine)?;
    fs::create_dir_all(&wanted.output_folder).map_err(Failed::at_path(&wanted.output_folder))?;
    let mut sums = String::new();
    let mut debian = None;
    let mut put = |name: &str, bytes: &[u8]| {
        let file = wanted.output_folder.join(name);
        fs::write(&file, bytes).map_err(Failed::at_path(&file))?;
        println!("{} ({} KiB)", file.display(), bytes.len() / 1024);
        sums += &format!("{:x}  {name}\n", Sha256::digest(bytes));
        Ok::<_, Failed>(file)
    };
    for kind in &wanted.kinds {
        let packages = make_packages(*kind, &program, &release, wanted.compression)?;
        let mut files = Vec::new();
        for (name, bytes) in &packages {
            files.push(put(name, bytes)?);
        }
        if wanted.checks_packages {
            check::check_packages(*kind, &files, &program, &release)?;
            if make_packages(*kind, &program, &release, wanted.compression)? != packages {
                let what = format!("{files:?} are not the same when they are made again");
                return Err(Failed(what));
            }
            println!("  the same bytes when it is made again");
        }
        if *kind == Kind::Deb {
            debian = files.into_iter().next();
        }
    }
    match symbols::make_archive(&program, &release, wanted.compression)? {
        Some((name, bytes)) => drop(put(&name, &bytes)?),
        None => println!("no debug information: the programs were built without"),
    }
    let list = format!("quorate-{}.cdx.json", release.version);
    put(&list, &release.linked_crates.cyclonedx_list(&release))?;
    let file = wanted.output_folder.join("SHA256SUMS");
    fs::write(&file, sums).map_err(Failed::at_path(&file))?;
    match debian {
        Some(package) if wanted.checks_packages => first_hour::follow_page(&package, &file),
        _ => Ok(()),
    }
}

/// Returns the file names and the content of the packages of a kind.
fn make_packages(
    kind: Kind,
    program: &PackagedProgram,
    release: &ReleaseIdentity,
    level: Compression,
) -> Result<Vec<(String, Vec<u8>)>, Failed> {
    match kind {
        Kind::Deb => native::make_packages(&native::DEBIAN, program, release, level),
        Kind::Rpm => native::make_packages(&native::RED_HAT, program, release, level),
        Kind::Oci => Ok(vec![image::make_image(program, release)?]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_or_unknown_arguments_are_errors() {
        let of = |line: &str| {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            parse_options(&words)
        };
        let kinds = |line: &str| of(line).map(|wanted| wanted.kinds).ok();
        let places = "--binary a --to b";
        assert_eq!(kinds(&format!("deb {places}")), Some(vec![Kind::Deb]));
        let all = Some(vec![Kind::Deb, Kind::Rpm, Kind::Oci]);
        assert_eq!(kinds(places), all);
        assert_eq!(kinds(&format!("all {places}")), all);
        for wrong in ["deb --to b", "deb --binary a", "snap --binary a --to b"] {
            assert_eq!(kinds(wrong), None, "{wrong}");
        }
    }
}
