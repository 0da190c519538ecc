//! Merge of sorted streams. For each key, the entry of the uppermost stream hides the others.

/// Merge of streams, the uppermost first. Each is sorted by key, without duplicates.
pub(super) struct Merge<'a, K, T> {
    streams: Vec<Box<dyn Iterator<Item = (K, T)> + 'a>>,
    /// Next entry of each stream, or `None` at its end.
    heads: Vec<Option<(K, T)>>,
}

impl<'a, K: Ord, T> Merge<'a, K, T> {
    pub(super) fn new() -> Self {
        Self { streams: Vec::new(), heads: Vec::new() }
    }

    /// Adds a stream below the others.
    pub(super) fn add(&mut self, mut stream: impl Iterator<Item = (K, T)> + 'a) {
        self.heads.push(stream.next());
        self.streams.push(Box::new(stream));
    }
}

impl<K: Ord, T> Iterator for Merge<'_, K, T> {
    type Item = (K, T);

    fn next(&mut self) -> Option<(K, T)> {
        let heads = self.heads.iter_mut().enumerate();
        let heads = heads.filter(|(_, head)| head.is_some());
        // `min_by` returns the first of equal keys, which is in the uppermost stream.
        let (uppermost, head) = heads.min_by(|(_, a), (_, b)| key(a).cmp(&key(b)))?;
        let found = head.take()?;
        self.heads[uppermost] = self.streams[uppermost].next();
        for (head, stream) in self.heads.iter_mut().zip(&mut self.streams) {
            if key(head) == Some(&found.0) {
                *head = stream.next();
            }
        }
        Some(found)
    }
}

fn key<K, T>(head: &Option<(K, T)>) -> Option<&K> {
    head.as_ref().map(|(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_stream_hides_equal_keys_of_lower_ones() {
        let streams = [
            vec![(2, 'a'), (5, 'a')],
            vec![],
            vec![(1, 'b'), (2, 'b'), (6, 'b')],
            vec![(2, 'c'), (3, 'c'), (6, 'c'), (7, 'c')],
        ];
        let mut merge = Merge::new();
        for stream in streams {
            merge.add(stream.into_iter());
        }
        assert_eq!(
            merge.collect::<Vec<_>>(),
            [(1, 'b'), (2, 'a'), (3, 'c'), (5, 'a'), (6, 'b'), (7, 'c')]
        );
    }
}
