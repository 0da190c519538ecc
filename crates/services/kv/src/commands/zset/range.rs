//! Ranges of a sorted set by rank, score or name, and the queries that use them.

use std::ops::ControlFlow;

use super::members::{ORDER, order_row};
use crate::{
    command::{Refusal, Request, SYNTAX},
    commands::{
        elements::index_range,
        rows::{View, after},
        score::Score,
    },
    encode::{Decoder, Encoder, Malformed},
    store::Span,
};

const NOT_A_SCORE: &str = "ERR min or max is not a float";
const NOT_A_NAME: &str = "ERR min or max not valid string range item";
const LIMIT_OF_RANKS: &str =
    "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
const SCORES_OF_NAMES: &str =
    "ERR syntax error, WITHSCORES not supported in combination with BYLEX";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    Rank,
    Score,
    Name,
}

/// Bound of a range of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    /// `-`, which sorts before every name.
    Least,
    /// `+`, which sorts after every name.
    Most,
    /// `[name`, an inclusive bound.
    Including(&'a [u8]),
    /// `(name`, an exclusive bound.
    Excluding(&'a [u8]),
}

impl<'a> Name<'a> {
    fn parse(text: &'a [u8]) -> Result<Self, Refusal> {
        match text {
            b"-" => Ok(Self::Least),
            b"+" => Ok(Self::Most),
            [b'[', name @ ..] => Ok(Self::Including(name)),
            [b'(', name @ ..] => Ok(Self::Excluding(name)),
            _ => Err(NOT_A_NAME.into()),
        }
    }

    fn encode(self, out: &mut Encoder<'_>) {
        match self {
            Self::Least => out.byte(0),
            Self::Most => out.byte(1),
            Self::Including(name) => out.byte(2).bytes(name),
            Self::Excluding(name) => out.byte(3).bytes(name),
        };
    }

    fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        Ok(match from.byte()? {
            0 => Self::Least,
            1 => Self::Most,
            2 => Self::Including(from.bytes()?),
            3 => Self::Excluding(from.bytes()?),
            _ => return Err(Malformed),
        })
    }

    /// Returns whether a name satisfies this lower bound.
    fn is_reached_by(self, name: &[u8]) -> bool {
        match self {
            Self::Least => true,
            Self::Most => false,
            Self::Including(end) => name >= end,
            Self::Excluding(end) => name > end,
        }
    }

    /// Returns whether a name satisfies this upper bound.
    fn reaches(self, name: &[u8]) -> bool {
        match self {
            Self::Least => false,
            Self::Most => true,
            Self::Including(end) => name <= end,
            Self::Excluding(end) => name < end,
        }
    }
}

/// Bound of a range of scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    score: Score,
    excluded: bool,
}

impl Limit {
    fn parse(text: &[u8]) -> Result<Self, Refusal> {
        let (excluded, text) = match text {
            [b'(', rest @ ..] => (true, rest),
            text => (false, text),
        };
        // As in Redis, a parenthesis alone excludes 0.
        let bare = excluded && text.is_empty();
        let score = if bare { Some(Score::ZERO) } else { Score::parse(text) };
        Ok(Self { score: score.ok_or(NOT_A_SCORE)?, excluded })
    }

    fn encode(self, out: &mut Encoder<'_>) {
        out.byte(u8::from(self.excluded)).bytes(&self.score.to_bytes());
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let excluded = from.byte()? != 0;
        let score = Score::from_bytes(from.bytes()?).ok_or(Malformed)?;
        Ok(Self { score, excluded })
    }

    /// Returns the first row that has this score, in the order of scores. With `behind`, returns
    /// the end of such rows.
    fn row(self, behind: bool) -> Vec<u8> {
        let order = u64::from_be_bytes(self.score.order());
        // Never saturates, because no score is encoded as `u64::MAX`.
        let order = order.saturating_add(u64::from(behind));
        [&[ORDER][..], &order.to_be_bytes()].concat()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Range<'a> {
    Ranks(i64, i64),
    Scores(Limit, Limit),
    Names(Name<'a>, Name<'a>),
}

pub(crate) type Visit<'v> = dyn FnMut(&[u8], Score) -> ControlFlow<()> + 'v;

impl<'a> Range<'a> {
    /// Returns the name of the event for the removal of the range.
    pub(super) const fn removed(&self) -> &'static str {
        match self {
            Self::Ranks(..) => "zremrangebyrank",
            Self::Scores(..) => "zremrangebyscore",
            Self::Names(..) => "zremrangebylex",
        }
    }

    pub(super) fn scores(least: &[u8], most: &[u8]) -> Result<Self, Refusal> {
        Ok(Self::Scores(Limit::parse(least)?, Limit::parse(most)?))
    }

    pub(super) fn names(least: &'a [u8], most: &'a [u8]) -> Result<Self, Refusal> {
        Ok(Self::Names(Name::parse(least)?, Name::parse(most)?))
    }

    pub(super) fn encode(&self, out: &mut Encoder<'_>) {
        match *self {
            Self::Ranks(start, stop) => {
                out.byte(0).signed(start).signed(stop);
            }
            Self::Scores(least, most) => {
                least.encode(out.byte(1));
                most.encode(out);
            }
            Self::Names(least, most) => {
                least.encode(out.byte(2));
                most.encode(out);
            }
        }
    }

    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        match from.byte()? {
            0 => Ok(Self::Ranks(from.signed()?, from.signed()?)),
            1 => Ok(Self::Scores(Limit::decode(from)?, Limit::decode(from)?)),
            2 => Ok(Self::Names(Name::decode(from)?, Name::decode(from)?)),
            _ => Err(Malformed),
        }
    }

    /// Visits the members in order of score, backwards if `back`, without the first `skip`.
    pub(super) fn visit(self, view: &View<'_>, back: bool, skip: u64, visit: &mut Visit<'_>) {
        if let Self::Ranks(start, stop) = self {
            if let Some((first, behind)) = index_range(start, stop, view.count()) {
                let skip = skip.min(behind - first);
                by_rank(view, first + skip, behind, back, visit);
            }
            return;
        }
        if let Some((mut from, mut to)) = self.ends(view) {
            let left = match passed(view, &mut from, &mut to, back, skip) {
                true => 0,
                false => skip,
            };
            return in_order(view, &from, &to, back, &mut skipping(left, visit));
        }
        if let Self::Names(least, most) = self {
            let mut visit = skipping(skip, visit);
            all(view, back, &mut |member, score| {
                if least.is_reached_by(member) && most.reaches(member) {
                    return visit(member, score);
                }
                ControlFlow::Continue(())
            });
        }
    }

    pub(super) fn count(self, view: &View<'_>) -> u64 {
        let ends = self.ends(view);
        let ranks = ends.and_then(|(from, to)| Some((view.rank(&from)?, view.rank(&to)?)));
        if let Some((first, behind)) = ranks {
            return behind.saturating_sub(first);
        }
        let mut count = 0;
        self.visit(view, false, 0, &mut |_, _| {
            count += 1;
            ControlFlow::Continue(())
        });
        count
    }

    /// Returns the range of rows in order of score, or `None` if it could include other members.
    fn ends(&self, view: &View<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        match *self {
            Self::Ranks(..) => None,
            Self::Scores(least, most) => {
                Some((least.row(least.excluded), most.row(!most.excluded)))
            }
            Self::Names(least, most) => by_name(view, least, most),
        }
    }
}

impl View<'_> {
    /// Returns the rank of a row in the order of scores, or `None` if the store has no ranks.
    pub(super) fn rank(&self, row: &[u8]) -> Option<u64> {
        let rank = |row: &[u8]| self.store.rank(self.header.id, row);
        Some(rank(row)?.saturating_sub(rank(&[ORDER])?))
    }

    fn nth(&self, rank: u64) -> Option<Vec<u8>> {
        let first = self.store.rank(self.header.id, &[ORDER])?;
        self.store.nth(self.header.id, first.saturating_add(rank))
    }
}

/// Wraps a visitor to skip the first `count` members.
fn skipping(count: u64, visit: &mut Visit<'_>) -> impl FnMut(&[u8], Score) -> ControlFlow<()> {
    let mut left = count;
    move |member, score| {
        if left > 0 {
            left -= 1;
            return ControlFlow::Continue(());
        }
        visit(member, score)
    }
}

/// Moves one end of a range past `count` members. Returns `false` if the store cannot find rows by
/// rank.
fn passed(view: &View<'_>, from: &mut Vec<u8>, to: &mut Vec<u8>, back: bool, count: u64) -> bool {
    if count == 0 {
        return true;
    }
    let (Some(first), Some(behind)) = (view.rank(from), view.rank(to)) else {
        return false;
    };
    if count >= behind.saturating_sub(first) {
        to.clone_from(from);
        return true;
    }
    let edge = match back {
        false => view.nth(first + count),
        true => view.nth(behind - count - 1),
    };
    match edge {
        Some(edge) if back => *to = after(edge),
        Some(edge) => *from = edge,
        None => return false,
    }
    true
}

/// Visits the members between two rows in the order of scores.
fn in_order(view: &View<'_>, from: &[u8], to: &[u8], back: bool, visit: &mut Visit<'_>) {
    let span = Span { from, to: Some(to), is_backward: back };
    view.rows(span, &mut |name, _| {
        let order = name.get(1..).and_then(<[u8]>::split_first_chunk);
        let Some((order, member)) = order else {
            return ControlFlow::Continue(());
        };
        match Score::from_order(*order) {
            Some(score) => visit(member, score),
            None => ControlFlow::Continue(()),
        }
    });
}

/// Visits the members with scores from `least` to before `end`.
pub(crate) fn between(view: &View<'_>, least: Score, end: Score, visit: &mut Visit<'_>) {
    let row = |score| Limit { score, excluded: false }.row(false);
    in_order(view, &row(least), &row(end), false, visit);
}

/// Visits all members in order of score.
pub(crate) fn all(view: &View<'_>, back: bool, visit: &mut Visit<'_>) {
    in_order(view, &[ORDER], &[ORDER + 1], back, visit);
}

/// Visits the members with the ranks `first..behind`, counted from the highest score if `back`. If
/// the store cannot find rows by rank, the walk starts from the nearer end.
fn by_rank(view: &View<'_>, first: u64, behind: u64, back: bool, visit: &mut Visit<'_>) {
    let (wanted, from_end) = (behind - first, view.count().saturating_sub(first));
    let (mut from, mut to, mut skipped) = (vec![ORDER], vec![ORDER + 1], first);
    if passed(view, &mut from, &mut to, back, first) {
        skipped = 0;
    } else if from_end < first {
        let (mut at, mut edge) = (0, None);
        all(view, !back, &mut |member, score| {
            at += 1;
            if at < from_end {
                return ControlFlow::Continue(());
            }
            edge = Some(order_row(member, score));
            ControlFlow::Break(())
        });
        let Some(edge) = edge else { return };
        skipped = 0;
        match back {
            true => to = after(edge),
            false => from = edge,
        }
    }
    let mut at = 0;
    in_order(view, &from, &to, back, &mut |member, score| {
        at += 1;
        if at <= skipped {
            return ControlFlow::Continue(());
        }
        if at > skipped + wanted {
            return ControlFlow::Break(());
        }
        visit(member, score)
    });
}

/// Returns the rows of the names from `least` to `most` if all scores are equal. Otherwise returns
/// `None`: all names must be compared, and Redis leaves the result undefined.
fn by_name(view: &View<'_>, least: Name<'_>, most: Name<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
    let mut ends = [None, None];
    for (end, back) in ends.iter_mut().zip([false, true]) {
        all(view, back, &mut |_, score| {
            *end = Some(score);
            ControlFlow::Break(())
        });
    }
    let nothing = || (vec![ORDER], vec![ORDER]);
    let [Some(lowest), Some(highest)] = ends else {
        return Some(nothing());
    };
    if lowest.order() != highest.order() {
        return None;
    }
    let prefix = [&[ORDER][..], &lowest.order()].concat();
    let from = match least {
        Name::Least => prefix.clone(),
        Name::Including(name) => [&prefix, name].concat(),
        Name::Excluding(name) => [&prefix, name, &[0]].concat(),
        Name::Most => return Some(nothing()),
    };
    let to = match most {
        Name::Most => vec![ORDER + 1],
        Name::Including(name) => [&prefix, name, &[0]].concat(),
        Name::Excluding(name) => [&prefix, name].concat(),
        Name::Least => return Some(nothing()),
    };
    Some((from, to))
}

/// Arguments of ZRANGE and its variants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    pub(super) range: Range<'a>,
    pub(super) back: bool,
    /// Number of members to skip; a negative number skips all.
    offset: i64,
    /// Maximum number of members; unlimited if negative.
    most: i64,
    pub(super) scores: bool,
}

impl<'a> Query<'a> {
    /// Parses `start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]`. Some commands
    /// imply options by their name.
    pub(super) fn parse(
        r: &Request<'a>,
        from: usize,
        mut by: Option<By>,
        mut back: Option<bool>,
        may_have_scores: bool,
    ) -> Result<Self, Refusal> {
        let (says_by, says_back) = (by.is_none(), back.is_none());
        let (mut limit, mut scores) = (None, false);
        let mut at = from + 2;
        while at < r.arguments.len() {
            if may_have_scores && r.is(at, "withscores") {
                scores = true;
            } else if r.is(at, "limit") && at + 2 < r.arguments.len() {
                limit = Some((r.integer(at + 1)?, r.integer(at + 2)?));
                at += 2;
            } else if says_back && r.is(at, "rev") {
                back = Some(true);
            } else if says_by && r.is(at, "bylex") {
                by = Some(By::Name);
            } else if says_by && r.is(at, "byscore") {
                by = Some(By::Score);
            } else {
                return Err(SYNTAX.into());
            }
            at += 1;
        }
        let (by, back) = (by.unwrap_or(By::Rank), back.unwrap_or(false));
        if limit.is_some() && by == By::Rank {
            return Err(LIMIT_OF_RANKS.into());
        }
        if scores && by == By::Name {
            return Err(SCORES_OF_NAMES.into());
        }
        let (mut first, mut last) = (from, from + 1);
        if back && by != By::Rank {
            (first, last) = (last, first);
        }
        let range = match by {
            By::Rank => Range::Ranks(r.integer(first)?, r.integer(last)?),
            By::Score => Range::scores(r.at(first), r.at(last))?,
            By::Name => Range::names(r.at(first), r.at(last))?,
        };
        let (offset, most) = limit.unwrap_or((0, -1));
        Ok(Self { range, back, offset, most, scores })
    }

    pub(super) fn encode(&self, out: &mut Encoder<'_>) {
        self.range.encode(out);
        out.byte(u8::from(self.back) | u8::from(self.scores) << 1)
            .signed(self.offset)
            .signed(self.most);
    }

    pub(super) fn decode(from: &mut Decoder<'a>) -> Result<Self, Malformed> {
        let range = Range::decode(from)?;
        let flags = from.byte()?;
        Ok(Self {
            range,
            back: flags & 1 != 0,
            scores: flags & 2 != 0,
            offset: from.signed()?,
            most: from.signed()?,
        })
    }

    pub(super) fn visit(&self, view: &View<'_>, visit: &mut Visit<'_>) {
        let Ok(skip) = u64::try_from(self.offset) else {
            return;
        };
        let mut left = u64::try_from(self.most).unwrap_or(u64::MAX);
        if left == 0 {
            return;
        }
        self.range.visit(view, self.back, skip, &mut |member, score| {
            left -= 1;
            visit(member, score)?;
            match left {
                0 => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
    }
}
