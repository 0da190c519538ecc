//! Identity of a home's node: one small file, replaced as a whole, never edited.
//!
//! It holds the data that must be durable before the first message of a process: the counters of
//! [volatile-1], the mark of a clean stop [volatile-4], and the nodes that the founder has admitted
//! [era-11].

mod book;
mod error;
mod text;

use std::{collections::BTreeMap, path::Path};

use quorate_core::{
    level::Level,
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    witness::Memory,
};
use quorate_log::disk::{Family, FileId, SmallFiles, made, sealed};
use quorate_replica::group::As;

pub use self::{book::AddressBook, error::IdentityError};
use self::{
    book::Unreadable,
    text::{check, decode, encode},
};
use crate::{home::Home, terms::Terms};

/// The name of the file.
pub(crate) const FILE: &str = "identity";
pub(crate) use self::book::FILE as BOOK_FILE;
/// Maximum number of founding members and of admitted nodes; bounds the data that a stranger can
/// make a folder hold.
pub const NODES_MAX: usize = 1024;

/// Founding record: given to a folder at its first start, and fixed ever after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Founding {
    /// Random, chosen by the founder.
    pub cluster: u128,
    /// This node.
    pub node: NodeId,
    /// The group's durability class.
    pub class: Class,
    /// Name of the service's store, such as `lsm` or `memory`.
    pub store: String,
    /// Peer address of each founding member; each has weight 1. A node that joined later is not
    /// among them.
    pub members: BTreeMap<NodeId, String>,
    /// Chosen at random by this folder, so that the founder knows it from another folder that
    /// claims the same node id.
    pub join_nonce: u64,
    /// Auxiliaries and quorum rule.
    pub terms: Terms,
}

/// The operator's wishes at a later start; `None` was not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// `--node`
    pub node: Option<NodeId>,
    /// `--durability`
    pub class: Option<Class>,
    /// `--store`
    pub store: Option<String>,
    /// The newest level that the release supports, if that is not [`Level::NEWEST`]: a test stands
    /// for an earlier one.
    pub supports: Option<Level>,
}

/// End of the previous process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// There was none.
    Never,
    /// All votes and promises were written, then the mark.
    Clean,
    /// Killed, or lost power.
    Unclean,
}

impl LastStop {
    /// Returns whether the node may have forgotten votes or promises, and is a new member from now
    /// on: in a volatile group they are written only at a clean stop ([volatile-1], [volatile-4]).
    pub fn forgets(self, class: Class) -> bool {
        self == Self::Unclean && class == Class::Volatile
    }
}

/// The identity of a node, in its home.
#[derive(Debug)]
pub struct Identity<H> {
    home: H,
    state: State,
    /// Lower bound of the next process's incarnation and start, if this one has found out that its
    /// folder fell behind.
    owed: Option<(Incarnation, u32)>,
    /// Created by this process.
    made_here: bool,
    book: AddressBook,
    book_unsaved: bool,
    /// Why the book could not be read, if it could not.
    book_lost: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    founding: Founding,
    boot: u32,
    incarnation: Incarnation,
    clean: bool,
    /// The longest lease that any process of this node may have granted.
    leased_us: u64,
    admitted: BTreeMap<NodeId, u64>,
    /// The node joined, and has not yet taken this role.
    joins: Option<As>,
    /// The node was removed from the group.
    removed: bool,
    /// Level needed by the contents of the folder ([level-8]).
    level: Level,
}

impl<H: Home> Identity<H> {
    /// Makes an unused home that of the node in `founding`.
    pub fn create(home: H, founding: Founding) -> Result<Self, IdentityError> {
        Self::create_at(home, founding, Level::BASE)
    }

    /// As `create`, with contents that need this level already ([level-10]).
    pub fn create_at(home: H, founding: Founding, level: Level) -> Result<Self, IdentityError> {
        let book = AddressBook::founded(&founding.members);
        Self::make(home, founding, None, book, level)
    }

    /// Creates the identity of a node that joins a group which was founded by others, to take this
    /// role in it. `book` has their addresses.
    pub fn join(
        home: H,
        founding: Founding,
        role: As,
        book: AddressBook,
    ) -> Result<Self, IdentityError> {
        Self::make(home, founding, Some(role), book, Level::BASE)
    }

    fn make(
        mut home: H,
        founding: Founding,
        joins: Option<As>,
        book: AddressBook,
        level: Level,
    ) -> Result<Self, IdentityError> {
        let sound = check(&founding).and_then(|()| book.check());
        sound.map_err(|reason| IdentityError::Damaged {
            file: home.path().join(FILE),
            reason: reason.to_owned(),
        })?;
        if home.read(FILE)?.is_some() {
            let folder = home.path().to_owned();
            return Err(IdentityError::Exists { folder });
        }
        // A start that finds the identity knows by this that a log without segments is a new one.
        for family in Family::all() {
            made::write(&mut home, FileId::new(family, 0))?;
        }
        if joins.is_some() {
            // A start that finds the identity finds the other nodes by the book.
            book.write(&mut home)?;
        }
        let mut identity = Self {
            home,
            state: State {
                founding,
                boot: 0,
                incarnation: Incarnation(0),
                clean: false,
                leased_us: 0,
                admitted: BTreeMap::new(),
                joins,
                removed: false,
                level,
            },
            owed: None,
            made_here: true,
            book,
            book_unsaved: false,
            book_lost: None,
        };
        identity.save()?;
        Ok(identity)
    }

    /// Reads the identity of the home, and compares it with the expected one.
    pub fn open(home: H, expected: &Expected) -> Result<Self, IdentityError> {
        let state = read(&home, home.path())?;
        let supports = expected.supports.unwrap_or(Level::NEWEST);
        if state.level > supports {
            return Err(IdentityError::Level {
                file: home.path().join(FILE),
                level: state.level,
                supports,
            });
        }
        let (book, book_lost) = match AddressBook::read(&home) {
            Ok(book) => (book, None),
            Err(Unreadable::Disk(error)) => return Err(error.into()),
            Err(Unreadable::Text(why)) => (None, Some(why)),
        };
        let identity = Self {
            home,
            book: book.unwrap_or_else(|| AddressBook::founded(&state.founding.members)),
            book_unsaved: false,
            book_lost,
            state,
            owed: None,
            made_here: false,
        };
        identity.compare(expected)?;
        if identity.state.removed {
            return Err(IdentityError::Removed {
                folder: identity.home.path().to_owned(),
                node: identity.state.founding.node,
            });
        }
        Ok(identity)
    }

    fn compare(&self, expected: &Expected) -> Result<(), IdentityError> {
        let stored = &self.state.founding;
        let differs = |what, stored: String, asked: Option<String>| match asked {
            Some(asked) if asked != stored => Err(IdentityError::Mismatch { what, stored, asked }),
            _ => Ok(()),
        };
        let node = expected.node.map(|node| node.to_string());
        differs("node", stored.node.to_string(), node)?;
        let class = expected.class.map(|class| class.name().to_owned());
        differs("durability", stored.class.name().to_owned(), class)?;
        differs("store", stored.store.clone(), expected.store.clone())
    }

    /// Returns the founding record of the folder.
    pub fn founding(&self) -> &Founding {
        &self.state.founding
    }

    /// Returns the home of the node.
    pub fn home(&self) -> &H {
        &self.home
    }

    /// Returns the home of the node, to open its disk.
    pub fn home_mut(&mut self) -> &mut H {
        &mut self.home
    }

    /// Returns this node in its present incarnation.
    pub fn member(&self) -> Member {
        Member { node: self.state.founding.node, incarnation: self.state.incarnation }
    }

    /// Returns whether this process made the folder that of a node.
    pub fn is_made_here(&self) -> bool {
        self.made_here
    }

    /// Counts process starts ([volatile-1]).
    pub fn boot(&self) -> u32 {
        self.state.boot
    }

    /// Counts losses of memory ([volatile-1]).
    pub fn incarnation(&self) -> Incarnation {
        self.state.incarnation
    }

    /// Returns the seed of this process's time-outs: different on every node and start; not secret.
    pub fn seed(&self) -> u64 {
        let Founding { join_nonce, node, .. } = self.state.founding;
        join_nonce ^ (u64::from(self.state.boot) << 32) ^ u64::from(node.0)
    }

    /// The founder's table of admitted nodes.
    pub fn admitted(&self) -> &BTreeMap<NodeId, u64> {
        &self.state.admitted
    }

    /// Returns the addresses of the group's nodes, as far as is known.
    pub fn book(&self) -> &AddressBook {
        &self.book
    }

    /// Why the founding addresses stand in for the book that was here, if they do.
    pub fn book_lost(&self) -> Option<&str> {
        self.book_lost.as_deref()
    }

    /// The nodes of the group listen there from now on. Durable with [`Self::save_book`].
    pub fn set_book(&mut self, book: AddressBook) {
        self.book = book;
        self.book_unsaved = true;
    }

    /// Writes the book down, durably, if it changed.
    pub fn save_book(&mut self) -> Result<(), IdentityError> {
        if self.book_unsaved {
            self.book.write(&mut self.home)?;
            self.book_unsaved = false;
        }
        Ok(())
    }

    /// Returns the role that this node is to take, if it joined and has not taken it.
    pub fn joins(&self) -> Option<As> {
        self.state.joins
    }

    /// Marks the role of joining as taken: from now on operators manage it.
    pub fn mark_joined(&mut self) -> Result<(), IdentityError> {
        self.change(|state| {
            state.joins = None;
            Ok(())
        })
    }

    /// Returns whether this node was removed from the group.
    pub fn is_removed(&self) -> bool {
        self.state.removed
    }

    /// Marks the node as removed from the group: it never starts again from this home ([member-1]).
    pub fn mark_removed(&mut self) -> Result<(), IdentityError> {
        self.change(|state| {
            state.removed = true;
            Ok(())
        })
    }

    /// [level-8] Returns the level that the contents of the folder need.
    pub fn level(&self) -> Level {
        self.state.level
    }

    /// [level-8] Permits contents that need this level: durable when this returns, so that no
    /// earlier release ever reads them.
    pub fn mark_level(&mut self, level: Level) -> Result<(), IdentityError> {
        if level <= self.state.level {
            return Ok(());
        }
        self.change(|state| {
            state.level = level;
            Ok(())
        })
    }

    /// Counts this start, and consumes the mark of a clean stop, both durably, before the first
    /// message ([volatile-1], [volatile-4]). Returns how the last process ended.
    pub fn begin_boot(&mut self) -> Result<LastStop, IdentityError> {
        let last = match (self.state.boot, self.state.clean) {
            (0, _) => LastStop::Never,
            (_, true) => LastStop::Clean,
            (_, false) => LastStop::Unclean,
        };
        self.change(|state| {
            state.boot = state.boot.checked_add(1).ok_or(IdentityError::Exhausted("boot"))?;
            state.clean = false;
            Ok(())
        })?;
        Ok(last)
    }

    /// Votes or promises may be forgotten: from now on this is a new member ([volatile-1]).
    pub fn new_incarnation(&mut self) -> Result<Incarnation, IdentityError> {
        self.rise_above(Memory::default())
    }

    /// [lie-4] The same where the folder may have forgotten incarnations and starts, too, because
    /// others remember these.
    pub fn rise_above(&mut self, remembered: Memory) -> Result<Incarnation, IdentityError> {
        let next = next_incarnation(self.state.incarnation.max(remembered.written.incarnation))?;
        let boot = remembered.boot.checked_add(1).ok_or(IdentityError::Exhausted("boot"))?;
        self.change(|state| {
            (state.incarnation, state.boot) = (next, state.boot.max(boot));
            Ok(())
        })?;
        Ok(next)
    }

    /// [lie-5] Reserves a new incarnation and start, above the remembered ones, for the next
    /// process: durable when this returns. This one continues in its present incarnation, without a
    /// vote.
    pub fn owe(&mut self, remembered: Memory) -> Result<(), IdentityError> {
        let before = self.owed;
        let next = next_incarnation(self.state.incarnation.max(remembered.written.incarnation))?;
        let (incarnation, boot) = before.unwrap_or_default();
        self.owed = Some((incarnation.max(next), boot.max(remembered.boot)));
        let saved = self.save();
        if saved.is_err() {
            self.owed = before;
        }
        saved
    }

    /// Marks a clean stop: all votes and promises are on stable storage, and there will be no more
    /// ([volatile-4]).
    pub fn mark_clean(&mut self) -> Result<(), IdentityError> {
        self.change(|state| {
            state.clean = true;
            Ok(())
        })
    }

    /// The founder lets a node in ([era-11]): durable when this returns. The same folder may ask
    /// again; another folder with the same node id is refused, because the first one's votes count.
    pub fn admit(&mut self, node: NodeId, nonce: u64) -> Result<(), IdentityError> {
        match self.state.admitted.get(&node) {
            Some(known) if *known == nonce => Ok(()),
            Some(_) => Err(IdentityError::AlreadyAdmitted { node }),
            None if self.state.admitted.len() >= NODES_MAX => Err(IdentityError::TooManyNodes),
            None => self.change(|state| {
                state.admitted.insert(node, nonce);
                Ok(())
            }),
        }
    }

    /// [read-4] Permits this process to grant leases of that length: durable when this returns, so
    /// that a later one knows, regardless of its settings. Returns the length that earlier ones may
    /// have granted.
    pub fn may_grant(&mut self, us: u64) -> Result<u64, IdentityError> {
        let before = self.state.leased_us;
        if us > before {
            self.change(|state| {
                state.leased_us = us;
                Ok(())
            })?;
        }
        Ok(before)
    }

    /// Changes the state on disk, then in memory: a change that could not be saved did not happen.
    fn change(
        &mut self,
        edit: impl FnOnce(&mut State) -> Result<(), IdentityError>,
    ) -> Result<(), IdentityError> {
        let mut state = self.state.clone();
        edit(&mut state)?;
        let before = std::mem::replace(&mut self.state, state);
        let saved = self.save();
        if saved.is_err() {
            self.state = before;
        }
        saved
    }

    /// Rewrites the file of this name, durably: the disk does not return the bytes written. The
    /// copy in memory is the last one saved, and nothing else ([scrub-1]).
    pub fn rewrite(&mut self, name: &str) -> Result<(), IdentityError> {
        match name {
            FILE => self.save(),
            BOOK_FILE => Ok(self.book.write(&mut self.home)?),
            _ => Ok(()),
        }
    }

    /// Replaces the file as a whole, durably.
    fn save(&mut self) -> Result<(), IdentityError> {
        let mut state = self.state.clone();
        if let Some((incarnation, boot)) = self.owed {
            (state.incarnation, state.boot) = (incarnation, state.boot.max(boot));
        }
        let lines = encode(&state);
        Ok(self.home.replace(FILE, sealed::seal(&lines).as_bytes())?)
    }
}

fn next_incarnation(last: Incarnation) -> Result<Incarnation, IdentityError> {
    let next = last.0.checked_add(1).map(Incarnation);
    next.ok_or(IdentityError::Exhausted("incarnation"))
}

/// Reads the founding record of a home, perhaps while a process uses it: for the offline tools.
/// `folder` is its name in errors.
pub fn peek(files: &impl SmallFiles, folder: &Path) -> Result<Founding, IdentityError> {
    Ok(read(files, folder)?.founding)
}

fn read(files: &impl SmallFiles, folder: &Path) -> Result<State, IdentityError> {
    let file = folder.join(FILE);
    let Some(bytes) = files.read(FILE)? else {
        let folder = folder.to_owned();
        return Err(IdentityError::Missing { folder });
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| IdentityError::Damaged { file: file.clone(), reason: "not a text".into() })?;
    let newer = text.strip_prefix("quorate identity ").and_then(|rest| rest.lines().next());
    if newer.is_some_and(|version| version.parse::<u32>().is_ok_and(|version| version > 2)) {
        return Err(IdentityError::Newer { file });
    }
    decode(&text).map_err(|reason| IdentityError::Damaged { file, reason })
}
