//! Removes secrets from text that leaves the machine: private keys, plane keys, passwords, tokens.
//! Text that only looks like a secret is also removed, because losing a line is better than leaking
//! a secret.

use serde_json::Value as Json;

const REPLACEMENT: &str = "[redacted]";
/// Words that announce a secret. The rest of the line is removed. Matching ignores case.
const SECRET_WORDS: [&str; 25] = [
    "password",
    "passwd",
    "passphrase",
    "requirepass",
    "masterauth",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "api key",
    "access_key",
    "access-key",
    "private_key",
    "private-key",
    "plane_key",
    "plane-key",
    "credential",
    "authorization",
    "proxy-auth",
    "bearer ",
    "basic ",
    "cookie",
    "pwd=",
    "auth ",
];
/// Minimum number of hexadecimal digits that are treated as a plane key.
const PLANE_KEY_HEX_MIN: usize = 64;
/// Minimum length of a run of Base64 characters that is treated as a key, if it contains upper
/// case, lower case and digits.
const BASE64_KEY_CHARS_MIN: usize = 40;
/// Number of lines after which an unterminated private key is assumed to have ended.
const PRIVATE_KEY_LINES_MAX: usize = 1024;
/// Parts of variable names that suggest a secret, some of them abbreviated.
const SECRET_NAME_PARTS: [&str; 5] = ["key", "pass", "pwd", "auth", "cert"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedactedLine {
    pub text: String,
    pub redacted_lines: usize,
}

/// Removes secrets from text, line by line.
pub fn text(text: &str) -> RedactedLine {
    let mut all = RedactedLine::default();
    let mut state = Redactor::default();
    // The beginning of a key may be missing. All lines before an unmatched end line are then
    // treated as part of the key.
    let lines: Vec<&str> = text.lines().collect();
    let cut = lines.iter().position(|line| is_key_end(line));
    let begins = lines.iter().position(|line| is_key_begin(line));
    let headless = match (begins, cut) {
        (None, Some(end)) => Some(end),
        (Some(begin), Some(end)) if end < begin => Some(end),
        _ => None,
    };
    for (at, line) in lines.iter().enumerate() {
        let in_head = headless.is_some_and(|end| at <= end && end - at <= PRIVATE_KEY_LINES_MAX);
        let kept = match in_head {
            true => Some(REPLACEMENT.to_owned()),
            false => state.redact_line(line),
        };
        let Some(kept) = kept else {
            all.redacted_lines += 1;
            continue;
        };
        all.redacted_lines += usize::from(kept != *line);
        all.text.push_str(&kept);
        all.text.push('\n');
    }
    all
}

/// Removes secrets from the strings of a JSON document, and all values whose keys suggest a secret.
pub fn redact_json(document: &Json) -> Json {
    match document {
        Json::String(one) => Json::String(text(one).text.trim_end_matches('\n').to_owned()),
        Json::Array(all) => all.iter().map(redact_json).collect(),
        Json::Object(all) => {
            let entries = all.iter().map(|(name, value)| {
                let kept = match (value, secret_word_end(name)) {
                    (Json::Null | Json::Bool(_), _) | (_, None) => redact_json(value),
                    (_, Some(_)) => Json::from(REPLACEMENT),
                };
                (name.clone(), kept)
            });
            entries.collect()
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => document.clone(),
    }
}

/// Returns the value, or its redacted form if the name or the value suggests a secret.
pub fn value(name: &str, value: &str) -> String {
    let lower = name.to_ascii_lowercase();
    match secret_word_end(name).is_some()
        || SECRET_NAME_PARTS.iter().any(|part| lower.contains(part))
    {
        true => REPLACEMENT.to_owned(),
        false => text(value).text.trim_end_matches('\n').to_owned(),
    }
}

fn is_key_begin(line: &str) -> bool {
    line.contains("-----BEGIN") && line.contains("PRIVATE KEY")
}

fn is_key_end(line: &str) -> bool {
    line.contains("-----END") && line.contains("PRIVATE KEY")
}

/// Returns the end position of the first word in the line that announces a secret.
fn secret_word_end(line: &str) -> Option<usize> {
    let lower = line.to_ascii_lowercase();
    let ends = SECRET_WORDS.iter().filter_map(|word| Some(lower.find(word)? + word.len()));
    ends.min()
}

/// State carried from one line to the next.
#[derive(Debug, Default)]
struct Redactor {
    /// Number of lines seen of the current private key; `None` outside a key.
    lines_in_key: Option<usize>,
    /// Set if the previous line ended with a word that announces a secret, so this line may begin
    /// with it.
    secret_follows: bool,
}

impl Redactor {
    /// Returns the redacted line; `None` for all but the first line of a private key.
    fn redact_line(&mut self, line: &str) -> Option<String> {
        if let Some(count) = self.lines_in_key {
            self.lines_in_key =
                (!is_key_end(line) && count < PRIVATE_KEY_LINES_MAX).then_some(count + 1);
            return None;
        }
        if is_key_begin(line) {
            // A key written in a single line ends in the same line.
            self.lines_in_key = (!is_key_end(line)).then_some(0);
            let begin = line.find("-----BEGIN").unwrap_or_default();
            return Some(format!(
                "{}{REPLACEMENT}",
                redact_words(&split_after_word(&line[..begin]).0)
            ));
        }
        if std::mem::take(&mut self.secret_follows) && !line.trim().is_empty() {
            return Some(REPLACEMENT.to_owned());
        }
        let (kept, rest) = split_after_word(line);
        let bare = |c: char| c.is_whitespace() || matches!(c, ':' | '=' | '"' | '\'' | '|' | '>');
        self.secret_follows = rest.is_some_and(|rest| rest.chars().all(bare));
        Some(redact_words(&kept))
    }
}

/// Splits a line after the first word that announces a secret.
fn split_after_word(line: &str) -> (String, Option<&str>) {
    match secret_word_end(line) {
        Some(end) => (format!("{} {REPLACEMENT}", line[..end].trim_end()), Some(&line[end..])),
        None => (line.to_owned(), None),
    }
}

/// Removes words that look like keys, and removes user names and passwords from URLs.
fn redact_words(line: &str) -> String {
    let mut kept = String::new();
    let mut run = String::new();
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=' | '_' | '-');
    let flush = |kept: &mut String, run: &mut String| {
        kept.push_str(if looks_like_key(run) { REPLACEMENT } else { run });
        run.clear();
    };
    for c in redact_url_users(line).chars() {
        if is_part(c) {
            run.push(c);
        } else {
            flush(&mut kept, &mut run);
            kept.push(c);
        }
    }
    flush(&mut kept, &mut run);
    kept
}

/// Turns `redis://ann:word@host` into `redis://[redacted]@host`.
fn redact_url_users(line: &str) -> String {
    let mut kept = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        kept.push_str(head);
        let end = tail.find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\''));
        let (authority, after) = tail.split_at(end.unwrap_or(tail.len()));
        match authority.rsplit_once('@') {
            Some((_, host)) => kept.push_str(&format!("{REPLACEMENT}@{host}")),
            None => kept.push_str(authority),
        }
        rest = after;
    }
    kept + rest
}

fn looks_like_key(run: &str) -> bool {
    let hex =
        run.split(|c: char| !c.is_ascii_hexdigit()).any(|part| part.len() >= PLANE_KEY_HEX_MIN);
    let has = |test: fn(&char) -> bool| run.chars().any(|c| test(&c));
    let mixed =
        has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
    // The first part of a JSON web token starts with `eyJ`.
    let web = run.starts_with("eyJ") && run.len() > 16;
    hex || web || (run.len() >= BASE64_KEY_CHARS_MIN && mixed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &str) -> String {
        text(lines).text
    }

    #[test]
    fn private_keys_are_redacted_anywhere() {
        let key =
            "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIabc\nZZ==\n-----END EC PRIVATE KEY-----";
        assert_eq!(of(&format!("a\n{key}\nb")), "a\n[redacted]\nb\n");
        // Lines of a journal have a prefix.
        let lines: Vec<String> = key.lines().map(|line| format!("host q[1]: {line}")).collect();
        assert_eq!(of(&format!("{}\nb", lines.join("\n"))), "host q[1]: [redacted]\nb\n");
        // The cases are a key in one line, a key without its beginning, and a key without its end.
        assert_eq!(of(&format!("{}\nb", key.replace('\n', "\\n"))), "[redacted]\nb\n");
        let (_, tail) = key.split_once('\n').unwrap();
        let kept = of(&format!("{tail}\nb"));
        assert!(!kept.contains("MHc") && !kept.contains("ZZ") && kept.ends_with("b\n"), "{kept}");
        assert_eq!(of("x\n-----BEGIN PRIVATE KEY-----\nabc"), "x\n[redacted]\n");
    }

    #[test]
    fn values_after_words_for_secrets_are_redacted() {
        for line in [
            "login password=hunter2 x",
            "PASSWORD: hunter2",
            "{\"apiKey\":\"hunter2\"}",
            "the token is hunter2",
            "Authorization: Bearer hunter2",
            "AUTH hunter2",
            "--plane-key hunter2",
            "connect redis://ann:hunter2@h:6379/0",
            "password:\n  hunter2",
        ] {
            let kept = of(line);
            assert!(kept.contains(REPLACEMENT) && !kept.contains("hunter2"), "{kept}");
        }
    }

    #[test]
    fn only_texts_that_look_like_keys_are_redacted() {
        let plane = "7 00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
        assert_eq!(of(plane), "7 [redacted]\n");
        assert!(!of("x MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7 y").contains("MII"));
        assert_eq!(of("eyJhbGciOiJIUzI1NiJ9.c"), "[redacted].c\n");
        for line in [
            "cluster 00112233445566778899aabbccddeeff: node 1 leads",
            "2026-01-02T03:04:05.678901Z  INFO quorate_net: connected peer=10.0.0.2:7451",
            "https://10.0.0.1:7452/status",
            "# HELP quorate_certificate_ends_unix_seconds When a certificate ends.",
        ] {
            assert_eq!(of(line), format!("{line}\n"));
        }
        assert_eq!(text("a\npassword=x\nb").redacted_lines, 1);
    }

    #[test]
    fn secrets_in_documents_and_variables_are_redacted() {
        let document =
            serde_json::json!({"a": ["password=x"], "token": "x", "n": 1, "tokens": ["b"]});
        let expected = serde_json::json!({"a": ["password [redacted]"], "token": REPLACEMENT, "n": 1, "tokens": REPLACEMENT});
        assert_eq!(redact_json(&document), expected);
        assert_eq!(value("QUORATE_PLANE_KEY", "/a"), REPLACEMENT);
        assert_eq!(value("QUORATE_DATA", "/var/n1"), "/var/n1");
    }
}
