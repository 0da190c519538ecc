//! Glob patterns of KEYS, SCAN and CONFIG GET: `*`, `?`, `[a-z]`, `[^a]`, `\x`, as in Redis.
//!
//! A match scans the text once. A segment between two stars is searched for at all positions in
//! parallel, 64 elements of the pattern per step.

use crate::key::KEY_BYTES_MAX;

/// Number of bits in a mask.
const WORD: usize = 64;
/// Maximum length of a segment that is searched for position by position.
const NAIVE_SEARCH_MAX: usize = 8;
/// Maximum number of bytes between the first and the last star of a client's pattern.
const BETWEEN_STARS_MAX: usize = 256;
pub const TOO_LONG: &str =
    "TOOBIG not executed: a pattern may have 256 characters between its first and its last '*'";

/// Returns whether a pattern matches `text`. A pattern longer than any key matches nothing.
pub fn matches(pattern: &[u8], text: &[u8]) -> bool {
    pattern.len() <= KEY_BYTES_MAX && Pattern::new(pattern).matches(text)
}

/// Parsed pattern.
#[derive(Debug)]
pub struct Pattern {
    /// Elements before the first star, or the whole pattern if it has none.
    first: Vec<Element>,
    rest: Option<AfterFirstStar>,
}

#[derive(Debug)]
struct AfterFirstStar {
    middle_segments: Vec<Segment>,
    last: Vec<Element>,
}

/// Element of a pattern, which matches one byte.
#[derive(Clone, Debug)]
enum Element {
    Byte(u8),
    Any,
    Class(Box<[bool; 256]>),
}

impl Element {
    fn includes(&self, byte: u8) -> bool {
        match self {
            Self::Byte(literal) => *literal == byte,
            Self::Any => true,
            Self::Class(class) => class[usize::from(byte)],
        }
    }
}

fn all_include(elements: &[Element], text: &[u8]) -> bool {
    elements.iter().zip(text).all(|(element, byte)| element.includes(*byte))
}

#[derive(Debug)]
struct Segment {
    elements: Vec<Element>,
    words_per_mask: usize,
    /// For each byte value, masks of the elements that match it, `words_per_mask` words each. Empty
    /// if the segment is short.
    byte_masks: Vec<u64>,
}

impl Segment {
    fn new(elements: Vec<Element>) -> Self {
        let words_per_mask = elements.len().div_ceil(WORD);
        if elements.len() <= NAIVE_SEARCH_MAX {
            return Self { elements, words_per_mask, byte_masks: Vec::new() };
        }
        let mut places = vec![0; 256 * words_per_mask];
        for (at, element) in elements.iter().enumerate() {
            let mut add = |byte: u8| {
                places[usize::from(byte) * words_per_mask + at / WORD] |= 1 << (at % WORD);
            };
            match element {
                Element::Byte(literal) => add(*literal),
                _ => (0..=u8::MAX).filter(|byte| element.includes(*byte)).for_each(add),
            }
        }
        Self { elements, words_per_mask, byte_masks: places }
    }

    /// Returns the end of the first match.
    fn find(&self, text: &[u8], reached: &mut Vec<u64>) -> Option<usize> {
        let length = self.elements.len();
        if self.byte_masks.is_empty() {
            let at = text.windows(length).position(|part| all_include(&self.elements, part));
            return at.map(|at| at + length);
        }
        reached.clear();
        reached.resize(self.words_per_mask, 0);
        let (last, bit) = (self.words_per_mask - 1, 1 << ((length - 1) % WORD));
        for (at, byte) in text.iter().enumerate() {
            let from = usize::from(*byte) * self.words_per_mask;
            // Shift-and algorithm: each partial match may continue, and a new one may begin.
            let mut carry = 1;
            for (word, places) in
                reached.iter_mut().zip(&self.byte_masks[from..from + self.words_per_mask])
            {
                let next = *word >> (WORD - 1);
                *word = (*word << 1 | carry) & places;
                carry = next;
            }
            if reached[last] & bit != 0 {
                return Some(at + 1);
            }
        }
        None
    }
}

impl Pattern {
    /// Parses a pattern. Every byte string is a valid pattern.
    pub fn new(pattern: &[u8]) -> Self {
        let mut segments = vec![Vec::new()];
        let mut at = 0;
        while at < pattern.len() {
            if pattern[at] == b'*' {
                segments.push(Vec::new());
                at += 1;
            } else {
                let (element, behind) = element(pattern, at);
                segments.last_mut().expect("there is a first one").push(element);
                at = behind;
            }
        }
        let last = (segments.len() > 1).then(|| segments.pop()).flatten();
        let mut segments = segments.into_iter();
        let first = segments.next().unwrap_or_default();
        let between = segments.filter(|segment| !segment.is_empty());
        let between = between.map(Segment::new).collect();
        Self { first, rest: last.map(|last| AfterFirstStar { middle_segments: between, last }) }
    }

    /// Refuses a pattern that would be slow to match.
    pub fn check(pattern: &[u8]) -> Result<(), &'static str> {
        let pattern = Self::new(pattern);
        let between = pattern.rest.iter().flat_map(|rest| &rest.middle_segments);
        match between.map(|segment| segment.elements.len()).sum::<usize>() {
            0..=BETWEEN_STARS_MAX => Ok(()),
            _ => Err(TOO_LONG),
        }
    }

    /// Returns whether the pattern matches all of `text`.
    pub fn matches(&self, text: &[u8]) -> bool {
        let Some(AfterFirstStar { middle_segments: between, last }) = &self.rest else {
            return text.len() == self.first.len() && all_include(&self.first, text);
        };
        let Some((head, tail)) = text.split_at_checked(self.first.len()) else {
            return false;
        };
        let Some(end) = tail.len().checked_sub(last.len()) else {
            return false;
        };
        if !all_include(&self.first, head) || !all_include(last, &tail[end..]) {
            return false;
        }
        let (mut left, mut reached) = (&tail[..end], Vec::new());
        between.iter().all(|segment| {
            let taken = segment.find(left, &mut reached);
            left = &left[taken.unwrap_or(0)..];
            taken.is_some()
        })
    }
}

/// Parses one element. Returns it with the position after it.
fn element(pattern: &[u8], at: usize) -> (Element, usize) {
    match pattern[at] {
        b'?' => (Element::Any, at + 1),
        b'[' => class(pattern, at + 1),
        b'\\' if at + 1 < pattern.len() => (Element::Byte(pattern[at + 1]), at + 2),
        literal => (Element::Byte(literal), at + 1),
    }
}

/// Parses a bracket expression. Without a closing bracket, it extends to the end of the pattern.
fn class(pattern: &[u8], mut at: usize) -> (Element, usize) {
    let negated = pattern.get(at) == Some(&b'^');
    at += usize::from(negated);
    let mut class = Box::new([negated; 256]);
    let mut add = |from: u8, to: u8| {
        class[usize::from(from.min(to))..=usize::from(from.max(to))].fill(!negated);
    };
    loop {
        match (pattern.get(at), pattern.get(at + 1), pattern.get(at + 2)) {
            (None, _, _) => break,
            (Some(b']'), _, _) => {
                at += 1;
                break;
            }
            (Some(b'\\'), Some(&escaped), _) => {
                add(escaped, escaped);
                at += 2;
            }
            (Some(&from), Some(b'-'), Some(&to)) => {
                add(from, to);
                at += 3;
            }
            (Some(&literal), _, _) => {
                add(literal, literal);
                at += 1;
            }
        }
    }
    (Element::Class(class), at)
}

#[cfg(test)]
mod tests {
    use super::{Pattern, matches};

    #[test]
    fn patterns_match_as_in_redis() {
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

    /// Reference implementation: backtracks at every star, so it only suits short patterns.
    fn slow(pattern: &[u8], text: &[u8]) -> bool {
        let Some((first, rest)) = pattern.split_first() else {
            return text.is_empty();
        };
        if *first == b'*' {
            return (0..=text.len()).any(|at| slow(rest, &text[at..]));
        }
        let (element, behind) = super::element(pattern, 0);
        let (byte, left) = match text.split_first() {
            Some((byte, left)) => (*byte, left),
            None => return false,
        };
        element.includes(byte) && slow(&pattern[behind..], left)
    }

    #[test]
    fn patterns_match_as_with_exhaustive_search() {
        let mut dice = quorate_core::dice::Dice::new(7);
        let mut matched = 0;
        for _ in 0..20_000 {
            let mut draw = |letters: &[u8], most| -> Vec<u8> {
                (0..dice.below(most))
                    .map(|_| letters[dice.below(letters.len() as u64) as usize])
                    .collect()
            };
            let (pattern, text) = (draw(b"ab*?[]^-\\ab*", 16), draw(b"ab-]", 20));
            let expected = slow(&pattern, &text);
            assert_eq!(matches(&pattern, &text), expected, "{pattern:?} {text:?}");
            matched += usize::from(expected);
        }
        assert!(matched > 100, "{matched}");
        for length in [63, 64, 65, 128, 200, 1000] {
            let letters = "a".repeat(length);
            let pattern = format!("*{letters}b*");
            assert!(matches(pattern.as_bytes(), format!("{letters}a{letters}bb").as_bytes()));
            assert!(!matches(pattern.as_bytes(), format!("{letters}a{letters}c").as_bytes()));
        }
    }

    /// Matching takes linear time: in this test, the product of the two lengths would be 2^32
    /// steps.
    #[test]
    fn matching_takes_time_linear_in_the_pattern() {
        let text = "a".repeat(65_000);
        for pattern in
            ["a*".repeat(32_000) + "b", format!("*{}b", &text[..60_000]), format!("*[{text}]b*x")]
        {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()));
        }
        assert_eq!(Pattern::check(format!("*{}*", &text[..256]).as_bytes()), Ok(()));
        assert!(Pattern::check(format!("*{}*", &text[..257]).as_bytes()).is_err());
        assert_eq!(Pattern::check(format!("{text}*{text}").as_bytes()), Ok(()));
    }
}
