//! Patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]`, `\x`, as in Redis.

/// Whether `text` matches `pattern`. Time is at most the product of both lengths: a `*` that did
/// not lead to a match is given up as soon as a later one is reached.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        match (pattern.get(p), text.get(t)) {
            (None, None) => return true,
            (Some(_), Some(&byte)) => {
                if let Some(next) = one(pattern, p, byte) {
                    (p, t) = (next, t + 1);
                    continue;
                }
            }
            (None, Some(_)) | (Some(_), None) => {}
        }
        match star {
            Some((after, from)) if from < text.len() => {
                star = Some((after, from + 1));
                (p, t) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// Matches one byte against the pattern's element at `p`; returns the place behind the element.
fn one(pattern: &[u8], p: usize, byte: u8) -> Option<usize> {
    match pattern[p] {
        b'?' => Some(p + 1),
        b'[' => class(pattern, p + 1, byte),
        b'\\' if p + 1 < pattern.len() => (pattern[p + 1] == byte).then_some(p + 2),
        literal => (literal == byte).then_some(p + 1),
    }
}

/// The inside of brackets; without a closing one it reaches to the end.
fn class(pattern: &[u8], mut p: usize, byte: u8) -> Option<usize> {
    let negated = pattern.get(p) == Some(&b'^');
    p += usize::from(negated);
    let mut found = false;
    loop {
        match (pattern.get(p), pattern.get(p + 1), pattern.get(p + 2)) {
            (None, _, _) => break,
            (Some(b']'), _, _) => {
                p += 1;
                break;
            }
            (Some(b'\\'), Some(&escaped), _) => {
                found |= escaped == byte;
                p += 2;
            }
            (Some(&from), Some(b'-'), Some(&to)) => {
                found |= (from.min(to)..=from.max(to)).contains(&byte);
                p += 3;
            }
            (Some(&literal), _, _) => {
                found |= literal == byte;
                p += 1;
            }
        }
    }
    (found != negated).then_some(p)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        let cases: &[(&str, &str, bool)] = &[
            ("", "", true),
            ("*", "", true),
            ("*", "anything", true),
            ("a*c", "abc", true),
            ("a*c", "abcd", false),
            ("a*b*c", "a--b--b--c", true),
            ("?", "", false),
            ("h?llo", "hello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h[c-a]llo", "hbllo", true),
            ("[", "[", false),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\", "a\\", true),
            ("**a**", "bab", true),
            ("user:*:name", "user:17:name", true),
            ("[\\]]", "]", true),
        ];
        for &(pattern, text, expected) in cases {
            assert_eq!(matches(pattern.as_bytes(), text.as_bytes()), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn many_stars_do_not_explode() {
        let pattern = "a*".repeat(200) + "b";
        assert!(!matches(pattern.as_bytes(), "a".repeat(5000).as_bytes()));
    }
}
