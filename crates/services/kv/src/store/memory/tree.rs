//! Rows ordered by name, in a B-tree whose nodes count the rows below them. The counts allow a
//! lookup by rank along one path from the root. The standard library's tree would need a walk over
//! all preceding rows.

use super::text::{SearchName, Text};

/// Maximum number of rows in a node.
const NODE_ROWS_MAX: usize = 63;
/// Minimum number of rows in a node other than the root. Two such nodes and the row between them
/// fit in one node.
const NODE_ROWS_MIN: usize = NODE_ROWS_MAX / 2;

#[derive(Debug)]
pub(super) struct Row {
    name: Text,
    value: Text,
}

/// Name and value of a row.
pub(super) type RowRef<'t> = (&'t [u8], &'t [u8]);

#[derive(Debug, Default)]
pub(super) struct Tree {
    root: Node,
}

#[derive(Debug, Default)]
struct Node {
    rows: Vec<Row>,
    /// One child before each row and one after the last; empty in a leaf.
    children: Vec<Self>,
    /// Number of rows in this node and below it.
    count: usize,
}

/// Part split off a full node: a row, and a node with the rows after it.
type Split = (Row, Node);

enum Put {
    /// Length of the old value.
    Replaced(usize),
    Added(Option<Split>),
}

impl Tree {
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.root.count
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.root.count == 0
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let (name, mut node) = (SearchName::new(name), &self.root);
        loop {
            match node.find(&name) {
                Ok(at) => return Some(node.rows[at].value.bytes()),
                Err(at) => node = node.children.get(at)?,
            }
        }
    }

    /// Sets a row and returns the length of its old value.
    pub(super) fn put(&mut self, name: &[u8], value: &[u8]) -> Option<usize> {
        match self.root.put(&SearchName::new(name), value) {
            Put::Replaced(len) => return Some(len),
            Put::Added(None) => {}
            Put::Added(Some((middle, right))) => {
                let left = std::mem::take(&mut self.root);
                self.root = Node {
                    count: left.count + 1 + right.count,
                    rows: vec![middle],
                    children: vec![left, right],
                };
            }
        }
        None
    }

    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Row> {
        let removed = self.root.remove(&SearchName::new(name));
        self.shrink_root();
        removed
    }

    pub(super) fn pop_first(&mut self) -> Option<Row> {
        let first = self.root.pop(false);
        self.shrink_root();
        first
    }

    /// Replaces a root without rows by its only child, if there is one.
    fn shrink_root(&mut self) {
        if self.root.rows.is_empty()
            && let Some(child) = self.root.children.pop()
        {
            self.root = child;
        }
    }

    /// Returns the number of rows before `name`, which may be absent.
    pub(super) fn rank(&self, name: &[u8]) -> usize {
        let name = SearchName::new(name);
        let (mut node, mut before) = (&self.root, 0);
        loop {
            let (at, found) = match node.find(&name) {
                Ok(at) => (at, true),
                Err(at) => (at, false),
            };
            before += at;
            let children = node.children.iter();
            before +=
                children.take(at + usize::from(found)).map(|child| child.count).sum::<usize>();
            match node.children.get(at) {
                Some(child) if !found => node = child,
                _ => return before,
            }
        }
    }

    pub(super) fn nth(&self, number: usize) -> Option<RowRef<'_>> {
        if number >= self.root.count {
            return None;
        }
        let (mut node, mut left, mut at) = (&self.root, number, 0);
        while let Some(child) = node.children.get(at) {
            if left < child.count {
                (node, at) = (child, 0);
            } else if left == child.count {
                return node.rows.get(at).map(Row::show);
            } else {
                (left, at) = (left - child.count - 1, at + 1);
            }
        }
        node.rows.get(left).map(Row::show)
    }

    pub(super) fn from(&self, name: &[u8]) -> Ascending<'_> {
        let name = SearchName::new(name);
        let (mut node, mut way) = (&self.root, Vec::new());
        loop {
            let found = node.find(&name);
            let (Ok(at) | Err(at)) = found;
            way.push((node, at));
            match node.children.get(at) {
                Some(child) if found.is_err() => node = child,
                _ => return Ascending(way),
            }
        }
    }

    /// Iterates backwards over the rows before `name`, or over all rows if it is `None`.
    pub(super) fn iterate_before(&self, name: Option<&[u8]>) -> Descending<'_> {
        let name = name.map(SearchName::new);
        let (mut node, mut way) = (&self.root, Vec::new());
        loop {
            let at = match name.as_ref().map(|name| node.find(name)) {
                Some(Ok(at) | Err(at)) => at,
                None => node.rows.len(),
            };
            way.push((node, at));
            match node.children.get(at) {
                Some(child) => node = child,
                None => return Descending(way),
            }
        }
    }
}

impl Row {
    pub(super) fn show(&self) -> RowRef<'_> {
        (self.name.bytes(), self.value.bytes())
    }
}

impl Node {
    fn find(&self, name: &SearchName<'_>) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| row.name.compare(name))
    }

    fn with_counts(rows: Vec<Row>, children: Vec<Self>) -> Self {
        let below: usize = children.iter().map(|child| child.count).sum();
        Self { count: rows.len() + below, rows, children }
    }

    fn put(&mut self, name: &SearchName<'_>, value: &[u8]) -> Put {
        let at = match self.find(name) {
            Ok(at) => return Put::Replaced(self.rows[at].value.set(value)),
            Err(at) => at,
        };
        match self.children.get_mut(at).map(|child| child.put(name, value)) {
            Some(Put::Replaced(len)) => return Put::Replaced(len),
            Some(Put::Added(None)) => {}
            Some(Put::Added(Some((middle, right)))) => {
                self.rows.insert(at, middle);
                self.children.insert(at + 1, right);
            }
            None => {
                let (name, value) = (Text::new(name.bytes()), Text::new(value));
                self.rows.insert(at, Row { name, value });
            }
        }
        self.count += 1;
        Put::Added((self.rows.len() > NODE_ROWS_MAX).then(|| self.split()))
    }

    /// Splits off the second half of the node. The first half keeps no spare capacity, because
    /// ascending names are never inserted there.
    fn split(&mut self) -> Split {
        let right = self.rows.split_off(NODE_ROWS_MIN + 1);
        let middle = self.rows.pop().expect("more rows than a node has at most");
        self.rows.shrink_to_fit();
        let children = match self.children.is_empty() {
            true => Vec::new(),
            false => self.children.split_off(NODE_ROWS_MIN + 1),
        };
        let right = Self::with_counts(right, children);
        self.count -= right.count + 1;
        (middle, right)
    }

    fn remove(&mut self, name: &SearchName<'_>) -> Option<Row> {
        let removed = match (self.find(name), self.children.is_empty()) {
            (Ok(at), true) => self.rows.remove(at),
            (Err(_), true) => return None,
            (Ok(at), false) => {
                // Take the last row of the subtree before the removed row as its replacement.
                let before = self.children[at].pop(true)?;
                let removed = std::mem::replace(&mut self.rows[at], before);
                self.refill_child(at);
                removed
            }
            (Err(at), false) => {
                let removed = self.children[at].remove(name)?;
                self.refill_child(at);
                removed
            }
        };
        self.count -= 1;
        Some(removed)
    }

    fn pop(&mut self, last: bool) -> Option<Row> {
        let at = if last { self.rows.len() } else { 0 };
        let popped = match self.children.get_mut(at) {
            Some(child) => {
                let popped = child.pop(last)?;
                self.refill_child(at);
                popped
            }
            None if self.rows.is_empty() => return None,
            None if last => self.rows.pop()?,
            None => self.rows.remove(0),
        };
        self.count -= 1;
        Some(popped)
    }

    /// Refills a child that has too few rows: moves a row from a sibling, or merges the two.
    fn refill_child(&mut self, at: usize) {
        if self.children[at].rows.len() >= NODE_ROWS_MIN {
            return;
        }
        let has_more =
            |child: Option<&Self>| child.is_some_and(|child| child.rows.len() > NODE_ROWS_MIN);
        let left = at.checked_sub(1);
        if let Some(left) = left.filter(|left| has_more(self.children.get(*left))) {
            let (row, child) = self.children[left].take_edge_row(true);
            let row = std::mem::replace(&mut self.rows[left], row);
            self.children[at].get(row, child, false);
        } else if has_more(self.children.get(at + 1)) {
            let (row, child) = self.children[at + 1].take_edge_row(false);
            let row = std::mem::replace(&mut self.rows[at], row);
            self.children[at].get(row, child, true);
        } else {
            let left = left.unwrap_or(at);
            let (row, right) = (self.rows.remove(left), self.children.remove(left + 1));
            let child = &mut self.children[left];
            child.count += 1 + right.count;
            child.rows.push(row);
            child.rows.extend(right.rows);
            child.children.extend(right.children);
        }
    }

    /// Removes and returns the last row with the child after it, or the first row with the child
    /// before it.
    fn take_edge_row(&mut self, last: bool) -> (Row, Option<Self>) {
        let (row, child) = if last {
            (self.rows.pop(), self.children.pop())
        } else {
            let child = (!self.children.is_empty()).then(|| self.children.remove(0));
            (Some(self.rows.remove(0)), child)
        };
        self.count -= 1 + child.as_ref().map_or(0, |child| child.count);
        (row.expect("it has more than it needs"), child)
    }

    /// Adds a row at the end with the child after it, or at the front with the child before it.
    fn get(&mut self, row: Row, child: Option<Self>, last: bool) {
        self.count += 1 + child.as_ref().map_or(0, |child| child.count);
        if last {
            self.rows.push(row);
            self.children.extend(child);
        } else {
            self.rows.insert(0, row);
            if let Some(child) = child {
                self.children.insert(0, child);
            }
        }
    }
}

/// Path from the root to a position: nodes, each with the number of its rows already passed.
type Path<'t> = Vec<(&'t Node, usize)>;

#[derive(Debug)]
pub(super) struct Ascending<'t>(Path<'t>);

impl<'t> Iterator for Ascending<'t> {
    type Item = RowRef<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, at) = self.0.last_mut()?;
            let (node, passed) = (*node, *at);
            let Some(row) = node.rows.get(passed) else {
                self.0.pop();
                continue;
            };
            *at += 1;
            // The next row is the first one in the subtree after this row.
            let mut below = node.children.get(passed + 1);
            while let Some(child) = below {
                self.0.push((child, 0));
                below = child.children.first();
            }
            return Some(row.show());
        }
    }
}

#[derive(Debug)]
pub(super) struct Descending<'t>(Path<'t>);

impl<'t> Iterator for Descending<'t> {
    type Item = RowRef<'t>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, at) = self.0.last_mut()?;
            let node = *node;
            let Some(before) = at.checked_sub(1) else {
                self.0.pop();
                continue;
            };
            *at = before;
            // The next row is the last one in the subtree before this row.
            let mut below = node.children.get(before);
            while let Some(child) = below {
                self.0.push((child, child.rows.len()));
                below = child.children.last();
            }
            return node.rows.get(before).map(Row::show);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use quorate_core::dice::Dice;

    use super::*;

    /// Checks counts, order and fill of the nodes. Returns the depth.
    fn check(node: &Node, is_root: bool) -> usize {
        let below: usize = node.children.iter().map(|child| child.count).sum();
        assert_eq!(node.count, node.rows.len() + below);
        assert!(node.rows.len() <= NODE_ROWS_MAX);
        assert!(is_root || node.rows.len() >= NODE_ROWS_MIN, "{}", node.rows.len());
        assert!(node.rows.is_sorted_by(|one, two| one.show().0 < two.show().0));
        let depths: Vec<usize> = node.children.iter().map(|child| check(child, false)).collect();
        assert!(node.children.is_empty() || node.children.len() == node.rows.len() + 1);
        assert!(depths.windows(2).all(|pair| pair[0] == pair[1]));
        1 + depths.first().copied().unwrap_or_default()
    }

    type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

    fn compare(tree: &Tree, plain: &Plain, dice: &mut Dice) {
        check(&tree.root, true);
        assert_eq!(tree.len(), plain.len());
        assert_eq!(tree.is_empty(), plain.is_empty());
        let name = name(dice);
        let show = |(name, value): (&'_ Vec<u8>, &'_ Vec<u8>)| (name.clone(), value.clone());
        let shown = |(name, value): RowRef<'_>| (name.to_vec(), value.to_vec());
        let (from, before) = (plain.range(name.clone()..), plain.range(..name.clone()));
        assert!(tree.from(&name).map(shown).eq(from.map(show)));
        assert!(tree.iterate_before(Some(&name)).map(shown).eq(before.rev().map(show)));
        assert!(tree.from(b"").map(shown).eq(plain.iter().map(show)));
        assert!(tree.iterate_before(None).map(shown).eq(plain.iter().rev().map(show)));
        let rank = plain.range(..name.clone()).count();
        assert_eq!(tree.rank(&name), rank);
        let beyond = [0, 1, 20].map(|more| plain.len() + more);
        for number in beyond.into_iter().chain([dice.index(plain.len() + 1)]) {
            assert_eq!(tree.nth(number).map(shown), plain.iter().nth(number).map(show));
        }
        assert_eq!(tree.get(&name), plain.get(&name).map(|value| &**value));
    }

    /// Generates short decimal names and some longer ones, with zero bytes inside or at the end.
    fn name(dice: &mut Dice) -> Vec<u8> {
        let number = dice.index(4000);
        let mut name = number.to_string().into_bytes();
        match number % 4 {
            0 => name.resize(name.len() + number % 40, 0),
            1 => name.splice(1..1, [0; 21]).for_each(drop),
            _ => {}
        }
        name
    }

    fn taken(row: Row) -> (Vec<u8>, Vec<u8>) {
        let (name, value) = row.show();
        (name.to_vec(), value.to_vec())
    }

    /// The tree matches the standard library's while it grows and shrinks, randomly or in order.
    #[test]
    fn tree_matches_the_standard_library() {
        let mut dice = Dice::new(36);
        let (mut tree, mut plain) = (Tree::default(), Plain::new());
        for round in 0..60 {
            let grows = round % 4 < 2;
            for step in 0..700_usize {
                let name = match round % 3 {
                    0 => format!("{:08}", round * 700 + step).into_bytes(),
                    _ => name(&mut dice),
                };
                match dice.index(8) {
                    0 if !grows => {
                        let first = plain.pop_first();
                        assert_eq!(tree.pop_first().map(taken), first);
                    }
                    1..=5 if grows => {
                        let value = vec![7; dice.index(40)];
                        let before = tree.put(&name, &value);
                        let old = plain.insert(name, value);
                        assert_eq!(before, old.map(|old| old.len()));
                    }
                    _ => {
                        let removed = tree.remove(&name).map(taken);
                        assert_eq!(removed, plain.remove_entry(&name));
                    }
                }
                if step % 50 == 0 {
                    compare(&tree, &plain, &mut dice);
                }
            }
        }
        while tree.pop_first().is_some() {
            check(&tree.root, true);
        }
        assert!(tree.is_empty());
    }

    /// A tree of 200,000 rows, inserted in ascending order, has a depth of four.
    #[test]
    fn tree_of_200_000_rows_has_a_depth_of_four() {
        let mut tree = Tree::default();
        for number in 0..200_000_u32 {
            tree.put(&number.to_be_bytes(), b"");
        }
        assert_eq!(check(&tree.root, true), 4);
        assert_eq!(tree.rank(&150_000_u32.to_be_bytes()), 150_000);
        let (name, _) = tree.nth(199_999).unwrap();
        assert_eq!(name, 199_999_u32.to_be_bytes());
    }
}
