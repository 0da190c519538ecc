//! Tokenizer: removes comments, resolves includes, and substitutes definitions.

use std::{collections::BTreeMap, sync::Arc};

use crate::p4::{Error, Place, Sources};

/// Kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Name(String),
    /// A number, with its width if the number has one.
    Number(u128, Option<u32>),
    /// A string, without its quotation marks.
    Text(String),
    /// An operator or a bracket. `>` is always a token of its own, so that `bit<bit<8>>` can be
    /// parsed.
    Sign(&'static str),
    /// End of the input.
    End,
}

/// A token, with its place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub kind: Kind,
    /// Place of the first character. For a substituted definition, the place of its use.
    pub place: Place,
    /// Set if there is no white space between the preceding token and this one.
    pub touches_previous: bool,
}

/// Operators and brackets, longest first.
const SIGNS: [&str; 40] = [
    "&&&", "|+|", "|-|", "...", "&&", "||", "==", "!=", "<=", ">=", "<<", "++", "..", "+=", "-=",
    "(", ")", "{", "}", "[", "]", "<", ">", ",", ";", ":", ".", "=", "+", "-", "*", "/", "%", "!",
    "~", "&", "|", "^", "?", "@",
];
/// Maximum number of tokens over all included files.
const TOKENS_MAX: usize = 1 << 20;
const INCLUDES_MAX: usize = 16;
/// Included files that the interpreter itself provides.
const BUILT_IN_FILES: [&str; 2] = ["core.p4", "v1model.p4"];

/// Returns all tokens of a file and of the files that it includes. The last one is [`Kind::End`].
pub fn tokens(
    sources: &Sources,
    name: &str,
    defines: &[(&str, &str)],
) -> Result<Vec<Token>, Error> {
    let mut reader =
        Lexer { sources, definitions: BTreeMap::new(), tokens: Vec::new(), include_count: 0 };
    for (name, text) in defines {
        let place = Place { file: "-D".into(), line: 1, column: 1 };
        let mut words = Vec::new();
        Line::new(text, &place.file, 1).read_tokens(&mut words)?;
        reader.definitions.insert((*name).to_owned(), words);
    }
    let place = Place { file: name.into(), line: 1, column: 1 };
    reader.read_file(name, &place)?;
    let last = reader.tokens.last();
    let place = last.map_or(place, |token| token.place.clone());
    reader.tokens.push(Token { kind: Kind::End, place, touches_previous: false });
    Ok(reader.tokens)
}

struct Lexer<'a> {
    sources: &'a Sources,
    definitions: BTreeMap<String, Vec<Token>>,
    tokens: Vec<Token>,
    include_count: usize,
}

impl Lexer<'_> {
    fn read_file(&mut self, name: &str, from: &Place) -> Result<(), Error> {
        self.include_count += 1;
        if self.include_count > INCLUDES_MAX {
            return Err(error(from, "too many files are included"));
        }
        let text = self.sources.get(name);
        let text = text.ok_or_else(|| error(from, format!("there is no file {name}")))?;
        let text = without_comments(text);
        let file: Arc<str> = name.into();
        // For each open #if, whether its lines are used.
        let mut open: Vec<bool> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let place = Place { file: file.clone(), line: number, column: 1 };
            if let Some(directive) = line.trim_start().strip_prefix('#') {
                self.handle_directive(directive.trim(), &place, &mut open)?;
            } else if open.iter().all(|counts| *counts) {
                let mut words = Vec::new();
                Line::new(line, &file, number).read_tokens(&mut words)?;
                self.push_expanded(words)?;
            }
        }
        if !open.is_empty() {
            return Err(error(from, format!("an #if in {name} has no #endif")));
        }
        Ok(())
    }

    fn handle_directive(
        &mut self,
        text: &str,
        place: &Place,
        open: &mut Vec<bool>,
    ) -> Result<(), Error> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        let counts = open.iter().all(|counts| *counts);
        match word {
            "ifdef" => open.push(self.definitions.contains_key(rest)),
            "ifndef" => open.push(!self.definitions.contains_key(rest)),
            "else" => {
                let last = open.last_mut();
                let last = last.ok_or_else(|| error(place, "#else without #if"))?;
                *last = !*last;
            }
            "endif" => {
                open.pop().ok_or_else(|| error(place, "#endif without #if"))?;
            }
            _ if !counts => {}
            "define" => {
                let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                if name.is_empty() || !name.chars().all(is_name_letter) {
                    return Err(error(place, "#define NAME VALUE, without arguments"));
                }
                let mut words = Vec::new();
                Line::new(value, &place.file, place.line).read_tokens(&mut words)?;
                self.definitions.insert(name.to_owned(), words);
            }
            "include" => {
                let quoted = rest.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let built_in = rest.strip_prefix('<').and_then(|rest| rest.strip_suffix('>'));
                match (quoted, built_in) {
                    (Some(name), _) => self.read_file(name, place)?,
                    (_, Some(name)) if BUILT_IN_FILES.contains(&name) => {}
                    _ => return Err(error(place, format!("cannot include {rest}"))),
                }
            }
            _ => return Err(error(place, format!("#{word} is not in the subset"))),
        }
        Ok(())
    }

    /// Appends tokens, replacing each defined name with its definition. Definitions are not
    /// expanded again.
    fn push_expanded(&mut self, words: Vec<Token>) -> Result<(), Error> {
        for word in words {
            let definition = match &word.kind {
                Kind::Name(name) => self.definitions.get(name),
                _ => None,
            };
            match definition {
                Some(definition) => {
                    let place = &word.place;
                    let moved = definition
                        .iter()
                        .map(|token| Token { place: place.clone(), ..token.clone() });
                    self.tokens.extend(moved);
                }
                None => self.tokens.push(word),
            }
            if self.tokens.len() > TOKENS_MAX {
                let last = self.tokens.last().expect("there are many");
                return Err(error(&last.place, "the program is too long"));
            }
        }
        Ok(())
    }
}

/// Replaces comments with blanks, so that places in the source do not change.
fn without_comments(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    let mut quoted = false;
    while let Some(letter) = rest.next() {
        match (letter, rest.peek()) {
            ('"', _) => {
                quoted = !quoted;
                plain.push(letter);
            }
            ('\n', _) => {
                quoted = false;
                plain.push(letter);
            }
            ('/', Some('/')) if !quoted => {
                while rest.next_if(|letter| *letter != '\n').is_some() {}
            }
            ('/', Some('*')) if !quoted => {
                plain.push_str("  ");
                rest.next();
                let mut star = false;
                for letter in rest.by_ref() {
                    plain.push(if letter == '\n' { '\n' } else { ' ' });
                    if star && letter == '/' {
                        break;
                    }
                    star = letter == '*';
                }
            }
            _ => plain.push(letter),
        }
    }
    plain
}

fn is_name_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

struct Line<'a> {
    rest: &'a str,
    file: &'a Arc<str>,
    line: u32,
    column: u32,
}

impl<'a> Line<'a> {
    fn new(rest: &'a str, file: &'a Arc<str>, line: u32) -> Self {
        Self { rest, file, line, column: 1 }
    }

    fn take_bytes(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        self.column += u32::try_from(taken.chars().count()).unwrap_or(u32::MAX / 2);
        taken
    }

    fn read_tokens(mut self, words: &mut Vec<Token>) -> Result<(), Error> {
        loop {
            let blank = self.rest.len() - self.rest.trim_start().len();
            self.take_bytes(blank);
            let Some(first) = self.rest.chars().next() else {
                return Ok(());
            };
            let place = Place { file: self.file.clone(), line: self.line, column: self.column };
            let kind = self.read_word(first, &place)?;
            words.push(Token { kind, place, touches_previous: blank == 0 });
        }
    }

    fn read_word(&mut self, first: char, place: &Place) -> Result<Kind, Error> {
        if is_name_letter(first) {
            let end = self.rest.find(|letter| !is_name_letter(letter));
            let text = self.take_bytes(end.unwrap_or(self.rest.len()));
            return if first.is_ascii_digit() {
                parse_number(text, place)
            } else {
                Ok(Kind::Name(text.to_owned()))
            };
        }
        if first == '"' {
            let end = self.rest[1..].find('"');
            let end = end.ok_or_else(|| error(place, "a text without its end"))?;
            let text = self.take_bytes(end + 2);
            return Ok(Kind::Text(text[1..=end].to_owned()));
        }
        let sign = SIGNS.iter().find(|sign| self.rest.starts_with(**sign));
        let sign = sign.ok_or_else(|| error(place, format!("{first:?} begins no word")))?;
        self.take_bytes(sign.len());
        Ok(Kind::Sign(sign))
    }
}

/// Parses `12`, `0x_ff`, `0b11`, `0o17`, with an optional `8w` before it.
fn parse_number(text: &str, place: &Place) -> Result<Kind, Error> {
    let wrong = |why: &str| error(place, format!("{text}: {why}"));
    let width = text.split_once(['w', 's']);
    let (width, digits) = match width {
        Some((width, digits)) if width.bytes().all(|digit| digit.is_ascii_digit()) => {
            if text.as_bytes()[width.len()] == b's' {
                return Err(wrong("signed numbers are not in the subset"));
            }
            let width = width.parse().map_err(|_| wrong("a width is a number"))?;
            (Some(width), digits)
        }
        _ => (None, text),
    };
    let plain = digits.replace('_', "");
    let (radix, plain) = match plain.get(..2) {
        Some("0x" | "0X") => (16, &plain[2..]),
        Some("0b" | "0B") => (2, &plain[2..]),
        Some("0o" | "0O") => (8, &plain[2..]),
        Some("0d" | "0D") => (10, &plain[2..]),
        _ => (10, &plain[..]),
    };
    let value = u128::from_str_radix(plain, radix);
    let value = value.map_err(|_| wrong("no number of at most 128 bits"))?;
    Ok(Kind::Number(value, width))
}

pub(crate) fn error(place: &Place, what: impl Into<String>) -> Error {
    Error { place: place.clone(), message: what.into() }
}
