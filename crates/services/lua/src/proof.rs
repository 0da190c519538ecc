//! Self-test at the creation of the first machine: a run with a known result and cost shows that
//! this build behaves like that of all other nodes.
//!
//! The interpreter's instructions tail-call one another. That is correct only if the compiler turns
//! these calls into jumps. A build in which it does not, or in which a dependency meters
//! differently, must not execute scripts. The self-test detects it at once, on a thread whose stack
//! would overflow without the jumps.

use crate::{
    Data, Outcome, Run, input,
    machine::{Machine, Program},
};

/// Stack size of the thread, a fraction of what the script needs at a few bytes an instruction.
const STACK_BYTES: usize = 256 << 10;

const SCRIPT: &[u8] = b"local t, s = {}, ''
for i = 1, 300 do
  t[i] = (i * 7919) % 1009 + i / 3
  s = string.format('%s%x', s:sub(-40), i)
  if i % 20 == 0 then pcall(error, {i}) end
end
table.sort(t, function(a, b) return a > b end)
local c = coroutine.wrap(function() for i = 1, 50 do coroutine.yield(math.sin(i) ^ 0.37) end end)
for i = 1, 50 do t[#t + 1] = tostring(c()) end
return redis.sha1hex(cjson.encode(t) .. cmsgpack.pack(t) .. struct.pack('>dI4', 0.1, 7) .. s:gsub('%d', '%0%0'))";
/// Result of the script, and the fuel it uses.
const EXPECTED_RESULT: &str = "7ad11949e6e3a2988ebe8b3cec59e57143b5cf83";
const EXPECTED_FUEL: u64 = 9_636_326;

/// Ends the process if the machine differs in result or fuel from that of other nodes.
#[expect(clippy::panic, reason = "see above")]
pub(crate) fn check_machine(program: &Program) {
    let run = Run { text: SCRIPT, keys: &[], arguments: &[], seed: 1, visits: u64::MAX };
    let found = std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
        let thread = builder.spawn_scoped(scope, || execute(program, &run));
        thread.ok().and_then(|thread| thread.join().ok()).flatten()
    });
    let expected = Outcome::Returned(Data::Bulk(EXPECTED_RESULT.into()));
    if found != Some((expected, EXPECTED_FUEL)) {
        panic!("the machine for scripts is not that of other nodes: {found:?}");
    }
}

/// Executes the script. Returns its outcome and the fuel it used.
fn execute(program: &Program, run: &Run<'_>) -> Option<(Outcome, u64)> {
    let (body, input) = input::encode_input(run).ok()?;
    let mut machine = Machine::new(program).ok()?;
    machine.set_fuel(u64::MAX);
    if machine.compile(body).ok()?.compilation_error().is_some() {
        return None;
    }
    let outcome = machine.execute(&input).ok()?.outcome(run.text);
    Some((outcome, u64::MAX - machine.fuel()))
}
