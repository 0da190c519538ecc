//! A broken machine for tests: calls imports with arbitrary arguments and memory contents.

use wasmi::Val;

use crate::{
    Host, imports,
    machine::{Machine, Program},
};

/// Calls an import of a new machine. Returns the result, or how the run ended.
#[doc(hidden)]
pub fn call_import(
    name: &str,
    arguments: &[u32],
    host: &mut dyn Host,
) -> Result<Option<u32>, String> {
    let program = Program::new().map_err(|error| error.to_string())?;
    let mut machine = Machine::new(&program).map_err(|error| error.to_string())?;
    machine.set_fuel(1 << 30);
    let lent = machine.lend_host(host);
    let ended = machine.call_import(name, arguments);
    machine.take_back_host(lent);
    ended
}

/// Returns whether the memory of a machine is restored after all of it was overwritten.
#[doc(hidden)]
pub fn restores_whole_memory() -> Result<bool, String> {
    let program = Program::new().map_err(|error| error.to_string())?;
    let mut machine = Machine::new(&program).map_err(|error| error.to_string())?;
    let new = machine.memory_mut().to_vec();
    machine.memory_mut().fill(0xaa);
    machine.restore(program.image());
    Ok(machine.memory_mut() == new)
}

impl Machine {
    fn call_import(&mut self, name: &str, arguments: &[u32]) -> Result<Option<u32>, String> {
        let store = self.store_mut();
        let known = imports::import_functions(store);
        let (_, function) =
            known.iter().find(|(known, _)| *known == name).ok_or("no such import")?;
        let arguments: Vec<Val> =
            arguments.iter().map(|word| Val::I32(word.cast_signed())).collect();
        let mut results = vec![Val::I32(0); function.ty(&*store).results().len()];
        function.call(store, &arguments, &mut results).map_err(|error| error.to_string())?;
        Ok(match results.first() {
            Some(Val::I32(word)) => Some(word.cast_unsigned()),
            _ => None,
        })
    }
}
