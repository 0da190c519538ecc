//! Runs, one after the other. Each begins with the same memory.

use std::sync::OnceLock;

use crate::{
    Host, INPUT_BYTES_MAX, Outcome, Run, TEXT_BYTES_MAX, header,
    machine::{FUEL_PER_VISIT, Machine, Program, Trap},
    outcome,
};

/// Cost of a run that does nothing, in visits: the machine's memory is restored after it.
const START: u64 = 256;
/// Bytes of text, keys and arguments that are copied in the time of a visit.
const INPUT_BYTES_PER_VISIT: u64 = 64;
/// Visits that a text may cost that is only compiled.
const CHECK_VISITS: u64 = 1 << 20;

/// Executes scripts. Its machine is made when the first one comes.
#[derive(Default)]
pub struct Interpreter {
    /// A machine whose memory is the program's image.
    machine: Option<Machine>,
}

/// Returns the program of all machines, which is translated once.
fn program() -> &'static Program {
    static PROGRAM: OnceLock<Program> = OnceLock::new();
    PROGRAM.get_or_init(|| valid(Program::new()))
}

impl Interpreter {
    /// Makes an interpreter, which is cheap.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Executes a script. Returns the visits that it cost, too.
    pub fn run(&mut self, run: &Run<'_>, host: &mut dyn Host) -> (Outcome, u64) {
        let (body, input) = match prepare(run) {
            Ok(prepared) => prepared,
            Err(why) => return (Outcome::Failed(why), START.min(run.visits)),
        };
        let start = START + (run.text.len() + input.len()) as u64 / INPUT_BYTES_PER_VISIT;
        let Some(left) = run.visits.checked_sub(start) else {
            return (Trap::Fuel.outcome(), run.visits);
        };
        let fuel = left.saturating_mul(FUEL_PER_VISIT);
        let mut machine = self.begin(fuel);
        let lent = machine.lend(host);
        let ended = execute(&mut machine, run.text, body, &input);
        machine.take_back(lent);
        let used = fuel.saturating_sub(machine.fuel()).div_ceil(FUEL_PER_VISIT);
        self.end(machine);
        match ended {
            Err(Trap::Fuel) => (Trap::Fuel.outcome(), run.visits),
            Err(trap) => (trap.outcome(), start + used),
            Ok(outcome) => (outcome, start + used),
        }
    }

    /// Compiles a script. Returns the error in its text, if there is one.
    pub fn check(&mut self, text: &[u8]) -> Result<(), String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(TEXT_TOO_LONG.to_owned());
        }
        let (_, body) = header::split(text)?;
        let mut machine = self.begin(CHECK_VISITS * FUEL_PER_VISIT);
        let error = match machine.compile(body) {
            Ok(output) => output.malformed(),
            Err(_) => Some("its text takes too long to compile".to_owned()),
        };
        self.end(machine);
        error.map_or(Ok(()), Err)
    }

    /// Returns a machine that is as new.
    fn begin(&mut self, fuel: u64) -> Machine {
        let mut machine = self.machine.take().unwrap_or_else(|| valid(Machine::new(program())));
        machine.set_fuel(fuel);
        machine
    }

    /// Keeps a machine for the next run, if it can be made as new.
    fn end(&mut self, mut machine: Machine) {
        if machine.restore(program()) {
            self.machine = Some(machine);
        }
    }
}

/// The program is a constant, and tests make machines of it.
#[expect(clippy::expect_used, reason = "see above")]
fn valid<T>(made: Result<T, wasmi::Error>) -> T {
    made.expect("the machine's program is valid")
}

const TEXT_TOO_LONG: &str = "a script may have 256 KiB";
const INPUT_TOO_LONG: &str = "the keys and arguments of a script may have 16 MiB together";

/// Returns what is compiled, and keys and arguments as the machine reads them.
fn prepare<'a>(run: &Run<'a>) -> Result<(&'a [u8], Vec<u8>), String> {
    let failed = |why: &str| format!("ERR {why}");
    if run.text.len() > TEXT_BYTES_MAX {
        return Err(failed(TEXT_TOO_LONG));
    }
    let (_, body) = header::split(run.text).map_err(|why| failed(&why))?;
    let lists = [run.keys, run.arguments];
    let bytes: usize = lists.iter().flat_map(|list| list.iter()).map(|item| 4 + item.len()).sum();
    if bytes > INPUT_BYTES_MAX {
        return Err(failed(INPUT_TOO_LONG));
    }
    let mut input = Vec::with_capacity(bytes + 12);
    #[expect(clippy::cast_possible_truncation, reason = "Redis' generator has a seed of 32 bits")]
    input.extend(((run.seed ^ (run.seed >> 32)) as u32).to_le_bytes());
    for list in lists {
        number(list.len(), &mut input);
        for item in list {
            number(item.len(), &mut input);
            input.extend(*item);
        }
    }
    Ok((body, input))
}

/// Appends a number that is less than the limit of the input.
fn number(number: usize, input: &mut Vec<u8>) {
    input.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn execute(machine: &mut Machine, text: &[u8], body: &[u8], input: &[u8]) -> Result<Outcome, Trap> {
    if let Some(error) = machine.compile(body)?.malformed() {
        return Ok(Outcome::Failed(outcome::compilation(&error)));
    }
    let output = machine.execute(input)?;
    Ok(output.outcome(text))
}
