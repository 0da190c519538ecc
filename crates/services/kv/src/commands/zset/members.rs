//! The two rows of each sorted set member: one keyed by name with the score as value, one by score.

use crate::commands::{
    rows::{Change, View, placed},
    score::Score,
};

/// Prefix of the rows by name, which contain the scores. Part of the stored format.
pub(crate) const MEMBER: &[u8] = &[0];
/// Prefix of the rows by score. Part of the stored format.
pub(super) const ORDER: u8 = 1;

/// Formats a stored score as Redis does.
pub(crate) fn score_text(value: &[u8]) -> String {
    Score::from_bytes(value).unwrap_or(Score::ZERO).text()
}

pub(crate) type Member = (Vec<u8>, Score);

impl View<'_> {
    pub(crate) fn score(&self, member: &[u8]) -> Option<Score> {
        Score::from_bytes(&self.row(&placed(MEMBER, member))?)
    }
}

pub(super) fn order_row(member: &[u8], score: Score) -> Vec<u8> {
    [&[ORDER][..], &score.order(), member].concat()
}

impl Change<'_, '_> {
    /// Sets the score of a member. `old` is the current score, if the member exists.
    pub(super) fn score(&mut self, member: &[u8], old: Option<Score>, new: Score) {
        if let Some(old) = old {
            self.remove_extra(&order_row(member, old));
        }
        self.put_extra(&order_row(member, new), b"");
        let length = old.map(|_| Score::BYTES);
        let score = new.kept().to_bytes();
        self.put_known(&placed(MEMBER, member), &score, length);
    }

    pub(super) fn drop_member(&mut self, member: &[u8], score: Score) {
        self.remove_extra(&order_row(member, score));
        self.remove_known(&placed(MEMBER, member), Score::BYTES);
    }
}
