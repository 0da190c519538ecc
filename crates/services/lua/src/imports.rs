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
    COMMAND_BYTES_MAX, Data, MEMORY_BYTES_MAX, data, fuel::FUEL_PER_VISIT, host::HostSlot, number,
};

/// Page size of WebAssembly memory.
const PAGE_BYTES: usize = 1 << 16;
/// Fuel per command, in addition to the visits that the host reports.
const COMMAND_FUEL: u64 = 8 * FUEL_PER_VISIT;
/// Fuel per word of a command. A word may be a number that must be formatted.
const WORD_FUEL: u64 = 64;
/// Fuel per byte of a command's words. The host charges for its own copies.
const WORD_BYTE_FUEL: u64 = 1;
/// Fuel per byte of a reply, which is encoded and copied.
const REPLY_BYTE_FUEL: u64 = 1;
/// Number of bytes of new memory that one unit of fuel pays for; they are cleared.
const CLEARED_BYTES_PER_FUEL: u64 = 4;
/// Fuel per protected call, which enters the machine again.
const PROTECTED_CALL_FUEL: u64 = 2 * FUEL_PER_VISIT;
/// Maximum nesting of protected calls. Lua's own limit is lower.
const PROTECT_DEPTH_MAX: u32 = 256;
/// Length that marks a word as a number.
const NUMBER_MARK: u32 = u32::MAX;
/// Size of a word's descriptor: address and length.
const DESCRIPTOR_BYTES: usize = 8;
/// Maximum number of words of a command, above the limit of Lua's stack.
const WORDS_MAX: usize = 1 << 16;

/// State of a machine other than its memory.
#[derive(Default)]
pub(crate) struct MachineState {
    pub(crate) host: HostSlot,
    pub(crate) exports: Option<Exports>,
    reply: Vec<u8>,
    protect_depth: u32,
    /// Panic of the host, stored until wasmi returns, as not all its functions can be unwound.
    pub(crate) host_panic: Option<Box<dyn Any + Send>>,
}

/// Exports of the machine that the imports use.
#[derive(Clone, Copy)]
pub(crate) struct Exports {
    pub(crate) memory: Memory,
    pub(crate) stack_pointer: Global,
    pub(crate) enter: TypedFunc<(u32, u32, u32), ()>,
}

impl MachineState {
    /// Discards the state of a run.
    pub(crate) fn clear(&mut self) {
        self.reply = Vec::new();
        self.protect_depth = 0;
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
fn run_host_code<T>(
    state: &mut MachineState,
    work: impl FnOnce(&mut MachineState) -> T,
) -> Result<T, Error> {
    let done = panic::catch_unwind(AssertUnwindSafe(|| work(state)));
    done.map_err(|payload| {
        state.host_panic = Some(payload);
        Error::host(Panicked)
    })
}

/// Returns whether a panic of the host stopped the machine.
pub(crate) fn is_host_panic(error: &Error) -> bool {
    error.downcast_ref::<Panicked>().is_some()
}

/// Returns whether this is a Lua error that no protected call caught.
pub(crate) fn is_uncaught_throw(error: &Error) -> bool {
    error.downcast_ref::<Thrown>().is_some()
}

type MachineCaller<'a> = Caller<'a, MachineState>;

/// Returns the imports with their names.
pub(crate) fn import_functions(store: &mut Store<MachineState>) -> [(&'static str, Func); 5] {
    [
        ("protect", Func::wrap(&mut *store, protected_call)),
        ("throw", Func::wrap(&mut *store, throw)),
        ("grow", Func::wrap(&mut *store, grow_memory)),
        ("call", Func::wrap(&mut *store, call_command)),
        ("take", Func::wrap(&mut *store, take_reply)),
    ]
}

fn bad_pointer() -> Error {
    TrapCode::MemoryOutOfBounds.into()
}

fn machine_exports(caller: &MachineCaller<'_>) -> Result<Exports, Error> {
    caller.data().exports.ok_or_else(bad_pointer)
}

/// Consumes fuel. If too little is left, returns an error that stops the machine.
fn charge_fuel(caller: &mut MachineCaller<'_>, fuel: u64) -> Result<(), Error> {
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
fn protected_call(
    mut caller: MachineCaller<'_>,
    function: u32,
    lua: u32,
    data: u32,
    handler: u32,
) -> Result<u32, Error> {
    charge_fuel(&mut caller, PROTECTED_CALL_FUEL)?;
    let exports = machine_exports(&caller)?;
    if caller.data().protect_depth >= PROTECT_DEPTH_MAX {
        return Err(TrapCode::StackOverflow.into());
    }
    let stack = exports.stack_pointer.get(&caller);
    caller.data_mut().protect_depth += 1;
    let ended = exports.enter.call(&mut caller, (function, lua, data));
    caller.data_mut().protect_depth -= 1;
    match ended {
        Ok(()) => Ok(0),
        Err(error) if error.downcast_ref().is_some_and(|Thrown(to)| *to == handler) => {
            exports.stack_pointer.set(&mut caller, stack).map_err(|_| bad_pointer())?;
            Ok(1)
        }
        Err(error) => Err(error),
    }
}

/// Grows the memory, by at least half. Returns 0 at the limit.
fn grow_memory(mut caller: MachineCaller<'_>, pages: u32) -> Result<u32, Error> {
    let memory = machine_exports(&caller)?.memory;
    let (now, limit) = (memory.size(&caller), (MEMORY_BYTES_MAX / PAGE_BYTES) as u64);
    let room = limit.saturating_sub(now);
    if u64::from(pages) > room {
        return Ok(0);
    }
    let pages = u64::from(pages).max(now / 2).min(room);
    charge_fuel(&mut caller, pages * (PAGE_BYTES as u64 / CLEARED_BYTES_PER_FUEL))?;
    // A script must not notice a lack of memory on this node: all nodes need the same outcome.
    if memory.grow(&mut caller, pages).is_err() {
        let text = "no memory left for a script";
        caller.data_mut().host_panic = Some(Box::new(text));
        return Err(Error::host(Panicked));
    }
    Ok(1)
}

/// Word of a command, decoded from its descriptor.
enum CommandWord {
    Bytes(Range<usize>),
    Number(String),
}

impl CommandWord {
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
fn memory_range(memory: &[u8], at: u32, length: usize) -> Option<Range<usize>> {
    let at = usize::try_from(at).ok()?;
    let range = at..at.checked_add(length)?;
    memory.get(range.clone()).map(|_| range)
}

fn decode_word(memory: &[u8], from: &[u8]) -> Option<CommandWord> {
    let (at, length) = from.split_at_checked(4)?;
    let at = u32::from_le_bytes(at.try_into().ok()?);
    let length = u32::from_le_bytes(length.try_into().ok()?);
    if length == NUMBER_MARK {
        let bytes = memory.get(memory_range(memory, at, 8)?)?.try_into().ok()?;
        return Some(CommandWord::Number(number::format_word(f64::from_le_bytes(bytes))));
    }
    Some(CommandWord::Bytes(memory_range(memory, at, usize::try_from(length).ok()?)?))
}

fn decode_words(memory: &[u8], at: u32, count: usize) -> Option<Vec<CommandWord>> {
    let list = memory.get(memory_range(memory, at, count * DESCRIPTOR_BYTES)?)?;
    list.chunks_exact(DESCRIPTOR_BYTES).map(|from| decode_word(memory, from)).collect()
}

/// Executes a command. Returns the length of the reply, which `take` fetches.
fn call_command(
    mut caller: MachineCaller<'_>,
    at: u32,
    count: u32,
    version: u32,
) -> Result<u32, Error> {
    let count = usize::try_from(count).ok().filter(|count| *count <= WORDS_MAX);
    let count = count.ok_or_else(bad_pointer)?;
    charge_fuel(&mut caller, COMMAND_FUEL + count as u64 * WORD_FUEL)?;
    let memory = machine_exports(&caller)?.memory;
    let list = decode_words(memory.data(&caller), at, count).ok_or_else(bad_pointer)?;
    let bytes: usize = list.iter().map(CommandWord::length).sum();
    charge_fuel(&mut caller, bytes as u64 * WORD_BYTE_FUEL)?;
    if bytes > COMMAND_BYTES_MAX {
        let long = Data::Error(b"ERR a command of a script is longer than 32 MiB".to_vec());
        return store_reply(&mut caller, &long, version);
    }
    let (memory, state) = memory.data_and_store_mut(&mut caller);
    let list: Vec<&[u8]> = list.iter().map(|word| word.bytes(memory)).collect();
    let done = run_host_code(state, |state| state.host.get().map(|host| host.call(&list)))?;
    let (reply, visits) = done.ok_or_else(bad_pointer)?;
    charge_fuel(&mut caller, visits.saturating_mul(FUEL_PER_VISIT))?;
    store_reply(&mut caller, &reply, version)
}

/// Encodes a reply. A reply that is nested too deeply is replaced by an error.
fn store_reply(caller: &mut MachineCaller<'_>, reply: &Data, version: u32) -> Result<u32, Error> {
    let deep = Data::Error(b"ERR the reply of a command is nested too deeply".to_vec());
    let (reply, size) = match data::size_bound(reply, 0) {
        Some(size) => (reply, size),
        None => (&deep, 64),
    };
    charge_fuel(caller, size as u64 * REPLY_BYTE_FUEL)?;
    if size > MEMORY_BYTES_MAX {
        return Err(TrapCode::OutOfFuel.into());
    }
    let out = &mut caller.data_mut().reply;
    out.clear();
    data::encode_reply(reply, version, out);
    Ok(u32::try_from(out.len()).unwrap_or(u32::MAX))
}

/// Copies the last reply to the machine.
fn take_reply(mut caller: MachineCaller<'_>, to: u32, length: u32) -> Result<(), Error> {
    charge_fuel(&mut caller, u64::from(length) * REPLY_BYTE_FUEL)?;
    let reply = std::mem::take(&mut caller.data_mut().reply);
    let memory = machine_exports(&caller)?.memory.data_mut(&mut caller);
    let to = usize::try_from(to).map_err(|_| bad_pointer())?;
    let room = to.checked_add(reply.len()).and_then(|end| memory.get_mut(to..end));
    match room {
        Some(room) if usize::try_from(length) == Ok(reply.len()) => room.copy_from_slice(&reply),
        _ => return Err(bad_pointer()),
    }
    caller.data_mut().reply = reply;
    Ok(())
}
