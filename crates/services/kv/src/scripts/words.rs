//! Tokens of a Lua text. They do not depend on blanks, comments or the kind of quotes.

/// Returns the tokens of a text, each followed by a zero byte. Strings are marked and in lower
/// case, because command names ignore case. Semicolons are omitted, because Lua ignores them.
pub(super) fn canonical_tokens(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let length = match first {
            blank if blank.is_ascii_whitespace() || blank == b';' => 1,
            b'-' if rest.starts_with(b"--") => comment(rest),
            b'"' | b'\'' => {
                let length = string(rest);
                out.push(b'"');
                out.extend(string_contents(&rest[..length]).to_ascii_lowercase());
                out.push(0);
                length
            }
            word if is_word_byte(word) => {
                let length = rest.iter().take_while(|&&byte| is_word_byte(byte)).count();
                out.extend_from_slice(&rest[..length]);
                out.push(0);
                length
            }
            sign => {
                out.extend_from_slice(&[sign, 0]);
                1
            }
        };
        rest = rest.get(length..).unwrap_or(&[]);
    }
    out
}

const fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// Returns the length of a comment, which ends with the line or with the closing brackets.
fn comment(text: &[u8]) -> usize {
    let end = |mark: &[u8]| text.windows(mark.len()).position(|part| part == mark);
    if text.starts_with(b"--[[") {
        end(b"]]").map_or(text.len(), |at| at + 2)
    } else {
        end(b"\n").map_or(text.len(), |at| at + 1)
    }
}

/// Returns the length of a string with its quotes. An unterminated one extends to the end.
fn string(text: &[u8]) -> usize {
    let quote = text[0];
    let mut at = 1;
    while let Some(&byte) = text.get(at) {
        match byte {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

fn string_contents(string: &[u8]) -> &[u8] {
    let inside = &string[1..];
    inside.strip_suffix(&string[..1]).unwrap_or(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> String {
        String::from_utf8(canonical_tokens(text.as_bytes())).unwrap().replace('\0', "|")
    }

    #[test]
    fn tokens_are_split_into_words_symbols_and_strings() {
        assert_eq!(words("a  b;c"), "a|b|c|");
        assert_eq!(words("x=='Y z'"), "x|=|=|\"y z|");
        assert_eq!(words("#KEYS[1] ~= \"q'\" -- c\nend"), "#|KEYS|[|1|]|~|=|\"q'|end|");
        assert_eq!(words("a--[[ b\n c ]]d"), "a|d|");
        assert_eq!(words(r"'a\'b' c"), r#""a\'b|c|"#);
        assert_ne!(words("'a'"), words("a"));
    }

    #[test]
    fn unterminated_texts_are_tokenized() {
        for text in ["'abc", "--", "--[[ x", "'\\", "\"", "--[[", "'a\\'"] {
            words(text);
        }
        for length in 0..6u32 {
            for number in 0..7usize.pow(length) {
                let byte = |place| b"-['\\\"] "[number / 7usize.pow(place) % 7];
                canonical_tokens(&(0..length).map(byte).collect::<Vec<u8>>());
            }
        }
    }
}
