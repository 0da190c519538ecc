//! The machine: Lua in an interpreter of WebAssembly that counts what it executes.
//!
//! `machine/` has the sources of `lua.wasm`. Addresses are offsets into the machine's memory, and
//! nothing of the process or of the system is in it, so all that happens there is a function of the
//! memory at the beginning and of what the imports return.

use wasmi::{
    CompilationMode, Config, CustomFuelCosts, Engine, Error, Extern, Instance, Module, Store,
    TrapCode, TypedFunc, Val,
};

use crate::{
    Host,
    host::Lent,
    imports::{self, Exports, State},
};

/// Fuel of a visit: what the machine executes in about a tenth of a microsecond.
pub(crate) const FUEL_PER_VISIT: u64 = 192;
/// Unit of the machine's memory.
pub(crate) const PAGE_BYTES: usize = 1 << 16;
/// Nested calls within the machine, and bytes of their values. Lua's own limits are lower, but for
/// patterns that match by themselves in themselves.
const CALLS_MAX: usize = 1 << 16;
const VALUE_BYTES_MAX: usize = 8 << 20;
/// What copies cost.
const COPIES: CustomFuelCosts = CustomFuelCosts {
    bytes_copied_per_fuel: 4,
    fuel_per_bytes_translated: 0,
    fuel_per_bytes_validated: 0,
};

/// The machine's program.
static PROGRAM: &[u8] = include_bytes!("../machine/lua.wasm");

/// What all machines of a process have in common: the translated program, and the memory that each
/// run begins with.
pub(crate) struct Program {
    engine: Engine,
    module: Module,
    /// Memory above the stack after `prepare`, up to its last byte that is not zero.
    image: Vec<u8>,
    stack: u32,
}

impl Program {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut config = Config::default();
        config
            .consume_fuel(true)
            // Lazy translation would be charged to the run that happens to be first.
            .compilation_mode(CompilationMode::Eager)
            .ignore_custom_sections(true)
            .fuel_cost(COPIES)
            .set_max_recursion_depth(CALLS_MAX)
            .set_max_stack_height(VALUE_BYTES_MAX);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, PROGRAM)?;
        let mut this = Self { engine, module, image: Vec::new(), stack: 0 };
        let mut machine = Machine::new(&this)?;
        let pages = machine.exports.memory.size(&machine.store);
        this.stack = machine.stack();
        machine.store.set_fuel(u64::MAX)?;
        machine.function::<(), ()>("prepare")?.call(&mut machine.store, ())?;
        assert!(
            machine.stack() == this.stack && machine.exports.memory.size(&machine.store) == pages,
            "the machine is prepared within its first memory"
        );
        let memory = machine.exports.memory.data(&machine.store);
        let used = memory.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        this.image = memory.get(this.stack as usize..used).unwrap_or_default().to_vec();
        Ok(this)
    }
}

/// One machine, with a memory of its own.
pub(crate) struct Machine {
    store: Store<State>,
    instance: Instance,
    exports: Exports,
    functions: Option<Functions>,
    /// Size of the memory, in pages, with which it was made.
    pages: u64,
}

#[derive(Clone, Copy)]
struct Functions {
    room: TypedFunc<u32, u32>,
    compile: TypedFunc<(u32, u32), u32>,
    execute: TypedFunc<u32, u32>,
}

/// Reason why the machine ended without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// It used its fuel up.
    Fuel,
    /// It called too deeply, or is broken.
    Other,
}

/// Only what every node's machine does in the same state is an outcome. Anything else, such as a
/// process without memory, ends the process.
#[expect(clippy::panic, reason = "see above")]
impl From<Error> for Trap {
    fn from(error: Error) -> Self {
        match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => Self::Fuel,
            Some(
                TrapCode::UnreachableCodeReached
                | TrapCode::MemoryOutOfBounds
                | TrapCode::TableOutOfBounds
                | TrapCode::IndirectCallToNull
                | TrapCode::IntegerDivisionByZero
                | TrapCode::IntegerOverflow
                | TrapCode::BadConversionToInteger
                | TrapCode::StackOverflow
                | TrapCode::BadSignature,
            ) => Self::Other,
            _ if imports::is_thrown(&error) => Self::Other,
            _ => panic!("a script cannot go on: {error}"),
        }
    }
}

/// What the machine wrote for the host.
pub(crate) struct Output<'a> {
    pub(crate) status: u32,
    pub(crate) bytes: &'a [u8],
    /// Version of the protocol that the script chose.
    pub(crate) version: u32,
}

impl Machine {
    /// Makes a machine whose memory is the program's image, if there is one already.
    pub(crate) fn new(program: &Program) -> Result<Self, Error> {
        let mut store = Store::new(&program.engine, State::default());
        let known = imports::all(&mut store);
        let imports: Option<Vec<Extern>> = program
            .module
            .imports()
            .map(|import| {
                known
                    .iter()
                    .find(|(name, _)| *name == import.name())
                    .map(|(_, found)| (*found).into())
            })
            .collect();
        let missing = || Error::new("the machine lacks an import or an export");
        store.set_fuel(u64::MAX)?;
        let instance = Instance::new(&mut store, &program.module, &imports.ok_or_else(missing)?)?;
        let exports = Exports {
            memory: instance.get_memory(&store, "memory").ok_or_else(missing)?,
            stack: instance.get_global(&store, "__stack_pointer").ok_or_else(missing)?,
            enter: instance.get_typed_func(&store, "enter")?,
        };
        store.data_mut().exports = Some(exports);
        let pages = exports.memory.size(&store);
        let mut this = Self { store, instance, exports, functions: None, pages };
        this.functions = Some(Functions {
            room: this.function("room")?,
            compile: this.function("compile")?,
            execute: this.function("execute")?,
        });
        this.restore(program);
        Ok(this)
    }

    fn function<P: wasmi::WasmParams, R: wasmi::WasmResults>(
        &self,
        name: &str,
    ) -> Result<TypedFunc<P, R>, Error> {
        self.instance.get_typed_func(&self.store, name)
    }

    fn stack(&self) -> u32 {
        match self.exports.stack.get(&self.store) {
            Val::I32(at) => at.cast_unsigned(),
            _ => 0,
        }
    }

    /// Returns everything to the state in which each run begins. Returns false if the memory grew:
    /// this machine would differ from a new one.
    pub(crate) fn restore(&mut self, program: &Program) -> bool {
        self.store.data_mut().clear();
        if self.exports.memory.size(&self.store) != self.pages {
            return false;
        }
        if program.image.is_empty() {
            return true;
        }
        let stack = Val::I32(program.stack.cast_signed());
        let (start, memory) =
            (program.stack as usize, self.exports.memory.data_mut(&mut self.store));
        let Some((below, above)) = memory.split_at_mut_checked(start) else {
            return false;
        };
        let Some((image, heap)) = above.split_at_mut_checked(program.image.len()) else {
            return false;
        };
        below.fill(0);
        image.copy_from_slice(&program.image);
        heap.fill(0);
        self.exports.stack.set(&mut self.store, stack).is_ok()
    }

    pub(crate) fn lend<'a>(&mut self, host: &'a mut (dyn Host + 'a)) -> Lent<'a> {
        self.store.data_mut().host.lend(host)
    }

    pub(crate) fn take_back(&mut self, lent: Lent<'_>) {
        self.store.data_mut().host.clear(lent);
    }

    pub(crate) fn set_fuel(&mut self, fuel: u64) {
        let _ = self.store.set_fuel(fuel);
    }

    pub(crate) fn fuel(&self) -> u64 {
        self.store.get_fuel().unwrap_or(0)
    }

    fn functions(&self) -> Result<Functions, Trap> {
        self.functions.ok_or(Trap::Other)
    }

    /// Copies bytes into the machine. Returns their address.
    fn write(&mut self, bytes: &[u8]) -> Result<u32, Trap> {
        let length = u32::try_from(bytes.len()).map_err(|_| Trap::Other)?;
        let at = self.functions()?.room.call(&mut self.store, length)?;
        if at == 0 {
            return Err(Trap::Other);
        }
        let to = usize::try_from(at).map_err(|_| Trap::Other)?;
        self.exports.memory.write(&mut self.store, to, bytes).map_err(|_| Trap::Other)?;
        Ok(at)
    }

    /// Compiles a script, which the machine keeps.
    pub(crate) fn compile(&mut self, text: &[u8]) -> Result<Output<'_>, Trap> {
        let at = self.write(text)?;
        let length = u32::try_from(text.len()).map_err(|_| Trap::Other)?;
        let output = self.functions()?.compile.call(&mut self.store, (at, length))?;
        self.output(output)
    }

    /// Executes the script that was compiled.
    pub(crate) fn execute(&mut self, input: &[u8]) -> Result<Output<'_>, Trap> {
        let at = self.write(input)?;
        let output = self.functions()?.execute.call(&mut self.store, at)?;
        self.output(output)
    }

    /// Reads what the machine points to: status, address, length, room, version.
    fn output(&self, at: u32) -> Result<Output<'_>, Trap> {
        let memory = self.exports.memory.data(&self.store);
        let word = |at: u32, number: u32| -> Option<u32> {
            let at = usize::try_from(at.checked_add(4 * number)?).ok()?;
            Some(u32::from_le_bytes(memory.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        let read = || {
            let (status, from, length) = (word(at, 0)?, word(at, 1)?, word(at, 2)?);
            let from = usize::try_from(from).ok()?;
            let bytes = memory.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
            Some(Output { status, bytes, version: word(at, 4)? })
        };
        read().ok_or(Trap::Other)
    }
}
