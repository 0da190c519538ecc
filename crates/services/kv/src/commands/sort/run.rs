//! SORT: execution on every node. Sorting is stable and compares bytes or IEEE 754 numbers, so all
//! nodes get the same result.

use std::{borrow::Cow, cmp::Ordering, ops::ControlFlow};

use super::order::Order;
use crate::{
    commands::{
        events::class,
        list::end::End,
        lock::is_lock,
        rows::{Change, View, cost, each_placed, placed},
        score::Score,
        state::{Items, ReadContext, WRONG_TYPE, WriteContext},
        zset,
    },
    encode::{Decoder, Fault},
    key::Key,
    resp::reply::Reply,
    store::{Position, Span, Store, collection::Kind},
};

/// Maximum number of elements to sort and keys to look up, in total.
const LOOKED_AT_MAX: u64 = 262_144;
/// Maximum total size in bytes of elements and sort weights.
const BYTES_MAX: u64 = 32 << 20;

const TOO_MUCH: &str =
    "TOOBIG not executed: SORT may look at 262144 elements and keys, with 32 MiB together";
/// Redis' error for a sort weight that is not a number.
const NOT_A_SCORE: &str = "ERR One or more scores can't be converted into double";

enum SortError {
    WrongType,
    TooMuchWork,
    NotAScore,
}

impl SortError {
    const fn text(&self) -> &'static str {
        match self {
            Self::WrongType => WRONG_TYPE,
            Self::TooMuchWork => TOO_MUCH,
            Self::NotAScore => NOT_A_SCORE,
        }
    }
}

/// Work of a command, to compare with its limits.
struct Work {
    examined: u64,
    bytes: u64,
}

impl Work {
    fn charge(&mut self, looked_at: u64, bytes: u64) -> Result<(), SortError> {
        self.examined = self.examined.saturating_add(looked_at);
        self.bytes = self.bytes.saturating_add(bytes);
        match self.examined <= LOOKED_AT_MAX && self.bytes <= BYTES_MAX {
            true => Ok(()),
            false => Err(SortError::TooMuchWork),
        }
    }
}

/// Pattern with a star as the placeholder for an element, optionally followed by a hash field.
struct Pattern<'a> {
    before_star: &'a [u8],
    after_star: &'a [u8],
    field: Option<&'a [u8]>,
}

impl<'a> Pattern<'a> {
    /// Parses a pattern. Returns `None` if it has no star.
    fn parse(text: &'a [u8]) -> Option<Self> {
        let star = text.iter().position(|&byte| byte == b'*')?;
        let (before, rest) = (&text[..star], &text[star + 1..]);
        let arrow = rest.windows(2).position(|pair| pair == b"->");
        let (behind, field) = match arrow {
            // An arrow at the end is part of the key.
            Some(at) if at + 2 < rest.len() => (&rest[..at], Some(&rest[at + 2..])),
            _ => (rest, None),
        };
        Some(Self { before_star: before, after_star: behind, field })
    }

    /// Looks up the string or hash field to which the pattern refers for an element.
    fn look_up(&self, store: &dyn Store, element: &[u8]) -> Option<Vec<u8>> {
        let key = [self.before_star, element, self.after_star].concat();
        let key = Key::new(&key).ok()?;
        match self.field {
            Some(field) => {
                let hash = View::at(store, key, Kind::Hash)?;
                Some(hash.row(&placed(b"", field))?.to_vec())
            }
            None => {
                let entry = store.get(key)?;
                let is_string = entry.kind == Kind::String && !is_lock(&entry.value);
                is_string.then(|| entry.value.to_vec())
            }
        }
    }
}

/// Value by which an element is sorted.
enum Weight {
    Itself,
    Number(Score),
    Bytes(Option<Vec<u8>>),
}

impl Weight {
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one), Self::Number(other)) => {
                one.partial_cmp(other).unwrap_or(Ordering::Equal)
            }
            (Self::Bytes(one), Self::Bytes(other)) => one.cmp(other),
            _ => Ordering::Equal,
        }
    }
}

fn elements(view: &View<'_>, kind: Kind, back: bool) -> Vec<Vec<u8>> {
    let mut elements = Vec::new();
    let mut add = |element: &[u8]| {
        elements.push(element.to_vec());
        ControlFlow::Continue(())
    };
    match kind {
        Kind::Zset => zset::range::all(view, back, &mut |member, _| add(member)),
        Kind::Set => each_placed(view, b"", Position::START, &mut |member, _| add(member)),
        _ => view.rows(Span { is_backward: back, ..Span::ALL }, &mut |_, value| add(value)),
    }
    elements
}

fn compute_weights(
    element: &[u8],
    order: &Order<'_>,
    by: Option<&Pattern<'_>>,
    store: &dyn Store,
    work: &mut Work,
) -> Result<Weight, SortError> {
    let found = match by {
        None => Some(Cow::Borrowed(element)),
        Some(pattern) => {
            let found = pattern.look_up(store, element);
            work.charge(1, found.as_ref().map_or(0, |found| found.len() as u64))?;
            found.map(Cow::Owned)
        }
    };
    match (order.alpha, found) {
        (true, _) if by.is_none() => Ok(Weight::Itself),
        (true, found) => Ok(Weight::Bytes(found.map(Cow::into_owned))),
        (false, None) => Ok(Weight::Number(Score::ZERO)),
        (false, Some(text)) if text.is_empty() => Ok(Weight::Number(Score::ZERO)),
        (false, Some(text)) => match Score::parse(&text) {
            Some(score) => Ok(Weight::Number(score)),
            None => Err(SortError::NotAScore),
        },
    }
}

/// Returns the elements selected by LIMIT, in the requested order.
fn sorted(
    key: Key<'_>,
    order: &Order<'_>,
    stores: bool,
    store: &dyn Store,
    work: &mut Work,
) -> Result<Vec<Vec<u8>>, SortError> {
    let Some(kind) = store.get(key).map(|entry| entry.kind) else {
        return Ok(Vec::new());
    };
    if !matches!(kind, Kind::List | Kind::Set | Kind::Zset) {
        return Err(SortError::WrongType);
    }
    let Some(view) = View::at(store, key, kind) else {
        return Ok(Vec::new());
    };
    work.charge(view.count(), view.header.bytes)?;
    let by = order.weight_pattern.map(Pattern::parse);
    let mut order = *order;
    let by = match by {
        // A set has no defined order, but a stored result must not depend on the stored form.
        Some(None) if kind == Kind::Set && stores => {
            order.alpha = true;
            None
        }
        Some(None) => return Ok(limited(elements(&view, kind, order.is_descending), order.limit)),
        Some(Some(pattern)) => Some(pattern),
        None => None,
    };
    let mut weighed = Vec::new();
    for element in elements(&view, kind, false) {
        let weight = compute_weights(&element, &order, by.as_ref(), store, work)?;
        weighed.push((weight, element));
    }
    weighed.sort_by(|(one, this), (other, that)| {
        let by_name = || match one {
            Weight::Bytes(_) => Ordering::Equal,
            _ => this.cmp(that),
        };
        let ordering = one.compare(other).then_with(by_name);
        if order.is_descending { ordering.reverse() } else { ordering }
    });
    let elements = weighed.into_iter().map(|(_, element)| element).collect();
    Ok(limited(elements, order.limit))
}

fn limited(elements: Vec<Vec<u8>>, (skipped, wanted): (i64, i64)) -> Vec<Vec<u8>> {
    let skipped = usize::try_from(skipped.max(0)).unwrap_or(usize::MAX);
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    elements.into_iter().skip(skipped).take(wanted).collect()
}

/// Returns the values for the reply; `None` for missing ones.
fn results(
    key: Key<'_>,
    order: &Order<'_>,
    stores: bool,
    store: &dyn Store,
) -> Result<Vec<Option<Vec<u8>>>, SortError> {
    let mut work = Work { examined: 0, bytes: 0 };
    let elements = sorted(key, order, stores, store, &mut work)?;
    if order.gets.is_empty() {
        return Ok(elements.into_iter().map(Some).collect());
    }
    let mut results = Vec::new();
    for element in elements {
        for get in order.gets {
            let found = match get {
                b"#" => Some(element.clone()),
                get => Pattern::parse(get).and_then(|get| get.look_up(store, &element)),
            };
            work.charge(1, found.as_ref().map_or(0, |found| found.len() as u64))?;
            results.push(found);
        }
    }
    Ok(results)
}

pub(super) fn sort(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, order) = (from.key()?, Order::decode(from)?);
    from.end()?;
    match results(key, &order, false, state.store) {
        Err(refused) => reply.error(refused.text()),
        Ok(results) => {
            let mut items = Items::default();
            for result in &results {
                items.next().optional(result.as_deref());
            }
            items.write(reply, Reply::array);
        }
    }
    Ok(())
}

/// Executes SORT with STORE. The list of results replaces any value of the target key.
pub(super) fn store(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let target = from.key()?;
    let (key, order) = (from.key()?, Order::decode(from)?);
    from.end()?;
    let results = match results(key, &order, true, state.store) {
        Err(refused) => {
            reply.error(refused.text());
            return Ok(());
        }
        Ok(results) => results,
    };
    let bytes = results.iter().flatten().map(|value| value.len() as u64);
    state.budget.charge_bytes(cost(results.len() as u64, bytes.sum()))?;
    let mut list = Change::new(state, target, Kind::List);
    for result in &results {
        list.push(End::Right, result.as_deref().unwrap_or_default());
    }
    list.close_in_place();
    if !results.is_empty() {
        state.event(class::LIST, "sortstore", target);
    }
    reply.count(results.len());
    Ok(())
}
