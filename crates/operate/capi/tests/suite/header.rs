//! The headers declare exactly the functions that the library exports, with its codes and options.

use std::{collections::BTreeSet, fs, path::Path};

use quorate_capi::{error::Code, options::Options};

fn file(name: &str) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    fs::read_to_string(file).expect("a file of this crate")
}

/// Returns a header without its comments.
fn declarations(header: &str) -> String {
    let header = file(header);
    let mut parts = header.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let (_, rest) = part.split_once("*/").expect("a comment ends");
        text + rest
    })
}

/// Returns the functions that a header declares, with their numbers of arguments.
fn declared(header: &str) -> BTreeSet<(String, usize)> {
    let text = declarations(header);
    let mut found = BTreeSet::new();
    for statement in text.split(';') {
        let statement = statement.trim();
        let Some((head, arguments)) = statement.split_once('(') else {
            continue;
        };
        if statement.contains("typedef") {
            continue;
        }
        let name = head.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).next();
        let name = name.expect("a name").to_owned();
        let arguments = arguments.trim_end_matches(')');
        let number = match arguments.trim() {
            "void" => 0,
            some => some.split(',').count(),
        };
        if name.starts_with("quorate_") {
            found.insert((name, number));
        }
    }
    found
}

fn exported(source: &str) -> BTreeSet<(String, usize)> {
    let source = file(source);
    let functions = source.split("#[unsafe(no_mangle)]").skip(1);
    functions
        .map(|function| {
            let (_, rest) = function.split_once("extern \"C\" fn ").expect("for C");
            let (name, rest) = rest.split_once('(').expect("has arguments");
            let (arguments, _) = rest.split_once(')').expect("they end");
            let number = arguments.split(',').filter(|one| !one.trim().is_empty()).count();
            (name.to_owned(), number)
        })
        .collect()
}

#[test]
fn the_header_declares_what_is_exported() {
    for (header, source, least) in [
        ("include/quorate.h", "src/border/calls.rs", 24),
        ("evpaxos/quorate_paxos.h", "src/border/paxos.rs", 2),
    ] {
        let (declared, exported) = (declared(header), exported(source));
        assert!(exported.len() >= least, "{exported:?}");
        assert_eq!(declared, exported);
    }
}

#[test]
fn the_codes_are_equal() {
    let text = declarations("include/quorate.h");
    let (_, rest) = text.split_once("enum {").expect("the codes");
    let (codes, _) = rest.split_once('}').expect("they end");
    let codes: Vec<(&str, i32)> = codes
        .split(',')
        .map(|code| code.split_once('=').expect("a number"))
        .map(|(name, number)| (name.trim(), number.trim().parse().expect("a number")))
        .collect();
    let ours = Code::ALL.map(|(code, name)| (name, code as i32));
    assert_eq!(codes, ours);
}

/// The options listed in the header are those in the code.
#[test]
fn the_options_are_listed() {
    let header = file("include/quorate.h");
    let (_, rest) = header.split_once("* Options: names").expect("the list");
    let (list, _) = rest.split_once("*/").expect("it ends");
    let named = list.lines().filter_map(|line| {
        let line = line.strip_prefix(" *   ")?;
        let name = line.split_whitespace().next()?;
        (!line.starts_with(' ')).then_some(name)
    });
    let listed: BTreeSet<&str> = named.collect();
    let source = file("src/options.rs");
    let known: BTreeSet<&str> = source
        .lines()
        .filter_map(|line| line.trim().strip_prefix('"')?.split_once("\" => "))
        .map(|(name, _)| name)
        .filter(|name| {
            let unknown = Options::default().set(name, "\u{1}").err();
            // The error for an unknown option differs from the error for an invalid value.
            unknown.is_none_or(|failed| !failed.detail.contains("there is no option"))
        })
        .collect();
    assert!(listed.len() > 15, "{listed:?}");
    assert_eq!(listed, known);
}
