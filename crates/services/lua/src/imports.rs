//! Functions that the machine imports. Pointers and lengths from the machine are untrusted, and all
//! work is charged before it is done.

use std::{
    any::Any,
    fmt,
    ops::Range,
    panic::{self, AssertUnwindSafe},
};

use wasmi::{Caller, Error, Func, Global, Memory, Store, TrapCode, TypedFunc};

use crate::{
    COMMAND_BYTES_MAX, Data, MEMORY_BYTES_MAX, data, fuel::FUEL_PER_VISIT, host::Slot, number,
};

/// Page size of WebAssembly memory.
const PAGE_BYTES: usize = 1 << 16;
/// Fuel per command, in addition to the visits that the host reports.
const CALL: u64 = 8 * FUEL_PER_VISIT;
/// Fuel per word of a command. A word may be a number that must be formatted.
const WORD: u64 = 64;
/// Fuel per byte of a command's words. The host charges for its own copies.
const WORD_BYTE: u64 = 1;
/// Fuel per byte of a reply, which is encoded and copied.
const REPLY_BYTE: u64 = 1;
/// Number of bytes of new memory that one unit of fuel pays for; they are cleared.
const CLEARED_BYTES_PER_FUEL: u64 = 4;
/// Fuel per protected call, which enters the machine again.
const PROTECT: u64 = 2 * FUEL_PER_VISIT;
/// Maximum nesting of protected calls. Lua's own limit is lower.
const PROTECT_DEPTH_MAX: u32 = 256;
/// Length that marks a word as a number.
const NUMBER: u32 = u32::MAX;
/// Size of a word's descriptor: address and length.
const WORD_BYTES: usize = 8;
/// Maximum number of words of a command, above the limit of Lua's stack.
const WORDS_MAX: usize = 1 << 16;

/// State of a machine other than its memory.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) host: Slot,
    pub(crate) exports: Option<Exports>,
    reply: Vec<u8>,
    depth: u32,
    /// Panic of the host, stored until wasmi returns, as not all its functions can be unwound.
    pub(crate) panic: Option<Box<dyn Any + Send>>,
}

/// Exports of the machine that the imports use.
#[derive(Clone, Copy)]
pub(crate) struct Exports {
    pub(crate) memory: Memory,
    pub(crate) stack: Global,
    pub(crate) enter: TypedFunc<(u32, u32, u32), ()>,
}

impl State {
    /// Discards the state of a run.
    pub(crate) fn clear(&mut self) {
        self.reply = Vec::new();
        self.depth = 0;
    }
}

/// Lua error on its way to the handler with this address.
#[derive(Debug)]
struct Thrown(u32);

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an error that no protected call caught")
    }
}
impl wasmi::errors::HostError for Thrown {}

/// Error that stops the machine after a panic. The payload is in the state.
#[derive(Debug)]
struct Panicked;

impl fmt::Display for Panicked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the host of a script panicked")
    }
}
impl wasmi::errors::HostError for Panicked {}

/// Runs code of the host. Stores a panic in the state, to be resumed once the machine has returned.
fn outside<T>(state: &mut State, work: impl FnOnce(&mut State) -> T) -> Result<T, Error> {
    let done = panic::catch_unwind(AssertUnwindSafe(|| work(state)));
    done.map_err(|payload| {
        state.panic = Some(payload);
        Error::host(Panicked)
    })
}

/// Returns whether a panic of the host stopped the machine.
pub(crate) fn is_panic(error: &Error) -> bool {
    error.downcast_ref::<Panicked>().is_some()
}

/// Returns whether this is a Lua error that no protected call caught.
pub(crate) fn is_thrown(error: &Error) -> bool {
    error.downcast_ref::<Thrown>().is_some()
}

type Here<'a> = Caller<'a, State>;

/// Returns the imports with their names.
pub(crate) fn all(store: &mut Store<State>) -> [(&'static str, Func); 5] {
    [
        ("protect", Func::wrap(&mut *store, protect)),
        ("throw", Func::wrap(&mut *store, throw)),
        ("grow", Func::wrap(&mut *store, grow)),
        ("call", Func::wrap(&mut *store, call)),
        ("take", Func::wrap(&mut *store, take)),
    ]
}

fn bad_pointer() -> Error {
    TrapCode::MemoryOutOfBounds.into()
}

fn exports(caller: &Here<'_>) -> Result<Exports, Error> {
    caller.data().exports.ok_or_else(bad_pointer)
}

/// Consumes fuel. If too little is left, returns an error that stops the machine.
fn charge(caller: &mut Here<'_>, fuel: u64) -> Result<(), Error> {
    match caller.get_fuel()?.checked_sub(fuel) {
        Some(left) => caller.set_fuel(left),
        None => {
            caller.set_fuel(0)?;
            Err(TrapCode::OutOfFuel.into())
        }
    }
}

fn throw(handler: u32) -> Result<(), Error> {
    Err(Error::host(Thrown(handler)))
}

/// Calls a function of the machine. Returns 1 if `throw` unwound it.
fn protect(
    mut caller: Here<'_>,
    function: u32,
    lua: u32,
    data: u32,
    handler: u32,
) -> Result<u32, Error> {
    charge(&mut caller, PROTECT)?;
    let exports = exports(&caller)?;
    if caller.data().depth >= PROTECT_DEPTH_MAX {
        return Err(TrapCode::StackOverflow.into());
    }
    let stack = exports.stack.get(&caller);
    caller.data_mut().depth += 1;
    let ended = exports.enter.call(&mut caller, (function, lua, data));
    caller.data_mut().depth -= 1;
    match ended {
        Ok(()) => Ok(0),
        Err(error) if error.downcast_ref().is_some_and(|Thrown(to)| *to == handler) => {
            exports.stack.set(&mut caller, stack).map_err(|_| bad_pointer())?;
            Ok(1)
        }
        Err(error) => Err(error),
    }
}

/// Grows the memory, by at least half. Returns 0 at the limit.
fn grow(mut caller: Here<'_>, pages: u32) -> Result<u32, Error> {
    let memory = exports(&caller)?.memory;
    let (now, limit) = (memory.size(&caller), (MEMORY_BYTES_MAX / PAGE_BYTES) as u64);
    let room = limit.saturating_sub(now);
    if u64::from(pages) > room {
        return Ok(0);
    }
    let pages = u64::from(pages).max(now / 2).min(room);
    charge(&mut caller, pages * (PAGE_BYTES as u64 / CLEARED_BYTES_PER_FUEL))?;
    // A script must not notice a lack of memory on this node: all nodes need the same outcome.
    if memory.grow(&mut caller, pages).is_err() {
        let text = "no memory left for a script";
        caller.data_mut().panic = Some(Box::new(text));
        return Err(Error::host(Panicked));
    }
    Ok(1)
}

/// Word of a command, decoded from its descriptor.
enum Word {
    Bytes(Range<usize>),
    Number(String),
}

impl Word {
    fn length(&self) -> usize {
        match self {
            Self::Bytes(range) => range.len(),
            Self::Number(text) => text.len(),
        }
    }

    fn bytes<'a>(&'a self, memory: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Bytes(range) => memory.get(range.clone()).unwrap_or_default(),
            Self::Number(text) => text.as_bytes(),
        }
    }
}

/// Returns a range of the memory, or `None` if it is out of bounds.
fn range(memory: &[u8], at: u32, length: usize) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    let range = at..at.checked_add(length)?;
    memory.get(range.clone()).map(|_| range)
}

fn word(memory: &[u8], from: &[u8]) -> Option<Word> {
    let (at, length) = from.split_at_checked(4)?;
    let at = u32::from_le_bytes(at.try_into().ok()?);
    let length = u32::from_le_bytes(length.try_into().ok()?);
    if length == NUMBER {
        let bytes = memory.get(range(memory, at, 8)?)?.try_into().ok()?;
        return Some(Word::Number(number::word(f64::from_le_bytes(bytes))));
    }
    Some(Word::Bytes(range(memory, at, usize::try_from(length).ok()?)?))
}

fn words(memory: &[u8], at: u32, count: usize) -> Option<Vec<Word>> {
    let list = memory.get(range(memory, at, count * WORD_BYTES)?)?;
    list.chunks_exact(WORD_BYTES).map(|from| word(memory, from)).collect()
}

/// Executes a command. Returns the length of the reply, which `take` fetches.
fn call(mut caller: Here<'_>, at: u32, count: u32, version: u32) -> Result<u32, Error> {
    let count = usize::try_from(count).ok().filter(|count| *count <= WORDS_MAX);
    let count = count.ok_or_else(bad_pointer)?;
    charge(&mut caller, CALL + count as u64 * WORD)?;
    let memory = exports(&caller)?.memory;
    let list = words(memory.data(&caller), at, count).ok_or_else(bad_pointer)?;
    let bytes: usize = list.iter().map(Word::length).sum();
    charge(&mut caller, bytes as u64 * WORD_BYTE)?;
    if bytes > COMMAND_BYTES_MAX {
        let long = Data::Error(b"ERR a command of a script is longer than 32 MiB".to_vec());
        return answer(&mut caller, &long, version);
    }
    let (memory, state) = memory.data_and_store_mut(&mut caller);
    let list: Vec<&[u8]> = list.iter().map(|word| word.bytes(memory)).collect();
    let done = outside(state, |state| state.host.get().map(|host| host.call(&list)))?;
    let (reply, visits) = done.ok_or_else(bad_pointer)?;
    charge(&mut caller, visits.saturating_mul(FUEL_PER_VISIT))?;
    answer(&mut caller, &reply, version)
}

/// Encodes a reply. A reply that is nested too deeply is replaced by an error.
fn answer(caller: &mut Here<'_>, reply: &Data, version: u32) -> Result<u32, Error> {
    let deep = Data::Error(b"ERR the reply of a command is nested too deeply".to_vec());
    let (reply, size) = match data::size(reply, 0) {
        Some(size) => (reply, size),
        None => (&deep, 64),
    };
    charge(caller, size as u64 * REPLY_BYTE)?;
    if size > MEMORY_BYTES_MAX {
        return Err(TrapCode::OutOfFuel.into());
    }
    let out = &mut caller.data_mut().reply;
    out.clear();
    data::encode(reply, version, out);
    Ok(u32::try_from(out.len()).unwrap_or(u32::MAX))
}

/// Copies the last reply to the machine.
fn take(mut caller: Here<'_>, to: u32, length: u32) -> Result<(), Error> {
    charge(&mut caller, u64::from(length) * REPLY_BYTE)?;
    let reply = std::mem::take(&mut caller.data_mut().reply);
    let memory = exports(&caller)?.memory.data_mut(&mut caller);
    let to = usize::try_from(to).map_err(|_| bad_pointer())?;
    let room = to.checked_add(reply.len()).and_then(|end| memory.get_mut(to..end));
    match room {
        Some(room) if usize::try_from(length) == Ok(reply.len()) => room.copy_from_slice(&reply),
        _ => return Err(bad_pointer()),
    }
    caller.data_mut().reply = reply;
    Ok(())
}
