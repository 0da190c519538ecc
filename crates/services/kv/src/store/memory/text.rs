//! Row names and values. Short ones are stored inline, so a search need not follow a pointer.

use std::cmp::Ordering;

/// Maximum length of an inline text. With its length and tag, it takes four words, so a row fills
/// one cache line.
const INLINE_BYTES_MAX: usize = 30;

#[derive(Debug)]
pub(super) enum Text {
    /// Invariant: the bytes after `len` are zeros.
    Short {
        len: u8,
        bytes: [u8; INLINE_BYTES_MAX],
    },
    Long(Box<[u8]>),
}

/// Name to search for, in a form that is fast to compare many times.
#[derive(Debug)]
pub(super) struct SearchName<'n> {
    name: &'n [u8],
    words: Option<[u64; 4]>,
}

impl Text {
    pub(super) fn new(text: &[u8]) -> Self {
        match inline_parts(text) {
            Some((len, bytes)) => Self::Short { len, bytes },
            None => Self::Long(text.into()),
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(text) => text,
        }
    }

    /// Replaces the text and returns the length of the previous one.
    pub(super) fn set(&mut self, text: &[u8]) -> usize {
        let before = self.bytes().len();
        match self {
            Self::Long(old) if before == text.len() => old.copy_from_slice(text),
            _ => *self = Self::new(text),
        }
        before
    }

    /// Returns the approximate number of bytes on the heap for a text of length `len`.
    pub(super) const fn heap_bytes(len: usize) -> usize {
        const BLOCK: usize = 16;
        if len > INLINE_BYTES_MAX { len + BLOCK } else { 0 }
    }

    pub(super) fn compare(&self, sought: &SearchName<'_>) -> Ordering {
        match (self, &sought.words) {
            (Self::Short { len, bytes }, Some(words)) => {
                let first = word(bytes, 0).cmp(&words[0]);
                // The first word decides most comparisons.
                first.then_with(|| remaining_words(*len, bytes).as_slice().cmp(&words[1..]))
            }
            _ => self.bytes().cmp(sought.name),
        }
    }
}

impl<'n> SearchName<'n> {
    pub(super) fn new(name: &'n [u8]) -> Self {
        let words = inline_parts(name).map(|(len, bytes)| {
            let [second, third, fourth] = remaining_words(len, &bytes);
            [word(&bytes, 0), second, third, fourth]
        });
        Self { name, words }
    }

    pub(super) const fn bytes(&self) -> &'n [u8] {
        self.name
    }
}

fn inline_parts(text: &[u8]) -> Option<(u8, [u8; INLINE_BYTES_MAX])> {
    let mut bytes = [0; INLINE_BYTES_MAX];
    bytes.get_mut(..text.len())?.copy_from_slice(text);
    Some((u8::try_from(text.len()).ok()?, bytes))
}

/// Returns eight bytes as a number with the same order.
fn word(bytes: &[u8; INLINE_BYTES_MAX], from: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[from..from + 8]);
    u64::from_be_bytes(word)
}

/// Returns the words to compare if the first ones are equal: the remaining bytes, then the length,
/// in case one text is the other followed by zeros.
fn remaining_words(len: u8, bytes: &[u8; INLINE_BYTES_MAX]) -> [u64; 3] {
    let mut last = [0; 8];
    last[..INLINE_BYTES_MAX - 24].copy_from_slice(&bytes[24..]);
    last[7] = len;
    [word(bytes, 8), word(bytes, 16), u64::from_be_bytes(last)]
}

#[cfg(test)]
mod tests {
    use quorate_core::dice::Dice;

    use super::*;

    /// Generates texts over a small alphabet that includes zero, with lengths around the inline
    /// limit and word boundaries.
    fn any(dice: &mut Dice) -> Vec<u8> {
        let len = dice.index(INLINE_BYTES_MAX + 4);
        (0..len).map(|_| [0, 0, 0, 1, 255][dice.index(5)]).collect()
    }

    #[test]
    fn texts_compare_like_their_bytes() {
        let mut dice = Dice::new(22);
        for _ in 0..100_000 {
            let (one, mut two) = (any(&mut dice), any(&mut dice));
            if dice.index(2) == 0 {
                // Equal up to the end of the shorter one, or different only by zeros.
                two = one.clone();
                two.resize(dice.index(INLINE_BYTES_MAX + 4), 0);
            }
            let text = Text::new(&one);
            assert_eq!(text.bytes(), one);
            assert_eq!(text.compare(&SearchName::new(&two)), one.cmp(&two), "{one:?} {two:?}");
        }
    }

    #[test]
    fn text_has_32_bytes_and_can_be_set_to_any_other() {
        assert_eq!(size_of::<Text>(), 32);
        let mut dice = Dice::new(23);
        let mut text = Text::new(b"");
        for _ in 0..1000 {
            let (before, next) = (text.bytes().len(), any(&mut dice));
            assert_eq!(text.set(&next), before);
            assert_eq!(text.bytes(), next);
        }
    }
}
