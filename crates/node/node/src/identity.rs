//! Identity of the node to which a home belongs: one small file, always replaced as a whole.
//!
//! It contains the state that must be durable before a process sends its first message: the
//! counters of [volatile-1], the mark of a clean stop [volatile-4], and the nodes that the founder
//! admitted [era-11].

mod book;
mod error;
mod record;

use std::{collections::BTreeMap, path::Path};

use quorate_core::{
    level::Level,
    node_id::{Incarnation, Member, NodeId},
    record::Class,
    witness::Memory,
};
use quorate_log::disk::{Family, FileId, SmallFiles, made, sealed};
use quorate_replica::group::MemberRole;

pub use self::{book::AddressBook, error::IdentityError, record::Founding};
use self::{
    book::Unreadable,
    error::NODES_MAX,
    record::{IdentityState, check_founding, decode, encode},
};
use crate::home::Home;

pub(crate) const IDENTITY_FILE: &str = "identity";
pub(crate) use self::book::ADDRESS_BOOK_FILE as BOOK_FILE;

/// Operator's settings to compare with the identity; `None` if not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExpectedIdentity {
    /// Node id from `--node`.
    pub node: Option<NodeId>,
    /// Durability class from `--durability`.
    pub class: Option<Class>,
    /// Store name from `--store`.
    pub store: Option<String>,
    /// Newest supported level if not [`Level::NEWEST`], for tests that simulate earlier releases.
    pub supported_level: Option<Level>,
}

/// State in which the previous process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// The node has never been started.
    Never,
    /// All votes and promises were written, followed by the mark of a clean stop.
    Clean,
    /// The process was killed or the machine lost power.
    Unclean,
}

impl LastStop {
    /// Returns whether votes or promises may be forgotten, so that the node must become a new
    /// member. A volatile group writes them only at a clean stop ([volatile-1], [volatile-4]).
    pub fn may_have_forgotten(self, class: Class) -> bool {
        self == Self::Unclean && class == Class::Volatile
    }
}

/// The identity of a node, with the home that stores it.
#[derive(Debug)]
pub struct Identity<H> {
    home: H,
    state: IdentityState,
    /// Minimum incarnation and boot number of the next process, if the folder was found to be set
    /// back.
    next_process_minimum: Option<(Incarnation, u32)>,
    /// This process created the identity.
    is_newly_created: bool,
    address_book: AddressBook,
    is_address_book_unsaved: bool,
    /// Error while reading the address book; `None` if it was read.
    address_book_damage: Option<String>,
}

impl<H: Home> Identity<H> {
    /// Creates the identity of the node in `founding` in an unused home.
    pub fn create(home: H, founding: Founding) -> Result<Self, IdentityError> {
        Self::create_at(home, founding, Level::BASE)
    }

    /// Like `create`, but starts at feature level `level`, which the founding data already requires
    /// ([level-10]).
    pub fn create_at(home: H, founding: Founding, level: Level) -> Result<Self, IdentityError> {
        let book = AddressBook::from_founding(&founding.members);
        Self::create_with_book(home, founding, None, book, level)
    }

    /// Creates the identity of a node that joins a group founded by other nodes and is to take
    /// `role`. `book` contains their addresses.
    pub fn join(
        home: H,
        founding: Founding,
        role: MemberRole,
        book: AddressBook,
    ) -> Result<Self, IdentityError> {
        Self::create_with_book(home, founding, Some(role), book, Level::BASE)
    }

    fn create_with_book(
        mut home: H,
        founding: Founding,
        joins: Option<MemberRole>,
        book: AddressBook,
        level: Level,
    ) -> Result<Self, IdentityError> {
        let sound = check_founding(&founding).and_then(|()| book.check_limits());
        sound.map_err(|reason| IdentityError::Damaged {
            file: home.path().join(IDENTITY_FILE),
            reason: reason.to_owned(),
        })?;
        if home.read(IDENTITY_FILE)?.is_some() {
            let folder = home.path().to_owned();
            return Err(IdentityError::AlreadyExists { folder });
        }
        // Because of these marks, a later start recognizes a log without segments as new.
        for family in Family::all() {
            made::write(&mut home, FileId::new(family, 0))?;
        }
        if joins.is_some() {
            // A later start uses the book to find the other nodes.
            book.write(&mut home)?;
        }
        let mut identity = Self {
            home,
            state: IdentityState {
                founding,
                boot: 0,
                incarnation: Incarnation(0),
                is_clean_stop: false,
                lease_us_max: 0,
                admitted_nodes: BTreeMap::new(),
                joining_role: joins,
                is_removed: false,
                level,
            },
            next_process_minimum: None,
            is_newly_created: true,
            address_book: book,
            is_address_book_unsaved: false,
            address_book_damage: None,
        };
        identity.write_file()?;
        Ok(identity)
    }

    /// Reads the identity from the home, and compares it with the operator's settings.
    pub fn open(home: H, expected: &ExpectedIdentity) -> Result<Self, IdentityError> {
        let state = read(&home, home.path())?;
        let supports = expected.supported_level.unwrap_or(Level::NEWEST);
        if state.level > supports {
            return Err(IdentityError::LevelUnsupported {
                file: home.path().join(IDENTITY_FILE),
                level: state.level,
                supported_level: supports,
            });
        }
        let (book, book_lost) = match AddressBook::read(&home) {
            Ok(book) => (book, None),
            Err(Unreadable::ReadFailed(error)) => return Err(error.into()),
            Err(Unreadable::Malformed(why)) => (None, Some(why)),
        };
        let identity = Self {
            home,
            address_book: book
                .unwrap_or_else(|| AddressBook::from_founding(&state.founding.members)),
            is_address_book_unsaved: false,
            address_book_damage: book_lost,
            state,
            next_process_minimum: None,
            is_newly_created: false,
        };
        identity.check_expected(expected)?;
        if identity.state.is_removed {
            return Err(IdentityError::Removed {
                folder: identity.home.path().to_owned(),
                node: identity.state.founding.node,
            });
        }
        Ok(identity)
    }

    fn check_expected(&self, expected: &ExpectedIdentity) -> Result<(), IdentityError> {
        let stored = &self.state.founding;
        let differs = |what, stored: String, asked: Option<String>| match asked {
            Some(asked) if asked != stored => {
                Err(IdentityError::Mismatch { setting: what, stored, configured: asked })
            }
            _ => Ok(()),
        };
        let node = expected.node.map(|node| node.to_string());
        differs("node", stored.node.to_string(), node)?;
        let class = expected.class.map(|class| class.name().to_owned());
        differs("durability", stored.class.name().to_owned(), class)?;
        differs("store", stored.store.clone(), expected.store.clone())
    }

    pub fn founding(&self) -> &Founding {
        &self.state.founding
    }

    pub fn home(&self) -> &H {
        &self.home
    }

    /// Returns the home for changes, such as opening its disk.
    pub fn home_mut(&mut self) -> &mut H {
        &mut self.home
    }

    pub fn member(&self) -> Member {
        Member { node: self.state.founding.node, incarnation: self.state.incarnation }
    }

    pub fn is_newly_created(&self) -> bool {
        self.is_newly_created
    }

    /// Returns the boot number, a count of process starts ([volatile-1]).
    pub fn boot(&self) -> u32 {
        self.state.boot
    }

    /// Returns the incarnation, a count of losses of memory ([volatile-1]).
    pub fn incarnation(&self) -> Incarnation {
        self.state.incarnation
    }

    /// Returns the random seed for the timeouts of this process. It differs between nodes and
    /// between starts, but is not secret.
    pub fn seed(&self) -> u64 {
        let Founding { join_nonce, node, .. } = self.state.founding;
        join_nonce ^ (u64::from(self.state.boot) << 32) ^ u64::from(node.0)
    }

    /// Returns the nodes that this node admitted as the founder, with their nonces.
    pub fn admitted_nodes(&self) -> &BTreeMap<NodeId, u64> {
        &self.state.admitted_nodes
    }

    /// Returns the known addresses of the group's nodes.
    pub fn address_book(&self) -> &AddressBook {
        &self.address_book
    }

    /// Returns the damage because of which the founding addresses replaced the address book, if
    /// any.
    pub fn address_book_damage(&self) -> Option<&str> {
        self.address_book_damage.as_deref()
    }

    /// Sets the addresses of the group's nodes. [`Self::save_address_book`] makes them durable.
    pub fn set_address_book(&mut self, book: AddressBook) {
        self.address_book = book;
        self.is_address_book_unsaved = true;
    }

    /// Writes the address book durably, if it changed.
    pub fn save_address_book(&mut self) -> Result<(), IdentityError> {
        if self.is_address_book_unsaved {
            self.address_book.write(&mut self.home)?;
            self.is_address_book_unsaved = false;
        }
        Ok(())
    }

    /// Returns the role that this node is to take after joining; `None` once it has been taken.
    pub fn joining_role(&self) -> Option<MemberRole> {
        self.state.joining_role
    }

    /// Marks the joining role as taken. From then on, operators manage the node's role.
    pub fn mark_joined(&mut self) -> Result<(), IdentityError> {
        self.update_state(|state| {
            state.joining_role = None;
            Ok(())
        })
    }

    pub fn is_removed(&self) -> bool {
        self.state.is_removed
    }

    /// Marks the node as removed, so that it never starts again from this home ([member-1]).
    pub fn mark_removed(&mut self) -> Result<(), IdentityError> {
        self.update_state(|state| {
            state.is_removed = true;
            Ok(())
        })
    }

    /// [level-8] Returns the level that the contents of the folder need.
    pub fn level(&self) -> Level {
        self.state.level
    }

    /// [level-8] Raises the folder's level before it gets contents that need `level`. The new level
    /// is durable when this returns, so that no earlier release ever reads these contents.
    pub fn mark_level(&mut self, level: Level) -> Result<(), IdentityError> {
        if level <= self.state.level {
            return Ok(());
        }
        self.update_state(|state| {
            state.level = level;
            Ok(())
        })
    }

    /// Counts this start and consumes the mark of a clean stop, both durably before the first
    /// message ([volatile-1], [volatile-4]). Returns how the previous process ended.
    pub fn begin_boot(&mut self) -> Result<LastStop, IdentityError> {
        let last = match (self.state.boot, self.state.is_clean_stop) {
            (0, _) => LastStop::Never,
            (_, true) => LastStop::Clean,
            (_, false) => LastStop::Unclean,
        };
        self.update_state(|state| {
            state.boot =
                state.boot.checked_add(1).ok_or(IdentityError::CounterExhausted("boot"))?;
            state.is_clean_stop = false;
            Ok(())
        })?;
        Ok(last)
    }

    /// Makes the node a new member, because it may have forgotten votes or promises ([volatile-1]).
    pub fn new_incarnation(&mut self) -> Result<Incarnation, IdentityError> {
        self.renew_above(Memory::default())
    }

    /// [lie-4] Makes the node a new member, with an incarnation and a boot number above those that
    /// its peers remember and the folder may have forgotten.
    pub fn renew_above(&mut self, remembered: Memory) -> Result<Incarnation, IdentityError> {
        let next = next_incarnation(self.state.incarnation.max(remembered.log_end.incarnation))?;
        let boot = remembered.boot.checked_add(1).ok_or(IdentityError::CounterExhausted("boot"))?;
        self.update_state(|state| {
            (state.incarnation, state.boot) = (next, state.boot.max(boot));
            Ok(())
        })?;
        Ok(next)
    }

    /// [lie-5] Reserves for the next process an incarnation and a boot number above the remembered
    /// ones. The reservation is durable when this returns. This process continues in its present
    /// incarnation, without a vote.
    pub fn reserve_next_incarnation(&mut self, remembered: Memory) -> Result<(), IdentityError> {
        let before = self.next_process_minimum;
        let next = next_incarnation(self.state.incarnation.max(remembered.log_end.incarnation))?;
        let (incarnation, boot) = before.unwrap_or_default();
        self.next_process_minimum = Some((incarnation.max(next), boot.max(remembered.boot)));
        let saved = self.write_file();
        if saved.is_err() {
            self.next_process_minimum = before;
        }
        saved
    }

    /// Marks a clean stop. Call it only when all votes and promises are on stable storage and no
    /// more will follow ([volatile-4]).
    pub fn mark_clean(&mut self) -> Result<(), IdentityError> {
        self.update_state(|state| {
            state.is_clean_stop = true;
            Ok(())
        })
    }

    /// Admits a node, as its founder ([era-11]). The admission is durable when this returns. The
    /// same folder may ask again. Another folder with the same node id is refused, because the
    /// first one's votes count.
    pub fn admit_node(&mut self, node: NodeId, nonce: u64) -> Result<(), IdentityError> {
        match self.state.admitted_nodes.get(&node) {
            Some(known) if *known == nonce => Ok(()),
            Some(_) => Err(IdentityError::AlreadyAdmitted { node }),
            None if self.state.admitted_nodes.len() >= NODES_MAX => {
                Err(IdentityError::TooManyNodes)
            }
            None => self.update_state(|state| {
                state.admitted_nodes.insert(node, nonce);
                Ok(())
            }),
        }
    }

    /// [read-4] Permits this process to grant leases of `us` microseconds, durably, so that a later
    /// process knows of them whatever its own settings. Returns the maximum length that earlier
    /// processes may have granted, in microseconds.
    pub fn permit_leases(&mut self, us: u64) -> Result<u64, IdentityError> {
        let before = self.state.lease_us_max;
        if us > before {
            self.update_state(|state| {
                state.lease_us_max = us;
                Ok(())
            })?;
        }
        Ok(before)
    }

    /// Changes the state and saves it. If saving fails, the previous state is restored.
    fn update_state(
        &mut self,
        edit: impl FnOnce(&mut IdentityState) -> Result<(), IdentityError>,
    ) -> Result<(), IdentityError> {
        let mut state = self.state.clone();
        edit(&mut state)?;
        let before = std::mem::replace(&mut self.state, state);
        let saved = self.write_file();
        if saved.is_err() {
            self.state = before;
        }
        saved
    }

    /// Durably rewrites the file `name` from its copy in memory, because the disk does not return
    /// the bytes that were written. The copy equals the last saved version ([scrub-1]).
    pub fn rewrite_file(&mut self, name: &str) -> Result<(), IdentityError> {
        match name {
            IDENTITY_FILE => self.write_file(),
            BOOK_FILE => Ok(self.address_book.write(&mut self.home)?),
            _ => Ok(()),
        }
    }

    /// Writes the identity file durably, replacing it as a whole.
    fn write_file(&mut self) -> Result<(), IdentityError> {
        let mut state = self.state.clone();
        if let Some((incarnation, boot)) = self.next_process_minimum {
            (state.incarnation, state.boot) = (incarnation, state.boot.max(boot));
        }
        let lines = encode(&state);
        Ok(self.home.replace(IDENTITY_FILE, sealed::append_checksum_line(&lines).as_bytes())?)
    }
}

fn next_incarnation(last: Incarnation) -> Result<Incarnation, IdentityError> {
    let next = last.0.checked_add(1).map(Incarnation);
    next.ok_or(IdentityError::CounterExhausted("incarnation"))
}

/// Reads the founding record of a home for the offline tools, possibly while a process uses the
/// home. `folder` names the home in errors.
pub fn read_founding(files: &impl SmallFiles, folder: &Path) -> Result<Founding, IdentityError> {
    Ok(read(files, folder)?.founding)
}

fn read(files: &impl SmallFiles, folder: &Path) -> Result<IdentityState, IdentityError> {
    let file = folder.join(IDENTITY_FILE);
    let Some(bytes) = files.read(IDENTITY_FILE)? else {
        let folder = folder.to_owned();
        return Err(IdentityError::Missing { folder });
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| IdentityError::Damaged { file: file.clone(), reason: "not a text".into() })?;
    let newer = text.strip_prefix("quorate identity ").and_then(|rest| rest.lines().next());
    if newer.is_some_and(|version| version.parse::<u32>().is_ok_and(|version| version > 2)) {
        return Err(IdentityError::NewerRelease { file });
    }
    decode(&text).map_err(|reason| IdentityError::Damaged { file, reason })
}
