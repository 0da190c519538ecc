//! Merging of key ranges: several permissions together may cover a requested range.

use crate::mvcc::KeySelection;

/// Start key and exclusive end; `None` if the range has no end.
type KeySpan = (Box<[u8]>, Option<Box<[u8]>>);

/// Disjoint ranges in ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(Vec<KeySpan>);

/// Ranges to which a user's roles give access.
#[derive(Clone, Debug, Default)]
pub(super) struct Rights {
    pub(super) readable: Spans,
    pub(super) writable: Spans,
}

/// Returns the span of a permission: a single key without a range end, unbounded with a range end
/// of one zero byte.
fn permission_span(key: &[u8], range_end: &[u8]) -> Option<KeySpan> {
    match KeySelection::from_range(key, range_end) {
        KeySelection::Single(key) => Some((key.into(), Some([key, &[0]].concat().into()))),
        KeySelection::Span(from, None) => Some((from.into(), None)),
        KeySelection::Span(from, Some(to)) => (from < to).then(|| (from.into(), Some(to.into()))),
    }
}

impl Spans {
    /// Merges ranges, each given as a key and a range end.
    pub(super) fn merge_ranges<'k>(ranges: impl IntoIterator<Item = (&'k [u8], &'k [u8])>) -> Self {
        let spans = ranges.into_iter().filter_map(|(key, end)| permission_span(key, end));
        let mut spans: Vec<KeySpan> = spans.collect();
        spans.sort();
        let mut joined: Vec<KeySpan> = Vec::new();
        for (from, to) in spans {
            match joined.last_mut() {
                // The last span already extends to the end of all keys.
                Some((_, None)) => break,
                Some((_, end)) if end.as_deref().is_some_and(|end| *from <= *end) => {
                    // A span without an end is the largest.
                    if to.is_none() || to > *end {
                        *end = to;
                    }
                }
                _ => joined.push((from, to)),
            }
        }
        Self(joined)
    }

    /// Returns whether all of `keys` are covered. An empty range counts as its start key.
    pub(super) fn covers_keys(&self, keys: KeySelection<'_>) -> bool {
        let from = match keys {
            KeySelection::Single(from) | KeySelection::Span(from, _) => from,
        };
        let behind = self.0.partition_point(|(first, _)| **first <= *from);
        let Some((_, end)) = behind.checked_sub(1).and_then(|at| self.0.get(at)) else {
            return false;
        };
        let Some(end) = end.as_deref() else {
            return true;
        };
        let reaches = match keys {
            KeySelection::Single(_) => true,
            KeySelection::Span(_, to) => to.is_some_and(|to| to <= end),
        };
        from < end && reaches
    }

    /// Returns the gaps between the ranges, as start keys and exclusive ends; `None` means no end.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let begins = std::iter::once(Some(&[][..]));
        let begins = begins.chain(self.0.iter().map(|(_, end)| end.as_deref()));
        let ends = self.0.iter().map(|(first, _)| Some(&**first));
        let gaps = begins.zip(ends.chain(std::iter::once(None)));
        gaps.filter_map(|(begin, end)| Some((begin?, end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merged spans cover exactly the keys that their parts cover.
    #[test]
    fn joined_spans_cover_what_their_parts_cover_together() {
        // In order, and no range below can name a key between two of these.
        let keys: Vec<Vec<u8>> = (1..9_u8).flat_map(|at| [vec![at], vec![at, 0]]).collect();
        // Also the key right after each one, which a permission for a single key does not cover.
        let behind = keys.iter().map(|key| [&key[..], &[0]].concat());
        let probes: Vec<Vec<u8>> = keys.iter().cloned().chain(behind).collect();
        let mut seed = 5_u64;
        let mut next = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(seed >> 33).unwrap() % below
        };
        let contains = |(from, end): &(Vec<u8>, Vec<u8>), key: &[u8]| {
            KeySelection::from_range(from, end).contains(key)
        };
        for _ in 0..5000 {
            let mut some = |with_open: bool| {
                let from = keys[next(keys.len())].clone();
                let end = match next(keys.len() + 4) {
                    at if at < keys.len() => keys[at].clone(),
                    _ if with_open && next(2) == 0 => vec![0],
                    _ => Vec::new(),
                };
                (from, end)
            };
            let parts: Vec<_> = (0..4).map(|_| some(true)).collect();
            let spans = Spans::merge_ranges(parts.iter().map(|(from, end)| (&from[..], &end[..])));
            let (from, end) = some(true);
            let asked = KeySelection::from_range(&from, &end);
            let within: Vec<_> = probes.iter().filter(|key| asked.contains(key)).collect();
            if !within.is_empty() {
                // Other keys follow the last one.
                let last = vec![0xff];
                let within =
                    within.into_iter().chain(Some(&last).filter(|last| asked.contains(last)));
                let expected =
                    within.into_iter().all(|key| parts.iter().any(|part| contains(part, key)));
                assert_eq!(spans.covers_keys(asked), expected, "{asked:?} of {parts:?}");
            }
            for key in &probes {
                let gap = spans.gaps().any(|(from, to)| KeySelection::Span(from, to).contains(key));
                assert_eq!(
                    gap,
                    !spans.covers_keys(KeySelection::Single(key)),
                    "{key:?} of {parts:?}"
                );
            }
        }
    }

    #[test]
    fn inverted_spans_cover_no_key() {
        let none = Spans::merge_ranges([(&b"b"[..], &b"a"[..])]);
        assert_eq!(none, Spans::default());
        assert!(!none.covers_keys(KeySelection::Single(b"a")));
        assert_eq!(none.gaps().collect::<Vec<_>>(), [(&b""[..], None)]);
        let all = Spans::merge_ranges([(&b""[..], &b"\0"[..])]);
        assert!(all.covers_keys(KeySelection::Span(b"\0", None)));
        assert_eq!(all.gaps().collect::<Vec<_>>(), [(&b""[..], Some(&b""[..]))]);
        let some = Spans::merge_ranges([(&b"a"[..], &b"b"[..])]);
        assert!(!some.covers_keys(KeySelection::Span(b"a", None)));
        assert!(!some.covers_keys(KeySelection::Span(b"a", Some(b"b\0"))));
        assert!(some.covers_keys(KeySelection::Span(b"a\0", Some(b"b"))));
        assert!(!some.covers_keys(KeySelection::Single(b"b")));
    }
}
