//! Checks the rules of the specification: each rule is cited by the code or listed as a divergence,
//! and each cited id exists.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use crate::shell::{Failed, workspace_root};

/// Pages with rules. Other pages of that folder also begin list items with ids.
const RULE_PAGES: [&str; 11] = [
    "docs/spec/protocol.md",
    "docs/spec/ring.md",
    "docs/spec/offload.md",
    "docs/spec/levels.md",
    "docs/spec/classes.md",
    "docs/spec/scrub.md",
    "docs/spec/witness.md",
    "docs/spec/kv.md",
    "docs/spec/stream-store.md",
    "docs/spec/differing.md",
    "docs/spec/io.md",
];
const DIVERGENCES_PAGE: &str = "docs/spec/divergences.md";
/// Heading of the second table of divergences. The first table lists rules that the code follows
/// differently, or in part.
const NOT_BUILT_HEADING: &str = "## Not built yet";
/// Page that states the number of rules.
const NUMBERS_PAGE: &str = "docs/spec/model.md";

/// Runs `cargo xtask spec`.
pub(crate) fn run() -> Result<(), Failed> {
    let book = RuleBook::read_all(&workspace_root())?;
    book.print_report();
    let faults = book.list_faults();
    faults.iter().for_each(|fault| println!("{fault}"));
    if faults.is_empty() { Ok(()) } else { Err(Failed(format!("{} faults", faults.len()))) }
}

/// Returns the ids of all rules.
pub(crate) fn read_rules() -> Result<BTreeSet<String>, Failed> {
    let mut book = RuleBook::default();
    for page in RULE_PAGES {
        book.add_file(page, &fs::read_to_string(workspace_root().join(page))?);
    }
    Ok(book.rules)
}

/// Kind of place where an id is cited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CitationKind {
    Code,
    Test,
    /// A mutant that disables the rule and must be found.
    Mutant,
    Page,
}

#[derive(Debug, PartialEq, Eq)]
struct Citation {
    id: String,
    kind: CitationKind,
    line: usize,
}

/// The rules and everything that cites them.
#[derive(Default)]
struct RuleBook {
    rules: BTreeSet<String>,
    /// Citations, each with its file.
    citations: Vec<(String, Citation)>,
    /// Ids in the first table of divergences; `era-*` stands for all ids with that prefix.
    built_differently: BTreeSet<String>,
    not_built: BTreeSet<String>,
    numbers_page: String,
    faults: Vec<String>,
}

impl RuleBook {
    fn read_all(root: &Path) -> Result<Self, Failed> {
        let mut files = Vec::new();
        for folder in ["crates", "docs", "fuzz"] {
            collect_files(&root.join(folder), &mut files)?;
        }
        let pages = fs::read_dir(root)?.map(|entry| entry.map(|entry| entry.path()));
        files.extend(pages.collect::<Result<Vec<_>, _>>()?);
        let mut book = Self::default();
        for file in files.iter().filter(|file| kind(file).is_some()) {
            let name = file.strip_prefix(root).unwrap_or(file);
            book.add_file(&name.to_string_lossy(), &fs::read_to_string(file)?);
        }
        Ok(book)
    }

    fn add_file(&mut self, name: &str, text: &str) {
        if RULE_PAGES.contains(&name) {
            for id in text.lines().filter_map(defined_rule) {
                if !self.rules.insert(id.clone()) {
                    self.faults.push(format!("{name}: [{id}] is a rule twice"));
                }
            }
        }
        if name == DIVERGENCES_PAGE {
            let (first, second) = text.split_once(NOT_BUILT_HEADING).unwrap_or((text, ""));
            self.built_differently = table_ids(first);
            self.not_built = table_ids(second);
        }
        if name == NUMBERS_PAGE {
            text.clone_into(&mut self.numbers_page);
        }
        let cited = find_citations(name, text).into_iter();
        self.citations.extend(cited.map(|citation| (name.to_owned(), citation)));
    }

    fn is_cited(&self, rule: &str, place: CitationKind) -> bool {
        let is = |(_, citation): &(String, Citation)| citation.id == rule && citation.kind == place;
        self.citations.iter().any(is)
    }

    fn is_not_built(&self, rule: &str) -> bool {
        covers_any(&self.not_built, rule)
    }

    fn built_rules(&self) -> impl Iterator<Item = &str> {
        let rules = self.rules.iter().map(String::as_str);
        rules.filter(|rule| !self.is_not_built(rule))
    }

    fn numbers_sentence(&self) -> String {
        let built = self.built_rules().count();
        let taken_out = self.built_rules().filter(|rule| self.is_cited(rule, CitationKind::Mutant));
        format_numbers(self.rules.len(), built, taken_out.count())
    }

    fn print_report(&self) {
        let list = |what: &str, rules: Vec<&str>| {
            println!("{what} ({}): {}", rules.len(), rules.join(" "));
        };
        let tested = |rule: &&str| {
            self.is_cited(rule, CitationKind::Test) || self.is_cited(rule, CitationKind::Mutant)
        };
        list("built, without a test", self.built_rules().filter(|rule| !tested(rule)).collect());
        let taken_out = |rule: &&str| self.is_cited(rule, CitationKind::Mutant);
        list(
            "built, without a mutant",
            self.built_rules().filter(|rule| !taken_out(rule)).collect(),
        );
        println!("{}", self.numbers_sentence());
    }

    fn list_faults(&self) -> Vec<String> {
        let mut faults = self.faults.clone();
        for (file, Citation { id, line, kind: place }) in &self.citations {
            let known = match id.strip_suffix("-*") {
                Some(_) => self.rules.iter().any(|rule| covers_rule(id, rule)),
                None => self.rules.contains(id),
            };
            if !known {
                let pages = RULE_PAGES.join(", ");
                faults.push(format!("{file}:{line}: [{id}] is no rule of {pages}"));
            }
            if *place == CitationKind::Code && self.is_not_built(id) {
                faults.push(format!(
                    "{file}:{line}: cites [{id}], which {DIVERGENCES_PAGE} names as not built yet: take it out \
                     there, or say in the first table what is built"
                ));
            }
        }
        for rule in &self.rules {
            let differs = covers_any(&self.built_differently, rule);
            if !self.is_cited(rule, CitationKind::Code) && !differs && !self.is_not_built(rule) {
                faults.push(format!(
                    "[{rule}]: no code cites it, and {DIVERGENCES_PAGE} does not name it: cite it where it is \
                     followed, or say there what is so instead, and why that is safe"
                ));
            }
            if differs && self.is_not_built(rule) {
                faults.push(format!("{DIVERGENCES_PAGE}: [{rule}] is in both tables"));
            }
        }
        let numbers = self.numbers_sentence();
        if !self.numbers_page.contains(&numbers) {
            faults.push(format!("{NUMBERS_PAGE} does not say: {numbers}"));
        }
        faults
    }
}

fn format_numbers(rules: usize, built: usize, taken_out: usize) -> String {
    format!(
        "Of {rules} rules {built} are built, wholly or in part; mutants take out {taken_out} of those."
    )
}

/// Returns the kind of a file by its extension; `None` for files that are not searched. Test data
/// is text, a mutant is TOML, and a TLA+ module names rules in its comments.
fn kind(file: &Path) -> Option<&str> {
    let kind = file.extension()?.to_str()?;
    ["rs", "txt", "toml", "md", "tla"].contains(&kind).then_some(kind)
}

fn collect_files(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failed> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if !path.is_dir() {
            files.push(path);
        } else if !path.ends_with("target") && !path.ends_with("corpus") {
            collect_files(&path, files)?;
        }
    }
    Ok(())
}

/// Returns whether the text is an id: `p1-6`, or `p1-*` for all ids with that prefix.
fn is_id(text: &str) -> bool {
    let Some((name, number)) = text.rsplit_once('-') else {
        return false;
    };
    let mut letters = name.chars();
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let digits = !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit());
    letters.next().is_some_and(|first| first.is_ascii_lowercase())
        && letters.all(plain)
        && (digits || number == "*")
}

fn covers_rule(named: &str, rule: &str) -> bool {
    named.strip_suffix('*').map_or(named == rule, |family| {
        let number = rule.strip_prefix(family);
        number.is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_digit()))
    })
}

fn covers_any(names: &BTreeSet<String>, rule: &str) -> bool {
    names.iter().any(|named| covers_rule(named, rule))
}

/// Returns the bracketed texts of a line.
fn bracketed_texts(line: &str) -> impl Iterator<Item = &str> {
    let parts = line.split('[').skip(1);
    let inside = parts.filter_map(|part| part.split_once(']').map(|(id, _)| id));
    inside.filter(|id| is_id(id))
}

/// Returns the id of a rule that the line defines: a list item that begins with an id.
fn defined_rule(line: &str) -> Option<String> {
    let (id, _) = line.strip_prefix("- [")?.split_once(']')?;
    is_id(id).then(|| id.to_owned())
}

/// Returns the ids in the first column of a table.
fn table_ids(text: &str) -> BTreeSet<String> {
    let first = |line: &'_ str| line.strip_prefix('|')?.split('|').next().map(str::to_owned);
    let columns: Vec<String> = text.lines().filter_map(first).collect();
    columns.iter().flat_map(|column| bracketed_texts(column)).map(str::to_owned).collect()
}

/// Returns the citations of a file. A test file, or a module after `#[cfg(test)]`, counts as test.
/// A mutant lists the rules that it disables; a mutant that is not expected to be found proves
/// nothing.
fn find_citations(name: &str, text: &str) -> Vec<Citation> {
    let tests = [
        "/tests/",
        "/testdata/",
        "_tests.rs",
        "_races.rs",
        "quorate-sim/",
        "quorate-model/",
        "fuzz/",
    ];
    let mut place = match name {
        _ if name.ends_with(".md") || name.ends_with(".tla") => CitationKind::Page,
        "crates/storage/log/src/mutant.rs" => CitationKind::Mutant,
        _ if tests.iter().any(|part| name.contains(part)) => CitationKind::Test,
        _ => CitationKind::Code,
    };
    let proves = !text.lines().any(|line| line == "expect = \"none\"");
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, words)) = lines.next() {
        let next = lines.peek().map_or("", |(_, next)| next);
        if words.trim() == "#[cfg(test)]" && next.starts_with("mod ") && next.ends_with('{') {
            place = CitationKind::Test;
        }
        let list = words.strip_prefix("rules = ").or(words.strip_prefix("rule = "));
        if let Some(list) = list.filter(|_| name.contains("/mutants/") && proves) {
            for id in list.split('"').filter(|id| is_id(id)) {
                let (id, place) = (id.to_owned(), CitationKind::Mutant);
                found.push(Citation { id, kind: place, line });
            }
        }
        for id in bracketed_texts(words) {
            let id = id.to_owned();
            found.push(Citation { id, kind: place, line });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_is_cited_or_named_as_lacking() {
        let book = RuleBook::read_all(&workspace_root()).unwrap();
        assert!(book.rules.len() > 100, "the pages were found");
        assert_eq!(book.list_faults(), Vec::<String>::new());
    }

    /// Four rules, one of each kind, and the files of a case.
    fn book(files: &[(&str, &str)]) -> Vec<String> {
        let mut book = RuleBook::default();
        let rules =
            "- [one-1] Cited.\n- [one-2]† Otherwise.\n- [two-1] Not at all.\n- [two-12] Nor this.";
        book.add_file(RULE_PAGES[0], rules);
        let tables =
            "| Rule |\n|---|\n| [one-2] | as [one-1] |\n## Not built yet\n| [two-*] | [one-1] |";
        book.add_file(DIVERGENCES_PAGE, tables);
        book.add_file("crates/a/src/b.rs", "//! It is so ([one-1]).");
        book.add_file("crates/a/mutants/c.toml", "rules = [\"one-1\", \"one-2\"]");
        book.add_file(NUMBERS_PAGE, &format_numbers(4, 2, 2));
        for (name, text) in files {
            book.add_file(name, text);
        }
        book.list_faults()
    }

    fn fault(files: &[(&str, &str)]) -> String {
        let faults = book(files);
        assert_eq!(faults.len(), 1, "{faults:?}");
        faults[0].clone()
    }

    #[test]
    fn valid_spec_has_no_fault() {
        assert_eq!(book(&[]), Vec::<String>::new());
        let test = "#[cfg(test)]\nmod tests {\n// [two-1]\n}";
        assert_eq!(book(&[("crates/a/src/d.rs", test)]), Vec::<String>::new());
    }

    #[test]
    fn unknown_rule_ids_are_reported() {
        let places = [
            ("crates/a/tests/d.rs", "x\n// y [one-3]", ":2: [one-3]"),
            ("crates/a/mutants/d.toml", "rule = \"one-4\"", ":1: [one-4]"),
            ("README.md", "[none-*]", ":1: [none-*]"),
        ];
        for (file, text, at) in places {
            let said = fault(&[(file, text)]);
            assert!(said.starts_with(&format!("{file}{at} is no rule")), "{said}");
        }
    }

    #[test]
    fn inconsistent_tables_are_reported() {
        let built = |text| ("crates/a/src/d.rs", text);
        let said = fault(&[built("#[cfg(test)]\nmod d;\n// [two-12]")]);
        assert!(said.contains("d.rs:3: cites [two-12], which"), "{said}");

        let both = "| [one-2] |\n## Not built yet\n| [two-*] [one-2] |";
        let said = fault(&[(DIVERGENCES_PAGE, both), (NUMBERS_PAGE, &format_numbers(4, 1, 1))]);
        assert!(said.ends_with("[one-2] is in both tables"), "{said}");

        let neither = "| more of [one-2] |\n## Not built yet\n| [two-1] |";
        let said = fault(&[(DIVERGENCES_PAGE, neither), (NUMBERS_PAGE, &format_numbers(4, 3, 2))]);
        assert!(said.starts_with("[two-12]: no code cites it"), "{said}");

        let said = fault(&[(RULE_PAGES[1], "- [one-1] Again.")]);
        assert_eq!(said, "docs/spec/ring.md: [one-1] is a rule twice");
    }

    #[test]
    fn wrong_counts_are_reported() {
        let said = fault(&[(NUMBERS_PAGE, &format_numbers(4, 4, 2))]);
        assert!(said.ends_with(&format_numbers(4, 2, 2)), "{said}");
        let file = "crates/a/mutants/c.toml";
        let found_by_nobody = "rules = [\"two-1\"]\nexpect = \"none\"";
        assert_eq!(book(&[(file, found_by_nobody)]), Vec::<String>::new());
    }
}
