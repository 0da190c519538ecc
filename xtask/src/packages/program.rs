//! The packaged binary: its machine, the libraries that it needs, and its output.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use object::{
    Endianness, elf,
    read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _},
};
use quorate_shell::{Failed, read_output};

use crate::symbols::{self, DebugSymbols};

/// Names of the other packaged programs, which are in the folder of the binary.
const OTHER_PROGRAMS: [&str; 2] = ["quorate-tools", "quorate-p4"];
const LIBRARY_FILE: &str = "libquorate_capi.so";
/// Libraries that the descriptions of packages name.
const KNOWN_LIBRARIES: [&str; 4] = ["libc.so.6", "libm.so.6", "ld-linux", "libgcc_s.so.1"];

/// The packaged binary and the programs that it starts.
pub(crate) struct PackagedProgram {
    pub(crate) path: PathBuf,
    pub(crate) bytes: Vec<u8>,
    /// The other programs, by name.
    pub(crate) other_programs: Vec<(&'static str, Vec<u8>)>,
    /// C library.
    pub(crate) library: Vec<u8>,
    /// Debug information of all programs, if it has been split off.
    pub(crate) debug_symbols: Vec<DebugSymbols>,
    pub(crate) machine: Machine,
    /// Path of the binary's dynamic loader.
    pub(crate) loader: String,
    /// Required library versions, such as `libc.so.6` and `GLIBC_2.34`.
    pub(crate) required_versions: Vec<(String, String)>,
}

/// A processor architecture, with its name in each kind of package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// Name in Debian packages and container images.
    pub(crate) debian: &'static str,
    /// Name in RPM packages.
    pub(crate) rpm: &'static str,
}

impl PackagedProgram {
    pub(crate) fn read_binary(path: &Path) -> Result<Self, Failed> {
        let bytes = fs::read(path).map_err(Failed::at_path(path))?;
        let file =
            ElfFile64::<Endianness>::parse(bytes.as_slice()).map_err(Failed::at_path(path))?;
        let (header, endian) = (file.elf_header(), file.endian());
        let machine = match header.e_machine(endian) {
            elf::EM_X86_64 => Machine { debian: "amd64", rpm: "x86_64" },
            elf::EM_AARCH64 => Machine { debian: "arm64", rpm: "aarch64" },
            other => {
                let what = format!("machine {other} is not one that packages are made for");
                return Err(Failed::at_path(path)(what));
            }
        };
        let interpreter = file.elf_program_headers().iter();
        let interpreter =
            interpreter.filter_map(|part| part.interpreter(endian, bytes.as_slice()).ok()?).next();
        let loader = interpreter
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .ok_or_else(|| Failed::at_path(path)("it is not linked dynamically"))?;
        let needs = required_versions(&file, &bytes).map_err(Failed::at_path(path))?;
        Ok(Self {
            path: path.to_owned(),
            other_programs: Vec::new(),
            library: Vec::new(),
            debug_symbols: Vec::new(),
            machine,
            loader,
            required_versions: needs,
            bytes,
        })
    }

    /// Adds the other programs and the C library from the same folder.
    pub(crate) fn with_other_programs(mut self) -> Result<Self, Failed> {
        for name in OTHER_PROGRAMS {
            let bytes = self.read_other(name)?;
            self.other_programs.push((name, bytes));
        }
        self.library = self.read_other(LIBRARY_FILE)?;
        let known = |library: &str| KNOWN_LIBRARIES.iter().any(|name| library.starts_with(name));
        match self.required_versions.iter().find(|(library, _)| !known(library)) {
            Some((library, _)) => Err(Failed(format!("packaging/nfpm does not name {library}"))),
            None => Ok(self),
        }
    }

    fn read_other(&mut self, name: &str) -> Result<Vec<u8>, Failed> {
        let path = self.path.with_file_name(name);
        let bytes = fs::read(&path).map_err(Failed::at_path(&path))?;
        let file =
            ElfFile64::<Endianness>::parse(bytes.as_slice()).map_err(Failed::at_path(&path))?;
        self.required_versions
            .extend(required_versions(&file, &bytes).map_err(Failed::at_path(&path))?);
        Ok(bytes)
    }

    /// Returns the programs with their names, the binary first.
    pub(crate) fn all_programs(&self) -> impl Iterator<Item = (&'static str, &Vec<u8>)> {
        let others = self.other_programs.iter().map(|(name, bytes)| (*name, bytes));
        std::iter::once(("quorate", &self.bytes)).chain(others)
    }

    /// Splits the debug information off all programs.
    pub(crate) fn split_symbols(mut self) -> Result<Self, Failed> {
        let path = self.path.clone();
        let others = self.other_programs.iter_mut().map(|(_, bytes)| bytes);
        for bytes in [&mut self.bytes, &mut self.library].into_iter().chain(others) {
            let (program, symbols) = symbols::split_symbols(&path, std::mem::take(bytes))?;
            *bytes = program;
            self.debug_symbols.extend(symbols);
        }
        Ok(self)
    }

    /// Returns the oldest version of the C library with all required symbols, such as `2.34`.
    pub(crate) fn libc_version(&self) -> String {
        let versions = self.required_versions.iter();
        let versions = versions.filter_map(|(_, version)| version.strip_prefix("GLIBC_"));
        let number = |version: &str| -> Vec<u32> {
            version.split('.').filter_map(|part| part.parse().ok()).collect()
        };
        let newest = versions.max_by_key(|version| number(version));
        newest.unwrap_or("2.17").to_owned()
    }

    /// Returns the paths at which this machine's loader finds the libraries.
    pub(crate) fn library_paths(&self) -> Result<Vec<PathBuf>, Failed> {
        let mut command = Command::new(&self.loader);
        let listed = read_output(command.arg("--list").arg(&self.path))?;
        let place = |line: &str| {
            let (_, place) = line.split_once(" => ")?;
            let (place, _) = place.rsplit_once(" (")?;
            Some(PathBuf::from(place))
        };
        Ok(listed.lines().filter_map(place).collect())
    }

    /// Runs the program with the arguments `words` and returns its output.
    pub(crate) fn output_of(&self, words: &[&str]) -> Result<String, Failed> {
        let mut command = Command::new(&self.path);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("QUORATE_") {
                command.env_remove(name);
            }
        }
        read_output(command.args(words))
    }
}

/// Returns the required libraries, each with every required version.
fn required_versions(file: &ElfFile64<'_>, bytes: &[u8]) -> object::Result<Vec<(String, String)>> {
    let (endian, sections) = (file.endian(), file.elf_section_table());
    let mut needs = Vec::new();
    let Some((mut libraries, strings)) = sections.gnu_verneed(endian, bytes)? else {
        return Ok(needs);
    };
    let strings = sections.strings(endian, bytes, strings)?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    while let Some((library, mut versions)) = libraries.next()? {
        let library = text(library.file(endian, strings)?);
        while let Some(version) = versions.next()? {
            needs.push((library.clone(), text(version.name(endian, strings)?)));
        }
    }
    Ok(needs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_libraries_of_a_binary_are_found() {
        let program = PackagedProgram::read_binary(&env::current_exe().unwrap()).unwrap();
        assert!(program.loader.contains("ld-linux"), "{}", program.loader);
        assert!(program.required_versions.iter().any(|(library, _)| library == "libc.so.6"));
        let libc: Vec<u32> =
            program.libc_version().split('.').map(|part| part.parse().unwrap()).collect();
        assert!(libc >= vec![2, 17], "{libc:?}");
        let places = program.library_paths().unwrap();
        assert!(places.iter().all(|place| place.is_file()), "{places:?}");
        assert!(places.iter().any(|place| place.ends_with("libc.so.6")), "{places:?}");
    }

    #[test]
    fn file_that_is_no_binary_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        assert!(PackagedProgram::read_binary(file.path()).is_err());
    }
}
