//! Mutants: rules removed from the core by small text edits, described in `mutants/*.toml`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

/// Replacement of a text in one file.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Path of the file, relative to the folder of crates.
    pub file: String,
    /// Text to replace. It must occur exactly once in the file.
    pub find: String,
    pub replace: String,
}

/// A mutant: a rule removed from the core by edits.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Name of the mutant's file without its extension.
    pub name: String,
    /// Description of the defect that the edits introduce.
    pub description: String,
    /// Ids of the rules that the mutant breaks.
    pub rules: Vec<String>,
    /// Name of the profile with which the explorer searches.
    pub profile: String,
    /// Names of the properties to check. No other property may detect the mutant.
    pub properties: Vec<String>,
    /// The mutant must be found. If `false`, `uncaught_reason` has the reason.
    pub must_be_caught: bool,
    /// Reason for not finding the mutant.
    pub uncaught_reason: String,
    /// Time limit of the search in seconds.
    pub time_limit_seconds: u64,
    /// Runs include the second act.
    pub with_second_act: bool,
    /// Unit test of the core that detects the mutant. Used if random search does not detect it, or
    /// takes too long.
    pub unit_test: Option<String>,
    /// Transcript that detects the mutant. Used if random search does not detect it, or takes too
    /// long.
    pub transcript: Option<String>,
    pub edits: Vec<Edit>,
}

/// Returns the folder of crates in the source tree.
pub fn crates_folder() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..")
}

/// Returns all mutants, sorted by name.
pub fn read_all() -> Result<Vec<Mutant>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let list = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| read_mutant(path)).collect()
}

fn read_mutant(path: &Path) -> Result<Mutant, String> {
    let here = |e: String| format!("{}: {e}", path.display());
    let text = fs::read_to_string(path).map_err(|e| here(e.to_string()))?;
    let table: Table = text.parse().map_err(|e| here(format!("{e}")))?;
    let name =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    parse_table(name, &table)
        .map_err(|key| here(format!("{key} is missing, or not what it should be")))
}

fn parse_table(name: String, table: &Table) -> Result<Mutant, &'static str> {
    let text = |key: &'static str| string_at(table, key);
    let list = |key: &'static str| {
        let list = table.get(key).and_then(Value::as_array).ok_or(key)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(key);
        list.iter().map(text).collect::<Result<Vec<_>, _>>()
    };
    let edits = table.get("edit").and_then(Value::as_array).ok_or("edit")?;
    let edit = |value: &Value| {
        let table = value.as_table().ok_or("edit")?;
        Ok(Edit {
            file: string_at(table, "file")?,
            find: string_at(table, "find")?,
            replace: string_at(table, "replace")?,
        })
    };
    let seconds = table.get("seconds").and_then(Value::as_integer);
    Ok(Mutant {
        name,
        description: text("about")?,
        rules: list("rules")?,
        profile: text("profile")?,
        properties: list("properties")?,
        must_be_caught: match text("expect")?.as_str() {
            "violation" => true,
            "none" => false,
            _ => return Err("expect"),
        },
        uncaught_reason: text("why").unwrap_or_default(),
        time_limit_seconds: seconds.and_then(|s| u64::try_from(s).ok()).ok_or("seconds")?,
        with_second_act: table.get("heal").and_then(Value::as_bool).unwrap_or(false),
        unit_test: text("unit").ok(),
        transcript: text("transcript").ok(),
        edits: edits.iter().map(edit).collect::<Result<_, &'static str>>()?,
    })
}

fn string_at(table: &Table, key: &'static str) -> Result<String, &'static str> {
    let text = table.get(key).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(key)
}

impl Mutant {
    /// Returns the files that the mutant changes: their paths relative to the folder of crates, and
    /// their new contents.
    pub fn changed_files(&self, crates: &Path) -> Result<Vec<(String, String)>, String> {
        let mut files: Vec<(String, String)> = Vec::new();
        for edit in &self.edits {
            let known = files.iter_mut().find(|(file, _)| *file == edit.file);
            let text = match known {
                Some((_, text)) => text,
                None => {
                    let path = crates.join(&edit.file);
                    let text = fs::read_to_string(&path);
                    let text = text.map_err(|e| format!("{}: {e}", path.display()))?;
                    files.push((edit.file.clone(), text));
                    let last = files.last_mut().map(|(_, text)| text);
                    last.ok_or_else(|| "no files".to_owned())?
                }
            };
            let count = text.matches(&edit.find).count();
            if count != 1 {
                return Err(format!(
                    "{}: occurs {count} times in {}: {}",
                    self.name, edit.file, edit.find
                ));
            }
            *text = text.replace(&edit.find, &edit.replace);
        }
        Ok(files)
    }
}
