//! Durability class at which a client's commands are answered ([class-2]). The client selects it by
//! sending a word in place of a command's length; it applies to later commands on the connection.

/// Durability class at which a connection's commands are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnswerClass {
    /// Answered once the group has decided the command; the default.
    #[default]
    Group,
    /// Answered once the command is on stable storage at a quorum, whatever the class of the group.
    Durable,
    /// Answered once the command is in memory at a quorum, whatever the class of the group.
    Volatile,
}

impl AnswerClass {
    /// All classes, in declaration order.
    pub const ALL: [Self; 3] = [Self::Group, Self::Durable, Self::Volatile];

    /// Returns the word by which a client selects this class.
    pub const fn as_word(self) -> &'static [u8] {
        match self {
            Self::Group => b"CLASS group\r\n",
            Self::Durable => b"CLASS durable\r\n",
            Self::Volatile => b"CLASS volatile\r\n",
        }
    }

    /// Returns the name of the class that the reply contains.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Durable => "durable",
            Self::Volatile => "volatile",
        }
    }
}

/// Returns whether the input starts with a complete or incomplete word.
pub(super) fn begins_with_word(input: &[u8]) -> bool {
    let mut words = AnswerClass::ALL.iter().map(|asked| asked.as_word());
    words.any(|word| input.starts_with(word) || word.starts_with(input))
}

/// Parses a complete word. Returns the class that it selects and its length.
pub(super) fn parse_word(input: &[u8]) -> Option<(AnswerClass, usize)> {
    let mut all = AnswerClass::ALL.into_iter();
    let asked = all.find(|asked| input.starts_with(asked.as_word()))?;
    Some((asked, asked.as_word().len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_words_are_parsed_only_when_complete() {
        for asked in AnswerClass::ALL {
            let word = asked.as_word();
            for cut in 0..word.len() {
                assert!(begins_with_word(&word[..cut]));
                assert_eq!(parse_word(&word[..cut]), None);
            }
            let more = [word, b"more"].concat();
            assert!(begins_with_word(&more));
            assert_eq!(parse_word(&more), Some((asked, word.len())));
        }
        for other in [&b"CLASS x"[..], b"INFO\r\n", b"\xff", b"CLASS durable\rx"] {
            assert!(!begins_with_word(other));
        }
    }
}
