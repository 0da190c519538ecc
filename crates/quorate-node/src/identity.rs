//! Who a data folder belongs to: one small file, replaced as a whole, never edited.
//!
//! It holds what must be durable before the first message of a process: the counters of
//! [volatile-1], the mark of a clean stop [volatile-4], and whom the founder has admitted [era-11].

use std::{
    collections::BTreeMap,
    error::Error,
    fmt::{self, Write as _},
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use quorate_core::{
    node_id::{Incarnation, Member, NodeId},
    record::Class,
};
use quorate_disk::{
    DataFolder, DiskError, Family, FileId, SmallFiles as _, is_full, made, sealed, temporary,
};
use rustix::fs::{FlockOperation, flock};

const FILE: &str = "identity";
const LOCK: &str = "lock";
const FIRST_LINE: &str = "quorate identity 1";
/// Most founding members and most admitted nodes; bounds what a stranger can make a folder hold.
pub const NODES_MAX: usize = 1024;

/// What a folder is told at its first start, and is held to ever after.
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
    /// Peer address of each founding member; each has weight 1.
    pub members: BTreeMap<NodeId, String>,
    /// Chosen at random by this folder, so that the founder knows it from another folder that
    /// claims the same node id.
    pub join_nonce: u64,
}

/// What the operator asks for at a later start; what is `None` was not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// `--node`
    pub node: Option<NodeId>,
    /// `--durability`
    pub class: Option<Class>,
    /// `--store`
    pub store: Option<String>,
}

/// How the process before this one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LastStop {
    /// There was none.
    Never,
    /// All votes and promises were written, then the mark.
    Clean,
    /// It was killed, or lost power.
    Unclean,
}

impl LastStop {
    /// Whether the node may have forgotten votes or promises, and is a new member from now on: in a
    /// volatile group nobody wrote them down but for a clean stop ([volatile-1], [volatile-4]).
    pub fn forgets(self, class: Class) -> bool {
        self == Self::Unclean && class == Class::Volatile
    }
}

/// The identity of a folder, which stays locked while this lives.
#[derive(Debug)]
pub struct Identity {
    folder: PathBuf,
    state: State,
    /// Held for its lock.
    _lock: File,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    founding: Founding,
    boot: u32,
    incarnation: Incarnation,
    clean: bool,
    admitted: BTreeMap<NodeId, u64>,
}

/// Why a folder cannot be used. Names the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityError {
    /// The operating system refused.
    Io {
        /// Which operation on which file, and how it failed.
        detail: String,
        /// What the operating system called it.
        kind: io::ErrorKind,
    },
    /// Another process has it.
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// It holds something else.
    Foreign {
        /// The folder.
        folder: PathBuf,
        /// What was found.
        found: String,
    },
    /// There is no identity in it.
    Missing {
        /// The folder.
        folder: PathBuf,
    },
    /// There is one already.
    Exists {
        /// The folder.
        folder: PathBuf,
    },
    /// The identity cannot be what was written.
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It was written by a newer program.
    Newer {
        /// The file.
        file: PathBuf,
    },
    /// It is another's than was asked for.
    Mismatch {
        /// What differs.
        what: &'static str,
        /// What the folder says.
        stored: String,
        /// What was asked for.
        asked: String,
    },
    /// [era-11] The node id was admitted with another nonce: its folder was lost or replaced, and
    /// with it votes may be forgotten.
    AlreadyAdmitted {
        /// The node id.
        node: NodeId,
    },
    /// As many nodes as may be were admitted.
    TooManyNodes,
    /// A counter has no next number.
    Exhausted(&'static str),
}

impl IdentityError {
    /// Whether room is what is missing: the same may work later.
    pub const fn is_full(&self) -> bool {
        matches!(self, Self::Io { kind, .. } if is_full(*kind))
    }

    /// What a person may do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Io { .. } => "check that the folder exists, is writable and has room, and that the \
                                process may open more files (ulimit -n)"
                .into(),
            Self::InUse { .. } => "stop the other process, or use another --data folder".into(),
            Self::Foreign { .. } => "use an empty folder, or one made by quorate".into(),
            Self::Missing { .. } => "start a new node with --node and --cluster".into(),
            Self::Exists { .. } => "start without --cluster, or use an empty folder".into(),
            Self::Damaged { .. } => {
                "keep the folder as it is, and let the others go on without this node: an older copy \
                 of the file would use numbers again that were used already"
                    .into()
            }
            Self::Newer { .. } => "start the newer version of the program".into(),
            Self::Mismatch { what, stored, .. } => {
                format!("leave --{what} out or set it to {stored}, or use another --data folder")
            }
            Self::AlreadyAdmitted { node } => {
                format!("bring back the folder of node {node}, or let it join under a new id")
            }
            Self::TooManyNodes => "remove nodes, or found a new cluster".into(),
            Self::Exhausted(_) => "replace the node under a new id".into(),
        }
    }
}

impl fmt::Display for IdentityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { detail, .. } => f.write_str(detail),
            Self::InUse { folder } => {
                write!(
                    f,
                    "{}: another process is using this folder",
                    folder.display()
                )
            }
            Self::Foreign { folder, found } => {
                write!(
                    f,
                    "{}: not a quorate data folder: {found}",
                    folder.display()
                )
            }
            Self::Missing { folder } => {
                write!(
                    f,
                    "{}: there is no node in this folder yet",
                    folder.display()
                )
            }
            Self::Exists { folder } => {
                write!(
                    f,
                    "{}: there is a node in this folder already",
                    folder.display()
                )
            }
            Self::Damaged { file, reason } => write!(f, "{}: {reason}", file.display()),
            Self::Newer { file } => {
                write!(
                    f,
                    "{}: written by a newer version of the program",
                    file.display()
                )
            }
            Self::Mismatch {
                what,
                stored,
                asked,
            } => {
                write!(f, "this folder has {what} {stored}, not {asked}")
            }
            Self::AlreadyAdmitted { node } => {
                write!(
                    f,
                    "node {node} was admitted with another folder than this one"
                )
            }
            Self::TooManyNodes => write!(f, "more than {NODES_MAX} nodes"),
            Self::Exhausted(what) => write!(f, "the {what} counter is used up"),
        }
    }
}

impl Error for IdentityError {}

impl From<DiskError> for IdentityError {
    fn from(error: DiskError) -> Self {
        Self::Io {
            kind: error.kind,
            detail: error.detail,
        }
    }
}

impl Identity {
    /// Whether there is an identity in the folder. A missing folder has none.
    pub fn exists(folder: &Path) -> Result<bool, IdentityError> {
        let file = folder.join(FILE);
        file.try_exists()
            .map_err(|error| failed("look for", &file, &error))
    }

    /// Makes the folder a node's. It must be empty or missing; a file left by a crash of an earlier
    /// attempt does not count.
    pub fn create(folder: &Path, founding: Founding) -> Result<Self, IdentityError> {
        check(&founding).map_err(|reason| IdentityError::Damaged {
            file: folder.join(FILE),
            reason: reason.to_owned(),
        })?;
        if !folder.exists() {
            fs::create_dir_all(folder).map_err(|error| failed("create", folder, &error))?;
            if let Some(parent) = folder.parent() {
                let parent = if parent.as_os_str().is_empty() {
                    Path::new(".")
                } else {
                    parent
                };
                sync_folder(parent)?;
            }
        }
        if Self::exists(folder)? {
            return Err(IdentityError::Exists {
                folder: folder.to_owned(),
            });
        }
        refuse_foreign(folder)?;
        let lock = lock(folder)?;
        let state = State {
            founding,
            boot: 0,
            incarnation: Incarnation(0),
            clean: false,
            admitted: BTreeMap::new(),
        };
        let identity = Self {
            folder: folder.to_owned(),
            state,
            _lock: lock,
        };
        // Another process may have been first between the look and the lock.
        if Self::exists(folder)? {
            return Err(IdentityError::Exists {
                folder: folder.to_owned(),
            });
        }
        // Whoever finds the identity knows by this that a log without segments is a new one.
        for family in Family::all() {
            made::write(&mut DataFolder::new(folder), FileId::new(family, 0))?;
        }
        identity.save()?;
        Ok(identity)
    }

    /// Opens a node's folder, if it is the one that was asked for.
    pub fn open(folder: &Path, expected: &Expected) -> Result<Self, IdentityError> {
        if !Self::exists(folder)? {
            if folder.exists() {
                refuse_foreign(folder)?;
            }
            return Err(IdentityError::Missing {
                folder: folder.to_owned(),
            });
        }
        let lock = lock(folder)?;
        let state = read(folder)?;
        let identity = Self {
            folder: folder.to_owned(),
            state,
            _lock: lock,
        };
        identity.compare(expected)?;
        Ok(identity)
    }

    fn compare(&self, expected: &Expected) -> Result<(), IdentityError> {
        let stored = &self.state.founding;
        let differs = |what, stored: String, asked: Option<String>| match asked {
            Some(asked) if asked != stored => Err(IdentityError::Mismatch {
                what,
                stored,
                asked,
            }),
            _ => Ok(()),
        };
        let node = expected.node.map(|node| node.to_string());
        differs("node", stored.node.to_string(), node)?;
        let class = expected.class.map(|class| class_name(class).to_owned());
        differs("durability", class_name(stored.class).to_owned(), class)?;
        differs("store", stored.store.clone(), expected.store.clone())
    }

    /// What the folder was told at its first start.
    pub fn founding(&self) -> &Founding {
        &self.state.founding
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Who this node is, in its present incarnation.
    pub fn member(&self) -> Member {
        Member {
            node: self.state.founding.node,
            incarnation: self.state.incarnation,
        }
    }

    /// Counts process starts ([volatile-1]).
    pub fn boot(&self) -> u32 {
        self.state.boot
    }

    /// Counts losses of memory ([volatile-1]).
    pub fn incarnation(&self) -> Incarnation {
        self.state.incarnation
    }

    /// The founder's table of admitted nodes.
    pub fn admitted(&self) -> &BTreeMap<NodeId, u64> {
        &self.state.admitted
    }

    /// Counts this start, and consumes the mark of a clean stop, both durably, before the first
    /// message ([volatile-1], [volatile-4]). Says how the last process ended.
    pub fn begin_boot(&mut self) -> Result<LastStop, IdentityError> {
        let last = match (self.state.boot, self.state.clean) {
            (0, _) => LastStop::Never,
            (_, true) => LastStop::Clean,
            (_, false) => LastStop::Unclean,
        };
        self.change(|state| {
            state.boot = state
                .boot
                .checked_add(1)
                .ok_or(IdentityError::Exhausted("boot"))?;
            state.clean = false;
            Ok(())
        })?;
        Ok(last)
    }

    /// Votes or promises may be forgotten: from now on this is a new member ([volatile-1]).
    pub fn new_incarnation(&mut self) -> Result<Incarnation, IdentityError> {
        self.change(|state| {
            let next = state.incarnation.0.checked_add(1);
            state.incarnation = Incarnation(next.ok_or(IdentityError::Exhausted("incarnation"))?);
            Ok(())
        })?;
        Ok(self.state.incarnation)
    }

    /// All votes and promises are on stable storage, and there will be no more ([volatile-4]).
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

    /// In memory only what is on disk: a change that could not be saved did not happen.
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

    /// Replaces the file as a whole, durably.
    pub fn save(&self) -> Result<(), IdentityError> {
        let lines = encode(&self.state);
        Ok(DataFolder::new(&self.folder).replace(FILE, sealed::seal(&lines).as_bytes())?)
    }
}

/// Reads an identity without locking or changing anything, for the offline tools.
pub fn peek(folder: &Path) -> Result<Founding, IdentityError> {
    if !Identity::exists(folder)? {
        return Err(IdentityError::Missing {
            folder: folder.to_owned(),
        });
    }
    Ok(read(folder)?.founding)
}

fn failed(action: &str, file: &Path, error: &io::Error) -> IdentityError {
    IdentityError::Io {
        detail: format!("{action} {}: {error}", file.display()),
        kind: error.kind(),
    }
}

fn sync_folder(folder: &Path) -> Result<(), IdentityError> {
    let sync = || File::open(folder)?.sync_all();
    sync().map_err(|error| failed("sync", folder, &error))
}

/// The lock is the kernel's and goes with the process, however that ends.
pub(crate) fn lock(folder: &Path) -> Result<File, IdentityError> {
    let file = folder.join(LOCK);
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&file);
    let lock = lock.map_err(|error| failed("open", &file, &error))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(IdentityError::InUse {
            folder: folder.to_owned(),
        }),
        Err(error) => Err(failed("lock", &file, &error.into())),
    }
}

/// A folder without an identity may hold nothing but what an attempt to make one leaves behind.
fn refuse_foreign(folder: &Path) -> Result<(), IdentityError> {
    let foreign = |found| {
        Err(IdentityError::Foreign {
            folder: folder.to_owned(),
            found,
        })
    };
    if !folder.is_dir() {
        return foreign("it is a file".to_owned());
    }
    let entries = fs::read_dir(folder).map_err(|error| failed("read", folder, &error))?;
    for entry in entries {
        let name = entry
            .map_err(|error| failed("read", folder, &error))?
            .file_name();
        let mut made = Family::all().map(Family::made_file);
        let ours = name == LOCK
            || name == "lost+found"
            || name == *temporary(FILE)
            || made.any(|file| name == file || name == *temporary(file));
        if !ours {
            return foreign(format!("it holds {}", name.to_string_lossy()));
        }
    }
    Ok(())
}

fn read(folder: &Path) -> Result<State, IdentityError> {
    let file = folder.join(FILE);
    let bytes = DataFolder::new(folder).read(FILE)?;
    let bytes = bytes.ok_or_else(|| failed("read", &file, &io::ErrorKind::NotFound.into()))?;
    let text = String::from_utf8(bytes).map_err(|_| IdentityError::Damaged {
        file: file.clone(),
        reason: "not a text".into(),
    })?;
    let newer = text
        .strip_prefix("quorate identity ")
        .and_then(|rest| rest.lines().next());
    if newer.is_some_and(|version| version.parse::<u32>().is_ok_and(|version| version > 1)) {
        return Err(IdentityError::Newer { file });
    }
    decode(&text).map_err(|reason| IdentityError::Damaged { file, reason })
}

fn class_name(class: Class) -> &'static str {
    match class {
        Class::Volatile => "volatile",
        Class::Durable => "durable",
    }
}

/// What would not survive being written as lines.
fn check(founding: &Founding) -> Result<(), &'static str> {
    let plain = |text: &str| {
        !text.is_empty() && text.len() <= 256 && !text.chars().any(|c| c.is_whitespace())
    };
    if !plain(&founding.store) {
        return Err("the name of the store is not one word");
    }
    if founding.members.len() > NODES_MAX {
        return Err("too many members");
    }
    if !founding.members.values().all(|address| plain(address)) {
        return Err("an address is not one word");
    }
    Ok(())
}

fn encode(state: &State) -> String {
    let mut text = String::new();
    let founding = &state.founding;
    let mut line = |line: fmt::Arguments<'_>| {
        text.write_fmt(line)
            .expect("writing to a string does not fail");
        text.push('\n');
    };
    line(format_args!("{FIRST_LINE}"));
    line(format_args!("cluster {:032x}", founding.cluster));
    line(format_args!("node {}", founding.node));
    line(format_args!("durability {}", class_name(founding.class)));
    line(format_args!("store {}", founding.store));
    line(format_args!("boot {}", state.boot));
    line(format_args!("incarnation {}", state.incarnation.0));
    line(format_args!("clean {}", u8::from(state.clean)));
    line(format_args!("nonce {:016x}", founding.join_nonce));
    for (node, address) in &founding.members {
        line(format_args!("member {node} {address}"));
    }
    for (node, nonce) in &state.admitted {
        line(format_args!("admitted {node} {nonce:016x}"));
    }
    text
}

fn decode(text: &str) -> Result<State, String> {
    let mut lines = sealed::open(text)?.lines();
    if lines.next() != Some(FIRST_LINE) {
        return Err("the first line is unknown".into());
    }
    let mut fields = Lines { lines };
    let founding = Founding {
        cluster: fields
            .hex("cluster")
            .and_then(|hex| number(u128::from_str_radix(hex, 16)))?,
        node: NodeId(number(fields.word("node")?.parse())?),
        class: match fields.word("durability")? {
            "volatile" => Class::Volatile,
            "durable" => Class::Durable,
            _ => return Err("unknown durability class".into()),
        },
        store: fields.word("store")?.to_owned(),
        members: BTreeMap::new(),
        join_nonce: 0,
    };
    let mut state = State {
        founding,
        boot: number(fields.word("boot")?.parse())?,
        incarnation: Incarnation(number(fields.word("incarnation")?.parse())?),
        clean: fields.word("clean")? == "1",
        admitted: BTreeMap::new(),
    };
    state.founding.join_nonce = fields
        .hex("nonce")
        .and_then(|hex| number(u64::from_str_radix(hex, 16)))?;
    for line in fields.lines {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["member", node, address] => {
                let node = NodeId(number(node.parse())?);
                state.founding.members.insert(node, address.to_owned());
            }
            ["admitted", node, nonce] => {
                let nonce = number(u64::from_str_radix(nonce, 16))?;
                state.admitted.insert(NodeId(number(node.parse())?), nonce);
            }
            _ => return Err(format!("unknown line: {line}")),
        }
    }
    Ok(state)
}

fn number<T>(parsed: Result<T, std::num::ParseIntError>) -> Result<T, String> {
    parsed.map_err(|error| error.to_string())
}

/// The lines of the file that come in a fixed order.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
}

impl<'a> Lines<'a> {
    fn word(&mut self, name: &str) -> Result<&'a str, String> {
        let line = self.lines.next().unwrap_or_default();
        let rest = line
            .strip_prefix(name)
            .and_then(|rest| rest.strip_prefix(' '));
        rest.ok_or_else(|| format!("{name} is missing"))
    }

    fn hex(&mut self, name: &str) -> Result<&'a str, String> {
        self.word(name)
    }
}
