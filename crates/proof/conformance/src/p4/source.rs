//! Source files of a program, and positions in them.

use std::{collections::BTreeMap, fmt, sync::Arc};

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub file: Arc<str>,
    /// Line number, starting at 1.
    pub line: u32,
    /// Column in characters, starting at 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Error in the source of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub place: Place,
    pub message: String,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for Error {}

/// Source texts, by the name used in `#include "…"`.
#[derive(Clone, Debug, Default)]
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// Adds or replaces a text.
    pub fn set_text(&mut self, name: &str, text: String) {
        self.0.insert(name.to_owned(), text);
    }

    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }
}
