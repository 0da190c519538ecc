//! Databases of the store on disk: the contents of the selected one, swaps and flushes.
//!
//! Database 0 always has contents, so that the state has the format of the time when there were no
//! others. Another one gets its contents, and a generation of its keys, with its first write.

use super::{KnownDeadlines, LsmStore, changes::Part, image::ImagedDatabase, layout::Space};
use crate::store::{Database, Version};

impl LsmStore {
    /// Returns the contents of the selected database, if it has any.
    pub(super) fn space(&self) -> Option<Space> {
        self.state.spaces[self.selected.get().index()]
    }

    /// Returns the contents of the selected database. Begins a generation if it has none.
    pub(super) fn space_mut(&mut self) -> &mut Space {
        let at = self.selected.get().index();
        if self.state.spaces[at].is_none() {
            let generation = self.begin_generation();
            self.state.spaces[at] = Some(Space::new(generation));
            self.state.has_table = true;
        }
        self.state.spaces[at].as_mut().expect("a generation has begun")
    }

    pub(super) fn begin_generation(&mut self) -> u64 {
        self.newest_generation += 1;
        self.newest_generation
    }

    /// Returns the changes of the selected database since the last layer.
    pub(super) fn active_part(&mut self) -> &mut Part {
        let space = *self.space_mut();
        self.active_changes.part_mut(space)
    }

    pub(super) fn used_databases(&self) -> u16 {
        let used = Database::all().filter(|database| {
            let at = database.index();
            self.state.spaces[at].is_some() || self.state.since[at] != Version::ABSENT
        });
        used.fold(0, |set, database| set | database.bit())
    }

    /// Swaps the contents of two databases and raises their versions.
    pub(super) fn swap_spaces(&mut self, a: Database, b: Database, version: Version) {
        if a == Database::ZERO || b == Database::ZERO {
            self.settle_blind_writes();
        }
        let (a, b) = (a.index(), b.index());
        self.state.spaces.swap(a, b);
        self.deadlines.swap(a, b);
        if self.state.spaces[0].is_none() {
            // Database 0 always has contents.
            self.state.spaces[0] = Some(Space::new(self.begin_generation()));
        }
        for at in [a, b] {
            self.state.since[at] = version.max(self.state.since[at]);
        }
        (self.state.has_table, self.has_uncommitted) = (true, true);
    }

    /// Ends the generation of the selected database.
    pub(super) fn end_space(&mut self) {
        let database = self.selected.get();
        let Some(Space { generation, .. }) = self.space() else {
            return;
        };
        self.active_changes.end_generation(generation);
        let blind = self.blind_writes.get_mut();
        self.state.spaces[database.index()] = match database {
            Database::ZERO => {
                blind.end_generation(generation);
                Some(Space::new(self.begin_generation()))
            }
            _ => {
                blind.end_counted_groups(generation);
                None
            }
        };
        self.state.end_generation(generation);
        self.has_uncommitted = true;
        self.needs_purge = true;
        self.deadlines[database.index()] = KnownDeadlines::default();
    }

    /// Returns the databases that belong into a snapshot: those with a key or a version. Database 0
    /// has `first_keys` keys.
    pub(super) fn imaged_databases(&self, first_keys: u64) -> impl Iterator<Item = ImagedDatabase> {
        Database::all().filter_map(move |database| {
            let (space, since) =
                (self.state.spaces[database.index()], self.state.since[database.index()]);
            let has_keys = |space: &Space| match database {
                Database::ZERO => first_keys > 0,
                _ => space.keys > 0,
            };
            let generation = space.filter(has_keys).map(|space| space.generation);
            let is_needed = generation.is_some() || since != Version::ABSENT;
            is_needed.then_some(ImagedDatabase { database, since, generation })
        })
    }
}
