//! The two rows of each member of a sorted set: one by name, which stores the score, and one in the
//! order of scores.

use crate::commands::{
    rows::{Change, View, placed},
    score::Score,
};

/// Prefix of the rows by name, which store the scores. Part of the stored format.
pub(crate) const MEMBER: &[u8] = &[0];
/// Prefix of the rows in the order of scores. Part of the stored format.
pub(super) const ORDER: u8 = 1;

/// Formats the score in a member's row as Redis does.
pub(crate) fn score_text(value: &[u8]) -> String {
    Score::from_bytes(value).unwrap_or(Score::ZERO).text()
}

/// A member and its score.
pub(super) type Member = (Vec<u8>, Score);

impl View<'_> {
    pub(super) fn score(&self, member: &[u8]) -> Option<Score> {
        Score::from_bytes(&self.row(&placed(MEMBER, member))?)
    }
}

pub(super) fn order_row(member: &[u8], score: Score) -> Vec<u8> {
    [&[ORDER][..], &score.order(), member].concat()
}

impl Change<'_, '_> {
    /// Sets the score of a member. `old` is its current score; `None` if the member does not exist
    /// yet.
    pub(super) fn score(&mut self, member: &[u8], old: Option<Score>, new: Score) {
        if let Some(old) = old {
            self.remove_extra(&order_row(member, old));
        }
        self.put_extra(&order_row(member, new), b"");
        let length = old.map(|_| Score::BYTES);
        let score = new.kept().to_bytes();
        self.put_known(&placed(MEMBER, member), &score, length);
    }

    /// Removes both rows of a member that has this score.
    pub(super) fn drop_member(&mut self, member: &[u8], score: Score) {
        self.remove_extra(&order_row(member, score));
        self.remove_known(&placed(MEMBER, member), Score::BYTES);
    }
}
