//! Lists: execution on every node.
//!
//! Rows are named by consecutive positions, and the header contains the first one. Thus both ends
//! and every index are found directly, and a change in the middle moves only the shorter side.

use std::ops::ControlFlow;

use super::end::End;
use crate::{
    commands::{
        budget::COPIED_BYTES_MAX,
        elements::index_range,
        events::class,
        rows::{Change, View, cost, view},
        state::{Items, ReadContext, TOO_LARGE, WriteContext},
    },
    encode::{Decoder, Fault},
    key::Key,
    op::Op,
    resp::reply::Reply,
    store::{Span, Store, collection::Kind},
};

impl View<'_> {
    /// Returns the row name of the element at `index`.
    const fn row_name(&self, index: u64) -> [u8; 8] {
        self.header.first.wrapping_add(index).to_be_bytes()
    }

    /// Visits the elements in a half-open range with their indexes, in order or backwards.
    fn elements(
        &self,
        from: u64,
        to: u64,
        back: bool,
        visit: &mut dyn FnMut(u64, &[u8]) -> ControlFlow<()>,
    ) {
        let (first, behind) = (self.row_name(from), self.row_name(to));
        let span = Span { from: &first, to: Some(&behind), is_backward: back };
        self.rows(span, &mut |name, value| {
            let place = name.first_chunk().map_or(0, |place| u64::from_be_bytes(*place));
            visit(place.wrapping_sub(self.header.first), value)
        });
    }

    /// Resolves an index; negative ones count from the end. Returns `None` if it is out of range.
    fn number(&self, index: i64) -> Option<u64> {
        let number = match u64::try_from(index) {
            Ok(index) => index,
            Err(_) => self.count().checked_sub(index.unsigned_abs())?,
        };
        (number < self.count()).then_some(number)
    }
}

impl Change<'_, '_> {
    pub(crate) fn push(&mut self, end: End, value: &[u8]) {
        let place = match end {
            End::Left => {
                self.header.first = self.header.first.wrapping_sub(1);
                self.header.first
            }
            End::Right => self.header.first.wrapping_add(self.header.count),
        };
        self.put_known(&place.to_be_bytes(), value, None);
    }

    /// Removes the element at one end. Its value has `bytes` bytes.
    fn drop_end(&mut self, end: End, bytes: usize) {
        let place = match end {
            End::Left => self.header.first,
            End::Right => self.header.first.wrapping_add(self.header.count).wrapping_sub(1),
        };
        self.remove_known(&place.to_be_bytes(), bytes);
        if end == End::Left {
            self.header.first = self.header.first.wrapping_add(1);
        }
    }

    fn list(&self, from: u64, to: u64) -> Vec<Vec<u8>> {
        let mut values = Vec::new();
        self.view().elements(from, to, false, &mut |_, value| {
            values.push(value.to_vec());
            ControlFlow::Continue(())
        });
        values
    }

    /// Replaces the elements in a half-open range. The range includes the nearer end of the list
    /// (the left one if `left`), so no element outside it moves.
    fn replace(&mut self, from: u64, to: u64, old: &[Vec<u8>], new: &[&[u8]], left: bool) {
        let first = self.header.first;
        for (number, value) in (from..to).zip(old) {
            let place = first.wrapping_add(number);
            self.remove_known(&place.to_be_bytes(), value.len());
        }
        let start = match left {
            true => first.wrapping_add(to).wrapping_sub(new.len() as u64),
            false => first.wrapping_add(from),
        };
        for (number, value) in (0..).zip(new) {
            let place = start.wrapping_add(number);
            self.put_known(&place.to_be_bytes(), value, None);
        }
        if left {
            self.header.first = start;
        }
    }
}

/// Returns the budget charge for a half-open range, based on the actual lengths of its elements.
fn part_cost(view: &View<'_>, from: u64, to: u64) -> usize {
    let mut bytes = 0_u64;
    view.elements(from, to, false, &mut |_, value| {
        bytes = bytes.saturating_add(value.len() as u64);
        match bytes > COPIED_BYTES_MAX as u64 {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    cost(to.saturating_sub(from), bytes)
}

pub(super) fn index(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, index) = (from.key()?, from.signed()?);
    from.end()?;
    if let Ok(list) = view(state.store, key, Kind::List, reply) {
        let value = list.and_then(|list| list.row(&list.row_name(list.number(index)?)));
        reply.optional(value.as_deref());
    }
    Ok(())
}

pub(super) fn range(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, start, stop) = (from.key()?, from.signed()?, from.signed()?);
    from.end()?;
    let Ok(list) = view(state.store, key, Kind::List, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    let range = list.and_then(|list| Some((list, index_range(start, stop, list.count())?)));
    if let Some((list, (first, behind))) = range {
        list.elements(first, behind, false, &mut |_, value| {
            items.next().bulk(value);
            items.continue_if_fits()
        });
    }
    items.write(reply, Reply::array);
    Ok(())
}

pub(super) fn position(
    from: &mut Decoder<'_>,
    state: &ReadContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, element) = (from.key()?, from.bytes()?);
    let (rank, most) = (from.signed()?, from.count()?);
    let count = match from.byte()? {
        0 => None,
        1 => Some(from.count()?),
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(list) = view(state.store, key, Kind::List, reply) else {
        return Ok(());
    };
    let mut items = Items::default();
    let mut first = None;
    if let Some(list) = list {
        let (mut to_skip, mut looked_at) = (rank.unsigned_abs().saturating_sub(1), 0);
        let wanted = match count {
            None => 1,
            Some(0) => u64::MAX,
            Some(count) => count,
        };
        list.elements(0, list.count(), rank < 0, &mut |number, value| {
            if most > 0 && looked_at == most {
                return ControlFlow::Break(());
            }
            looked_at += 1;
            if value == element {
                if to_skip > 0 {
                    to_skip -= 1;
                    return ControlFlow::Continue(());
                }
                let number = i64::try_from(number).unwrap_or(i64::MAX);
                first.get_or_insert(number);
                items.next().integer(number);
                if items.count() as u64 >= wanted || items.exceed_reply_limit() {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        });
    }
    match (count, first) {
        (Some(_), _) => items.write(reply, Reply::array),
        (None, Some(first)) => reply.integer(first),
        (None, None) => reply.null(),
    }
    Ok(())
}

/// Executes LPUSH, RPUSH, LPUSHX or RPUSHX.
pub(super) fn push(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, end, present) = (from.key()?, End::decode(from)?, from.byte()? != 0);
    let values = from.list()?;
    from.end()?;
    if values.is_empty() {
        return Err(Fault::Malformed);
    }
    let list = match present {
        true => Change::find(state, key, Kind::List, reply),
        false => Change::open(state, key, Kind::List, reply).map(Some),
    };
    let Ok(list) = list else {
        return Ok(());
    };
    let Some(mut list) = list else {
        reply.integer(0);
        return Ok(());
    };
    for value in values {
        list.push(end, value);
    }
    reply.integer(i64::try_from(list.header.count).unwrap_or(i64::MAX));
    list.close();
    state.event(class::LIST, end.pushed(), key);
    Ok(())
}

/// Pops up to `most` elements from one end. If the reply would be too large, pops nothing, and the
/// reply becomes an error.
fn pop_elements(list: &mut Change<'_, '_>, end: End, most: u64) -> Items {
    let most = most.min(list.header.count);
    let (mut items, mut lengths) = (Items::default(), Vec::new());
    let (from, to) = match end {
        End::Left => (0, most),
        End::Right => (list.header.count - most, list.header.count),
    };
    list.view().elements(from, to, end == End::Right, &mut |_, value| {
        items.next().bulk(value);
        lengths.push(value.len());
        items.continue_if_fits()
    });
    if !items.exceed_reply_limit() {
        for bytes in lengths {
            list.drop_end(end, bytes);
        }
    }
    items
}

pub(super) fn pop(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, end) = (from.key()?, End::decode(from)?);
    let count = match from.byte()? {
        0 => None,
        1 => Some(from.count()?),
        _ => return Err(Fault::Malformed),
    };
    from.end()?;
    let Ok(list) = Change::find(state, key, Kind::List, reply) else {
        return Ok(());
    };
    let Some(mut list) = list else {
        match count {
            None => reply.null(),
            Some(_) => reply.null_array(),
        }
        return Ok(());
    };
    if count == Some(0) {
        reply.array(0);
        return Ok(());
    }
    let before = list.header.count;
    let items = pop_elements(&mut list, end, count.unwrap_or(1));
    if list.header.count < before {
        list.event(class::LIST, end.popped());
        list.close();
    }
    match count {
        None => items.write(reply, |_, _| {}),
        Some(_) => items.write(reply, Reply::array),
    }
    Ok(())
}

/// Executes LMPOP.
pub(super) fn pop_first(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (end, count, keys) = (End::decode(from)?, from.count()?, from.keys()?);
    from.end()?;
    for key in keys {
        if pop_from(key, end, Some(count), state, reply) {
            return Ok(());
        }
    }
    reply.null_array();
    Ok(())
}

/// Pops from a list. Replies like LMPOP if there is a count, otherwise like BLPOP. If the list is
/// absent, returns `false` and writes nothing.
pub(crate) fn pop_from(
    key: Key<'_>,
    end: End,
    count: Option<u64>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> bool {
    let mut list = match Change::find(state, key, Kind::List, reply) {
        Err(_) => return true,
        Ok(None) => return false,
        Ok(Some(list)) => list,
    };
    let items = pop_elements(&mut list, end, count.unwrap_or(1));
    if items.exceed_reply_limit() {
        reply.error(TOO_LARGE);
        return true;
    }
    list.event(class::LIST, end.popped());
    list.close();
    reply.array(2);
    reply.bulk(key.bytes());
    match count {
        None => items.write(reply, |_, _| {}),
        Some(_) => items.write(reply, Reply::array),
    }
    true
}

pub(super) fn set(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, index, value) = (from.key()?, from.signed()?, from.bytes()?);
    from.end()?;
    let Ok(list) = Change::find(state, key, Kind::List, reply) else {
        return Ok(());
    };
    let Some(mut list) = list else {
        reply.error("ERR no such key");
        return Ok(());
    };
    let view = list.view();
    let Some(place) = view.number(index).map(|number| view.row_name(number)) else {
        reply.error("ERR index out of range");
        return Ok(());
    };
    list.put(&place, value);
    list.close();
    state.event(class::LIST, "lset", key);
    reply.ok();
    Ok(())
}

/// Executes LTRIM. Removes the elements outside the range, or copies those inside it if these are
/// fewer.
pub(super) fn trim(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, start, stop) = (from.key()?, from.signed()?, from.signed()?);
    from.end()?;
    let Ok(list) = Change::find(state, key, Kind::List, reply) else {
        return Ok(());
    };
    let Some(mut list) = list else {
        reply.ok();
        return Ok(());
    };
    let count = list.header.count;
    let Some((first, behind)) = index_range(start, stop, count) else {
        list.event(class::LIST, "ltrim");
        list.state.delete(key);
        reply.ok();
        return Ok(());
    };
    let kept = behind - first;
    if kept < count - kept {
        let copied = part_cost(&list.view(), first, behind);
        list.state.budget.charge_bytes(copied)?;
        let (values, deadline) = (list.list(first, behind), list.deadline());
        let mut short = Change::new(list.state, key, Kind::List).until(deadline);
        for value in &values {
            short.push(End::Right, value);
        }
        short.close();
        state.event(class::LIST, "ltrim", key);
    } else {
        let view = list.view();
        let removed = [(behind, count), (0, first)].map(|(from, to)| part_cost(&view, from, to));
        list.state.budget.charge_bytes(removed[0].saturating_add(removed[1]))?;
        for (end, from, to) in [(End::Right, behind, count), (End::Left, 0, first)] {
            for value in list.list(from, to) {
                // All elements of this end are removed, so only the sum of their lengths matters.
                list.drop_end(end, value.len());
            }
        }
        // As in Redis, the event is generated even if no element was removed.
        list.event(class::LIST, "ltrim");
        if kept < count {
            list.close();
        }
    }
    reply.ok();
    Ok(())
}

/// Returns the number of elements that LREM removes, with their lowest and highest index.
fn equals(list: &View<'_>, count: i64, element: &[u8]) -> (u64, u64, u64) {
    let most = match count.unsigned_abs() {
        0 => u64::MAX,
        most => most,
    };
    let (mut found, mut first, mut last) = (0, u64::MAX, 0);
    list.elements(0, list.header.count, count < 0, &mut |number, value| {
        if value == element {
            found += 1;
            (first, last) = (first.min(number), last.max(number));
        }
        match found < most {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    });
    (found, first, last)
}

fn find(list: &View<'_>, pivot: &[u8]) -> Option<u64> {
    let mut found = None;
    list.elements(0, list.header.count, false, &mut |number, value| {
        if value == pivot {
            found = Some(number);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    found
}

/// Returns the number of elements that LREM or LINSERT would move.
pub(crate) fn moved_elements(
    op: Op,
    from: &mut Decoder<'_>,
    store: &dyn Store,
) -> Result<u64, Fault> {
    let key = from.key()?;
    let Some(list) = View::at(store, key, Kind::List) else {
        return Ok(0);
    };
    let total = list.header.count;
    if op == Op::LRem {
        let (count, element) = (from.signed()?, from.bytes()?);
        let (found, first, last) = equals(&list, count, element);
        return Ok(if found == 0 { 0 } else { (last + 1).min(total - first) });
    }
    let (_, pivot) = (from.byte()?, from.bytes()?);
    Ok(find(&list, pivot).map_or(0, |at| at.min(total - at)))
}

pub(super) fn remove(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, count, element) = (from.key()?, from.signed()?, from.bytes()?);
    from.end()?;
    let Ok(list) = Change::find(state, key, Kind::List, reply) else {
        return Ok(());
    };
    let Some(mut list) = list else {
        reply.integer(0);
        return Ok(());
    };
    let total = list.header.count;
    let (found, first, last) = equals(&list.view(), count, element);
    if found > 0 {
        let left = last < total - first;
        let (from, to) = if left { (0, last + 1) } else { (first, total) };
        let moved = part_cost(&list.view(), from, to);
        list.state.budget.charge_bytes(moved)?;
        let old = list.list(from, to);
        let survives = |(number, value): &(u64, &Vec<u8>)| {
            *number < first || *number > last || value.as_slice() != element
        };
        let new: Vec<&[u8]> =
            (from..to).zip(&old).filter(survives).map(|(_, value)| value.as_slice()).collect();
        list.replace(from, to, &old, &new, left);
        list.event(class::LIST, "lrem");
        list.close();
    }
    reply.integer(found.try_into().unwrap_or(i64::MAX));
    Ok(())
}

pub(super) fn insert(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (key, behind) = (from.key()?, from.byte()? != 0);
    let (pivot, value) = (from.bytes()?, from.bytes()?);
    from.end()?;
    let Ok(list) = Change::find(state, key, Kind::List, reply) else {
        return Ok(());
    };
    let Some(mut list) = list else {
        reply.integer(0);
        return Ok(());
    };
    let total = list.header.count;
    let Some(at) = find(&list.view(), pivot).map(|number| number + u64::from(behind)) else {
        reply.integer(-1);
        return Ok(());
    };
    let left = at < total - at;
    let (from, to) = if left { (0, at) } else { (at, total) };
    let moved = part_cost(&list.view(), from, to);
    list.state.budget.charge_bytes(moved)?;
    let old = list.list(from, to);
    let others = old.iter().map(Vec::as_slice);
    let new: Vec<&[u8]> = match left {
        true => others.chain([value]).collect(),
        false => std::iter::once(value).chain(others).collect(),
    };
    list.replace(from, to, &old, &new, left);
    reply.integer(i64::try_from(list.header.count).unwrap_or(i64::MAX));
    list.close();
    state.event(class::LIST, "linsert", key);
    Ok(())
}

/// Executes LMOVE or RPOPLPUSH.
pub(super) fn transfer(
    from: &mut Decoder<'_>,
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Fault> {
    let (source, target) = (from.key()?, from.key()?);
    let (taken, put) = (End::decode(from)?, End::decode(from)?);
    from.end()?;
    if !move_from((source, taken), (target, put), state, reply) {
        reply.null();
    }
    Ok(())
}

/// Moves an element from an end of one list to an end of another. If the source is absent, returns
/// `false` and writes nothing.
pub(crate) fn move_from(
    (source, taken): (Key<'_>, End),
    (target, put): (Key<'_>, End),
    state: &mut WriteContext<'_>,
    reply: &mut Reply<'_>,
) -> bool {
    let mut list = match Change::find(state, source, Kind::List, reply) {
        Err(_) => return true,
        Ok(None) => return false,
        Ok(Some(list)) => list,
    };
    let number = match taken {
        End::Left => 0,
        End::Right => list.header.count.saturating_sub(1),
    };
    let view = list.view();
    let value = view.row(&view.row_name(number));
    let value = value.map(|value| value.to_vec()).unwrap_or_default();
    if source == target {
        list.drop_end(taken, value.len());
        list.push(put, &value);
        list.event(class::LIST, put.pushed());
        list.event(class::LIST, taken.popped());
        list.close();
        reply.bulk(&value);
        return true;
    }
    let state = list.state;
    let Ok(mut other) = Change::open(&mut *state, target, Kind::List, reply) else {
        return true;
    };
    other.push(put, &value);
    other.close();
    state.event(class::LIST, put.pushed(), target);
    let found = Change::find(state, source, Kind::List, reply);
    if let Ok(Some(mut list)) = found {
        list.drop_end(taken, value.len());
        list.event(class::LIST, taken.popped());
        list.close();
    }
    reply.bulk(&value);
    true
}
