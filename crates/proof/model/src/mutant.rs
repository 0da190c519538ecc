//! Mutants: rules taken out of the core by small edits of its text, described in `mutants/*.toml`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use toml::{Table, Value};

/// A replacement of text.
#[derive(Clone, Debug)]
pub struct Edit {
    /// Relative to the folder of crates.
    pub file: String,
    /// Must occur exactly once.
    pub find: String,
    /// The replacement.
    pub replace: String,
}

/// A rule taken out.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// Name of its file.
    pub name: String,
    /// The defect.
    pub about: String,
    /// The rules that it breaks.
    pub rules: Vec<String>,
    /// The explorer's profile.
    pub profile: String,
    /// The properties that are watched; nothing else can catch it.
    pub properties: Vec<String>,
    /// A violation must be found; if not, `why`.
    pub caught: bool,
    /// Reason that it is not found.
    pub why: String,
    /// The budget.
    pub seconds: u64,
    /// The second act is played.
    pub heal: bool,
    /// A unit test of the core that catches it, where blind search does not, or not soon.
    pub unit: Option<String>,
    /// The same, a transcript.
    pub transcript: Option<String>,
    /// The edits.
    pub edits: Vec<Edit>,
}

/// Returns the folder of crates in the source tree.
pub fn crates() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.join("../..")
}

/// Returns all mutants, by name.
pub fn all() -> Result<Vec<Mutant>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutants");
    let list = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut paths: Vec<PathBuf> = list.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<Mutant, String> {
    let here = |e: String| format!("{}: {e}", path.display());
    let text = fs::read_to_string(path).map_err(|e| here(e.to_string()))?;
    let table: Table = text.parse().map_err(|e| here(format!("{e}")))?;
    let name =
        path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    parse(name, &table).map_err(|key| here(format!("{key} is missing, or not what it should be")))
}

fn parse(name: String, table: &Table) -> Result<Mutant, &'static str> {
    let text = |key: &'static str| text_of(table, key);
    let list = |key: &'static str| {
        let list = table.get(key).and_then(Value::as_array).ok_or(key)?;
        let text = |value: &Value| value.as_str().map(str::to_owned).ok_or(key);
        list.iter().map(text).collect::<Result<Vec<_>, _>>()
    };
    let edits = table.get("edit").and_then(Value::as_array).ok_or("edit")?;
    let edit = |value: &Value| {
        let table = value.as_table().ok_or("edit")?;
        Ok(Edit {
            file: text_of(table, "file")?,
            find: text_of(table, "find")?,
            replace: text_of(table, "replace")?,
        })
    };
    let seconds = table.get("seconds").and_then(Value::as_integer);
    Ok(Mutant {
        name,
        about: text("about")?,
        rules: list("rules")?,
        profile: text("profile")?,
        properties: list("properties")?,
        caught: match text("expect")?.as_str() {
            "violation" => true,
            "none" => false,
            _ => return Err("expect"),
        },
        why: text("why").unwrap_or_default(),
        seconds: seconds.and_then(|s| u64::try_from(s).ok()).ok_or("seconds")?,
        heal: table.get("heal").and_then(Value::as_bool).unwrap_or(false),
        unit: text("unit").ok(),
        transcript: text("transcript").ok(),
        edits: edits.iter().map(edit).collect::<Result<_, &'static str>>()?,
    })
}

fn text_of(table: &Table, key: &'static str) -> Result<String, &'static str> {
    let text = table.get(key).and_then(Value::as_str);
    text.map(str::to_owned).ok_or(key)
}

impl Mutant {
    /// Returns the files that it changes, relative to the folder of crates, and their new contents.
    pub fn changed(&self, crates: &Path) -> Result<Vec<(String, String)>, String> {
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
