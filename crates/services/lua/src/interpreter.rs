//! Interpreter: executes runs one at a time, each with the same initial memory.

use std::sync::OnceLock;

use crate::{
    Host, Outcome, Run, TEXT_BYTES_MAX,
    fuel::FUEL_PER_VISIT,
    header,
    images::ImageCache,
    input,
    machine::{Machine, Program, Trap},
    outcome, proof,
};

/// Visits (units of work) charged for every run, because the machine's memory is restored for it.
const RUN_START_VISITS: u64 = 256;
/// Number of bytes of text, keys and arguments that can be copied in the time of one visit.
const INPUT_BYTES_PER_VISIT: u64 = 64;
/// Maximum number of visits for a text that is only compiled.
const CHECK_VISITS: u64 = 1 << 17;

/// Executor of scripts. Creates its machine for the first one.
#[derive(Default)]
pub struct Interpreter {
    /// Machine for the next run, whose memory has its initial size.
    machine: Option<Machine>,
    image_cache: ImageCache,
}

/// Returns the program of all machines. It is translated and checked on the first call.
fn shared_program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = expect_valid(Program::new());
        proof::check_machine(&program);
        program
    })
}

/// Translates the machine's program, which takes some tens of milliseconds, before the first script
/// needs it. Ends the process if this build of the machine behaves differently from all others.
pub fn prepare() {
    shared_program();
}

impl Interpreter {
    /// Creates an interpreter, which is cheap: the machine is created by the first run.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes a script. Returns its outcome and the visits used, with those of its commands.
    pub fn run(&mut self, run: &Run<'_>, host: &mut dyn Host) -> (Outcome, u64) {
        let (body, input) = match input::encode_input(run) {
            Ok(prepared) => prepared,
            Err(why) => return (Outcome::Failed(why), RUN_START_VISITS.min(run.visits)),
        };
        let start =
            RUN_START_VISITS + (run.text.len() + input.len()) as u64 / INPUT_BYTES_PER_VISIT;
        let Some(left) = run.visits.checked_sub(start) else {
            return (Trap::OutOfFuel.to_outcome(), run.visits);
        };
        let fuel = left.saturating_mul(FUEL_PER_VISIT);
        let mut machine = self.take_machine();
        machine.set_fuel(fuel);
        let lent = machine.lend_host(host);
        let ended = execute(&mut machine, &mut self.image_cache, run.text, body, &input);
        machine.take_back_host(lent);
        machine.resume_panic();
        let used = fuel.saturating_sub(machine.fuel()).div_ceil(FUEL_PER_VISIT);
        self.keep_machine(machine);
        match ended {
            Err(Trap::OutOfFuel) => (Trap::OutOfFuel.to_outcome(), run.visits),
            Err(trap) => (trap.to_outcome(), start + used),
            Ok(outcome) => (outcome, start + used),
        }
    }

    /// Compiles a script. Returns the first error in its text, if any.
    pub fn check(&mut self, text: &[u8]) -> Result<(), String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(input::TEXT_TOO_LONG.to_owned());
        }
        let (_, body) = header::split_header(text)?;
        let mut machine = self.take_machine();
        machine.restore(shared_program().image());
        machine.set_fuel(CHECK_VISITS * FUEL_PER_VISIT);
        let error = match machine.compile(body) {
            Ok(output) => output.compilation_error(),
            Err(_) => Some("its text takes too long to compile".to_owned()),
        };
        self.keep_machine(machine);
        error.map_or(Ok(()), Err)
    }

    fn take_machine(&mut self) -> Machine {
        self.machine.take().unwrap_or_else(|| expect_valid(Machine::new(shared_program())))
    }

    /// Keeps the machine for reuse, unless its memory has grown.
    fn keep_machine(&mut self, machine: Machine) {
        self.machine = machine.has_initial_size().then_some(machine);
    }
}

/// The program is a constant, and the tests create machines from it.
#[expect(clippy::expect_used, reason = "see above")]
fn expect_valid<T>(made: Result<T, wasmi::Error>) -> T {
    made.expect("the machine's program is valid")
}

/// Executes a script in a machine that has the fuel for the whole run.
fn execute(
    machine: &mut Machine,
    images: &mut ImageCache,
    text: &[u8],
    body: &[u8],
    input: &[u8],
) -> Result<Outcome, Trap> {
    if let Some(error) = compile(machine, images, body)? {
        return Ok(Outcome::Failed(outcome::compilation_message(&error)));
    }
    let output = machine.execute(input)?;
    Ok(output.outcome(text))
}

/// Compiles a script, or restores its image and charges the same fuel. Returns its error, if any.
fn compile(
    machine: &mut Machine,
    images: &mut ImageCache,
    body: &[u8],
) -> Result<Option<String>, Trap> {
    if let Some((image, fuel)) = images.get(body) {
        machine.restore(image);
        machine.charge_fuel(fuel)?;
        return Ok(None);
    }
    machine.restore(shared_program().image());
    let before = machine.fuel();
    if let Some(error) = machine.compile(body)?.compilation_error() {
        return Ok(Some(error));
    }
    machine.clear_stack();
    let fuel = before - machine.fuel();
    if machine.has_initial_size() {
        images.insert(body, || (machine.take_image(), fuel));
    }
    Ok(None)
}
