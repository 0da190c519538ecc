//! The machine: Lua in a WebAssembly interpreter that meters execution.
//!
//! The sources of `lua.wasm` are in `machine/`. Addresses are offsets into the machine's memory,
//! which contains nothing of the process or the system. A run is therefore a function of the
//! initial memory and of the results of the imports.

use wasmi::{
    CompilationMode, Config, CustomFuelCosts, Engine, Error, Extern, Instance, Module, Store,
    TrapCode, TypedFunc, Val,
};

use crate::{
    Host,
    host::HostLoan,
    imports::{self, Exports, MachineState},
};

/// Limits on nested calls in the machine and on the bytes of their values. Lua's own limits are
/// lower, except for recursive pattern matching.
const CALL_DEPTH_MAX: usize = 1 << 16;
const CALL_VALUE_BYTES_MAX: usize = 8 << 20;
/// Fuel charged for copies.
const COPY_FUEL_COSTS: CustomFuelCosts = CustomFuelCosts {
    bytes_copied_per_fuel: 4,
    fuel_per_bytes_translated: 0,
    fuel_per_bytes_validated: 0,
};

static PROGRAM_WASM: &[u8] = include_bytes!("../machine/lua.wasm");

/// Parts shared by all machines of a process: the translated program, and the initial memory of
/// each run.
pub(crate) struct Program {
    engine: Engine,
    module: Module,
    image: MemoryImage,
}

#[derive(Default)]
pub(crate) struct MemoryImage {
    /// Parts of the memory that are not all zero, each with its offset, in ascending order.
    nonzero_parts: Vec<(usize, Vec<u8>)>,
    stack_pointer: u32,
}

/// Granularity in bytes at which zeros are omitted from an image.
const ZERO_GAP_BYTES: usize = 4096;

impl MemoryImage {
    fn new(memory: &[u8], stack: u32) -> Self {
        let mut parts: Vec<(usize, Vec<u8>)> = Vec::new();
        for (number, chunk) in memory.chunks(ZERO_GAP_BYTES).enumerate() {
            let at = number * ZERO_GAP_BYTES;
            if chunk.iter().all(|byte| *byte == 0) {
                continue;
            }
            match parts.last_mut() {
                Some((start, bytes)) if *start + bytes.len() == at => bytes.extend(chunk),
                _ => parts.push((at, chunk.to_vec())),
            }
        }
        Self { nonzero_parts: parts, stack_pointer: stack }
    }

    /// Restores the whole memory from the image.
    fn restore(&self, mut memory: &mut [u8]) {
        let mut done = 0;
        for (start, bytes) in &self.nonzero_parts {
            let (zeros, rest) = memory.split_at_mut(start - done);
            let (part, rest) = rest.split_at_mut(bytes.len());
            zeros.fill(0);
            part.copy_from_slice(bytes);
            (memory, done) = (rest, start + bytes.len());
        }
        memory.fill(0);
    }

    pub(crate) fn bytes(&self) -> usize {
        self.nonzero_parts.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

impl Program {
    pub(crate) fn new() -> Result<Self, Error> {
        let mut config = Config::default();
        config
            .consume_fuel(true)
            // Lazy translation would be charged to the first run that needs it.
            .compilation_mode(CompilationMode::Eager)
            .ignore_custom_sections(true)
            .fuel_cost(COPY_FUEL_COSTS)
            .set_max_cached_stacks(16)
            .set_max_recursion_depth(CALL_DEPTH_MAX)
            .set_max_stack_height(CALL_VALUE_BYTES_MAX);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, PROGRAM_WASM)?;
        let mut this = Self { engine, module, image: MemoryImage::default() };
        let mut machine = Machine::new(&this)?;
        machine.store.set_fuel(u64::MAX)?;
        machine.exported_function::<(), ()>("prepare")?.call(&mut machine.store, ())?;
        assert!(machine.has_initial_size(), "the machine is prepared within its first memory");
        machine.clear_stack();
        this.image = machine.take_image();
        Ok(this)
    }

    /// Returns the image of a machine without a script.
    pub(crate) const fn image(&self) -> &MemoryImage {
        &self.image
    }
}

/// Machine with its own memory.
pub(crate) struct Machine {
    store: Store<MachineState>,
    instance: Instance,
    exports: Exports,
    functions: Option<Functions>,
    /// Initial size of the memory in pages.
    initial_pages: u64,
}

#[derive(Clone, Copy)]
struct Functions {
    reserve_input: TypedFunc<u32, u32>,
    compile: TypedFunc<(u32, u32), u32>,
    execute: TypedFunc<u32, u32>,
}

/// Reason why the machine stopped without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trap {
    /// The fuel is used up.
    OutOfFuel,
    /// The calls are nested too deeply, or the machine is in an invalid state.
    Other,
}

/// Only failures that every node's machine has in the same state become outcomes. Any other, such
/// as a lack of memory in the process, ends the process.
#[expect(clippy::panic, reason = "see above")]
impl From<Error> for Trap {
    fn from(error: Error) -> Self {
        match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => Self::OutOfFuel,
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
            _ if imports::is_uncaught_throw(&error) || imports::is_host_panic(&error) => {
                Self::Other
            }
            _ => panic!("a script cannot go on: {error}"),
        }
    }
}

/// Bytes that the machine wrote for the host.
pub(crate) struct Output<'a> {
    pub(crate) status: u32,
    pub(crate) bytes: &'a [u8],
    /// Version of RESP that the script selected.
    pub(crate) resp_version: u32,
}

impl Machine {
    /// Creates a machine. Its memory is the image of the program if that exists already.
    pub(crate) fn new(program: &Program) -> Result<Self, Error> {
        let mut store = Store::new(&program.engine, MachineState::default());
        let known = imports::import_functions(&mut store);
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
            stack_pointer: instance.get_global(&store, "__stack_pointer").ok_or_else(missing)?,
            enter: instance.get_typed_func(&store, "enter")?,
        };
        store.data_mut().exports = Some(exports);
        let pages = exports.memory.size(&store);
        let mut this = Self { store, instance, exports, functions: None, initial_pages: pages };
        this.functions = Some(Functions {
            reserve_input: this.exported_function("room")?,
            compile: this.exported_function("compile")?,
            execute: this.exported_function("execute")?,
        });
        if program.image.bytes() > 0 {
            this.restore(&program.image);
        }
        Ok(this)
    }

    fn exported_function<P: wasmi::WasmParams, R: wasmi::WasmResults>(
        &self,
        name: &str,
    ) -> Result<TypedFunc<P, R>, Error> {
        self.instance.get_typed_func(&self.store, name)
    }

    fn stack_pointer(&self) -> u32 {
        match self.exports.stack_pointer.get(&self.store) {
            Val::I32(at) => at.cast_unsigned(),
            _ => 0,
        }
    }

    /// Returns whether the memory still has its initial size.
    pub(crate) fn has_initial_size(&self) -> bool {
        self.exports.memory.size(&self.store) == self.initial_pages
    }

    /// Resets the machine to the start of a run. The image must be of the same program.
    pub(crate) fn restore(&mut self, image: &MemoryImage) {
        self.store.data_mut().clear();
        image.restore(self.memory_mut());
        let _ = self
            .exports
            .stack_pointer
            .set(&mut self.store, Val::I32(image.stack_pointer.cast_signed()));
    }

    /// Clears data that calls have left on the stack.
    pub(crate) fn clear_stack(&mut self) {
        let stack = self.stack_pointer() as usize;
        if let Some(below) = self.memory_mut().get_mut(..stack) {
            below.fill(0);
        }
    }

    /// Returns an image of the memory. The stack must be empty.
    pub(crate) fn take_image(&self) -> MemoryImage {
        MemoryImage::new(self.exports.memory.data(&self.store), self.stack_pointer())
    }

    /// Consumes fuel. If too little is left, returns a trap.
    pub(crate) fn charge_fuel(&mut self, fuel: u64) -> Result<(), Trap> {
        let left = self.fuel().checked_sub(fuel).ok_or(Trap::OutOfFuel)?;
        self.set_fuel(left);
        Ok(())
    }

    pub(crate) fn lend_host<'a>(&mut self, host: &'a mut (dyn Host + 'a)) -> HostLoan<'a> {
        self.store.data_mut().host.lend(host)
    }

    pub(crate) fn take_back_host(&mut self, lent: HostLoan<'_>) {
        self.store.data_mut().host.clear(lent);
    }

    /// Resumes a panic of the host, if that stopped the machine.
    pub(crate) fn resume_panic(&mut self) {
        if let Some(payload) = self.store.data_mut().host_panic.take() {
            std::panic::resume_unwind(payload);
        }
    }

    pub(crate) fn memory_mut(&mut self) -> &mut [u8] {
        self.exports.memory.data_mut(&mut self.store)
    }

    pub(crate) const fn store_mut(&mut self) -> &mut Store<MachineState> {
        &mut self.store
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

    /// Copies bytes to the machine and returns their address.
    fn copy_in(&mut self, bytes: &[u8]) -> Result<u32, Trap> {
        let length = u32::try_from(bytes.len()).map_err(|_| Trap::Other)?;
        let at = self.functions()?.reserve_input.call(&mut self.store, length)?;
        if at == 0 {
            return Err(Trap::Other);
        }
        let to = usize::try_from(at).map_err(|_| Trap::Other)?;
        self.exports.memory.write(&mut self.store, to, bytes).map_err(|_| Trap::Other)?;
        Ok(at)
    }

    /// Compiles a script for [`Self::execute`].
    pub(crate) fn compile(&mut self, text: &[u8]) -> Result<Output<'_>, Trap> {
        let at = self.copy_in(text)?;
        let length = u32::try_from(text.len()).map_err(|_| Trap::Other)?;
        let output = self.functions()?.compile.call(&mut self.store, (at, length))?;
        self.read_output(output)
    }

    /// Executes the compiled script.
    pub(crate) fn execute(&mut self, input: &[u8]) -> Result<Output<'_>, Trap> {
        let at = self.copy_in(input)?;
        let output = self.functions()?.execute.call(&mut self.store, at)?;
        self.read_output(output)
    }

    /// Reads the result at address `at`: status, address, length, capacity, version.
    fn read_output(&self, at: u32) -> Result<Output<'_>, Trap> {
        let memory = self.exports.memory.data(&self.store);
        let word = |at: u32, number: u32| -> Option<u32> {
            let at = usize::try_from(at.checked_add(4 * number)?).ok()?;
            Some(u32::from_le_bytes(memory.get(at..at.checked_add(4)?)?.try_into().ok()?))
        };
        let read = || {
            let (status, from, length) = (word(at, 0)?, word(at, 1)?, word(at, 2)?);
            let from = usize::try_from(from).ok()?;
            let bytes = memory.get(from..from.checked_add(usize::try_from(length).ok()?)?)?;
            Some(Output { status, bytes, resp_version: word(at, 4)? })
        };
        read().ok_or(Trap::Other)
    }
}
