//! Sanitizes texts that nodes sent, and fits texts into the available width.

use ratatui::text::Span;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// Maximum length of a text in characters. Legitimate texts are shorter.
const TEXT_CHARS_MAX: usize = 600;
/// Maximum number of entries in a list.
const LIST_ENTRIES_MAX: usize = 256;

/// Returns a copy of a document with control characters removed and its size bounded, or `None` if
/// it cannot be converted.
pub(super) fn sanitize_document<T: Serialize + DeserializeOwned>(document: &T) -> Option<T> {
    let mut value = serde_json::to_value(document).ok()?;
    sanitize_value(&mut value);
    serde_json::from_value(value).ok()
}

fn sanitize_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = sanitize_text(text),
        Value::Array(list) => {
            list.truncate(LIST_ENTRIES_MAX);
            list.iter_mut().for_each(sanitize_value);
        }
        Value::Object(fields) => fields.values_mut().for_each(sanitize_value),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Replaces white space with spaces and control characters with replacement characters. Removes
/// zero-width characters, which could reverse text or pile up in a cell.
pub(super) fn sanitize_text(text: &str) -> String {
    let shown = |c: char| match c {
        c if c.is_whitespace() => Some(' '),
        c if c.is_control() => Some('\u{fffd}'),
        c => (text_width(c.encode_utf8(&mut [0; 4])) > 0).then_some(c),
    };
    let mut clean: String = text.chars().take(TEXT_CHARS_MAX).filter_map(shown).collect();
    if text.chars().nth(TEXT_CHARS_MAX).is_some() {
        clean.push('…');
    }
    clean
}

pub(super) fn text_width(text: &str) -> usize {
    Span::raw(text).width()
}

/// Shortens a text that is too wide, and marks the cut with an ellipsis.
pub(super) fn cut_to_width(text: &str, cells: usize) -> String {
    if text_width(text) <= cells {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if text_width(&kept) + 1 > cells {
            kept.pop();
            break;
        }
    }
    if cells > 0 {
        kept.push('…');
    }
    kept
}

/// Pads or cuts a text to a width of exactly `cells`, aligned left or right.
pub(super) fn pad_to_width(text: &str, cells: usize, at_right: bool) -> String {
    let text = cut_to_width(text, cells);
    let rest = " ".repeat(cells - text_width(&text).min(cells));
    match at_right {
        true => rest + &text,
        false => text + &rest,
    }
}

/// Wraps a text to the given width, between words where possible.
pub(super) fn wrap_to_width(text: &str, cells: usize) -> Vec<String> {
    let cells = cells.max(1);
    let mut lines = vec![String::new()];
    let mut line_is = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut word = word.to_owned();
        let room = cells - line_is;
        if line_is > 0 && text_width(&word) < room {
            lines[0].push(' ');
            lines[0].push_str(&word);
            line_is += 1 + text_width(&word);
            continue;
        }
        if line_is > 0 {
            lines.insert(0, String::new());
        }
        while text_width(&word) > cells {
            let mut at = word.len();
            for (next, c) in word.char_indices() {
                if next > 0 && text_width(&word[..next + c.len_utf8()]) > cells {
                    at = next;
                    break;
                }
            }
            if at == word.len() {
                break;
            }
            let rest = word.split_off(at);
            lines[0] = word;
            lines.insert(0, String::new());
            word = rest;
        }
        line_is = text_width(&word);
        lines[0] = word;
    }
    lines.reverse();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed() {
        let hostile = "a\x1b[2J\x07b\r\nc\u{9b}31md\u{202e}e\u{200b}\u{301}f\u{7f}\u{2028}";
        let text = sanitize_text(hostile);
        assert_eq!(text, "a\u{fffd}[2J\u{fffd}b  c\u{fffd}31mdef\u{fffd} ");
        assert!(!text.chars().any(char::is_control));
        let long = sanitize_text(&"x".repeat(1 << 20));
        assert_eq!((long.chars().count(), long.ends_with('…')), (601, true));
    }

    #[test]
    fn control_characters_in_documents_are_removed() {
        let document = (vec!["\x1b]0;t\x07".to_owned(); 1000], Some("\n".to_owned()), 7);
        let (list, text, number) = sanitize_document(&document).unwrap();
        assert_eq!((list.len(), text.as_deref(), number), (256, Some(" "), 7));
        assert_eq!(list[0], "\u{fffd}]0;t\u{fffd}");
    }

    #[test]
    fn text_is_cut_or_padded_to_its_width() {
        assert_eq!(cut_to_width("abc", 3), "abc");
        assert_eq!(cut_to_width("abcd", 3), "ab…");
        assert_eq!((cut_to_width("abcd", 1), cut_to_width("abcd", 0)), ("…".into(), "".into()));
        // A wide character does not fit into the single cell left of the ellipsis.
        assert_eq!(cut_to_width("漢字漢", 4), "漢…");
        for cells in 0..8 {
            assert!(text_width(&cut_to_width("漢a字b漢", cells)) <= cells);
            assert_eq!(text_width(&pad_to_width("漢a字b漢", cells, cells % 2 == 0)), cells);
        }
        assert_eq!(pad_to_width("ab", 4, true), "  ab");
    }

    #[test]
    fn wrapping_keeps_words_together_if_possible() {
        assert_eq!(wrap_to_width("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap_to_width("one  two", 7), ["one two"]);
        assert_eq!(wrap_to_width("a 123456789 b", 4), ["a", "1234", "5678", "9 b"]);
        assert_eq!(wrap_to_width("漢字", 1), ["漢", "字"]);
        assert_eq!(wrap_to_width("", 5), [""]);
    }
}
