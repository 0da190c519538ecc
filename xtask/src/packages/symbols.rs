//! Debug information, split off the packaged programs and stored in a separate archive.

use std::path::Path;

use flate2::Compression;
use object::{Object as _, build::elf::Builder, elf::SHF_ALLOC, read::elf::ElfFile64};
use quorate_shell::Failed;

use crate::{
    archive::{compress_gzip, make_tar},
    program::PackagedProgram,
    release::ReleaseIdentity,
    tree::FileTree,
};

/// Prefix of sections that only debuggers and backtraces read.
const DEBUG_SECTION_PREFIX: &[u8] = b".debug_";

/// A program as linked, with its debug information.
pub(crate) struct DebugSymbols {
    /// Build ID of the program, in hexadecimal. The stripped program retains it.
    build_id: String,
    bytes: Vec<u8>,
}

impl DebugSymbols {
    /// Returns the path at which debuggers and the program's own backtraces expect the file.
    pub(crate) fn debug_path(&self) -> String {
        let (folder, file) = self.build_id.split_at(2);
        format!("usr/lib/debug/.build-id/{folder}/{file}.debug")
    }
}

/// Splits a program into the stripped program and its debug information. A program without a build
/// ID is not stripped, since its debug information could not be found.
pub(crate) fn split_symbols(
    path: &Path,
    bytes: Vec<u8>,
) -> Result<(Vec<u8>, Option<DebugSymbols>), Failed> {
    let file =
        ElfFile64::<object::Endianness>::parse(bytes.as_slice()).map_err(Failed::at_path(path))?;
    let build_id = file.build_id().map_err(Failed::at_path(path))?;
    let Some(build_id) = build_id.filter(|id| id.len() > 1) else {
        return Ok((bytes, None));
    };
    let build_id: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut builder = Builder::read(bytes.as_slice()).map_err(Failed::at_path(path))?;
    let mut found = false;
    for section in &mut builder.sections {
        let is_loaded = section.sh_flags & u64::from(SHF_ALLOC) != 0;
        if section.name.starts_with(DEBUG_SECTION_PREFIX) && !is_loaded {
            (section.delete, found) = (true, true);
        }
    }
    if !found {
        return Ok((bytes, None));
    }
    let mut program = Vec::new();
    builder.write(&mut program).map_err(Failed::at_path(path))?;
    Ok((program, Some(DebugSymbols { build_id, bytes })))
}

/// Builds the archive of all debug information. Returns its name and content, or `None` if the
/// programs have none.
pub(crate) fn make_archive(
    program: &PackagedProgram,
    release: &ReleaseIdentity,
    level: Compression,
) -> Result<Option<(String, Vec<u8>)>, Failed> {
    if program.debug_symbols.is_empty() {
        return Ok(None);
    }
    let mut tree = FileTree::default();
    for symbols in &program.debug_symbols {
        tree.add_file(&symbols.debug_path(), symbols.bytes.clone());
    }
    let name = format!("quorate-{}-{}.debug.tar.gz", release.version, program.machine.debian);
    Ok(Some((name, compress_gzip(&make_tar(&tree, "", release.unix_time)?, level)?)))
}

#[cfg(test)]
mod tests {
    use std::{env, fs, os::unix::fs::PermissionsExt as _, process::Command};

    use object::ObjectSection as _;

    use super::*;

    fn debug_sections(bytes: &[u8]) -> usize {
        let file = ElfFile64::<object::Endianness>::parse(bytes).unwrap();
        let sections = file.sections();
        let names = sections.filter_map(|section| Some(section.name_bytes().ok()?.to_vec()));
        names.filter(|name| name.starts_with(b".debug_info")).count()
    }

    /// A stripped program runs, and its debug information is found by its build ID. The test
    /// program has at least the debug information of the standard library.
    #[test]
    fn stripped_program_runs_and_build_id_finds_its_symbols() {
        let own = env::current_exe().unwrap();
        let bytes = fs::read(&own).unwrap();
        let file = ElfFile64::<object::Endianness>::parse(bytes.as_slice()).unwrap();
        if debug_sections(&bytes) == 0 || file.build_id().unwrap().is_none() {
            eprintln!("skipped: this test was linked without debug information or a build ID");
            return;
        }
        let (program, symbols) = split_symbols(&own, bytes.clone()).unwrap();
        let symbols = symbols.unwrap();
        assert_eq!(debug_sections(&program), 0);
        assert!(program.len() < bytes.len());
        assert_eq!(symbols.bytes, bytes);
        let without = ElfFile64::<object::Endianness>::parse(program.as_slice()).unwrap();
        assert_eq!(without.build_id().unwrap(), file.build_id().unwrap());
        let id = symbols.build_id.as_str();
        assert_eq!(
            symbols.debug_path(),
            format!("usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..])
        );
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::write(&path, &program).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let output = Command::new(&path).arg("--list").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        // A second split has nothing to remove.
        let (again, nothing) = split_symbols(&path, program.clone()).unwrap();
        assert!(again == program && nothing.is_none());
    }
}
