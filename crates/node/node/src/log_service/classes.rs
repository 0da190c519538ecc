//! The class that a client of the log service asks for ([class-2]): a word where a length is expected, valid for the
//! commands of its connection that follow.

/// Replies wait until the command is on stable storage at a quorum, whatever class the group decides by.
pub const DURABLE: &[u8] = b"CLASS durable\r\n";
/// Replies come when the group has decided; so it is at first.
pub const GROUP: &[u8] = b"CLASS group\r\n";

/// The words, and whether replies wait.
const WORDS: [(&[u8], bool); 2] = [(DURABLE, true), (GROUP, false)];

/// Whether a word begins here, or may with more bytes.
pub(super) fn begins(input: &[u8]) -> bool {
    let mut words = WORDS.iter();
    words.any(|(word, _)| input.starts_with(word) || word.starts_with(input))
}

/// Looks for a whole word: whether replies wait from there on, and how long it is.
pub(super) fn find(input: &[u8]) -> Option<(bool, usize)> {
    let mut words = WORDS.iter();
    let (word, lasting) = words.find(|(word, _)| input.starts_with(word))?;
    Some((*lasting, word.len()))
}

/// What the reply to a word says.
pub(super) const fn name(lasting: bool) -> &'static str {
    if lasting { "durable" } else { "group" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_however_they_are_cut_and_nothing_else_is() {
        for (word, lasting) in WORDS {
            for cut in 0..word.len() {
                assert!(begins(&word[..cut]));
                assert_eq!(find(&word[..cut]), None);
            }
            let more = [word, b"more"].concat();
            assert!(begins(&more));
            assert_eq!(find(&more), Some((lasting, word.len())));
        }
        for other in [&b"CLASS x"[..], b"INFO\r\n", b"\xff", b"CLASS durable\rx"] {
            assert!(!begins(other));
        }
    }
}
