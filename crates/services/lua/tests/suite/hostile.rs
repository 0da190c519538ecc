//! Calls that only a broken program would make. Each ends the run or is refused; none accesses
//! memory outside of the machine.

use std::panic::{AssertUnwindSafe, catch_unwind};

use quorate_lua::{
    Data, Host, Interpreter, Run,
    hostile::{call_import, restores_whole_memory},
};

use crate::{Echo, VISITS};

fn call(name: &str, arguments: &[u32]) -> Result<Option<u32>, String> {
    call_import(name, arguments, &mut Echo::default())
}

#[test]
fn pointers_and_lengths_are_not_believed() {
    const FAR: u32 = u32::MAX;
    for (name, arguments) in [
        ("call", &[FAR, 1, 2][..]),
        ("call", &[FAR - 7, 1, 2]),
        ("call", &[524_288 - 7, 1, 2]),
        ("call", &[0, FAR, 2]),
        ("call", &[0, 65_536, 2]),
        ("call", &[524_284, 65_536, 3]),
        ("take", &[0, FAR]),
        ("take", &[FAR, 0]),
        ("take", &[0, 1]),
        ("protect", &[FAR, 0, 0, 0]),
        ("protect", &[0, 0, 0, 0]),
        ("protect", &[1, FAR, FAR, FAR]),
        ("throw", &[0]),
    ] {
        assert!(call(name, arguments).is_err(), "{name} {arguments:?}");
    }
}

#[test]
fn memory_has_a_limit() {
    assert_eq!(call("grow", &[u32::MAX]), Ok(Some(0)));
    assert_eq!(call("grow", &[1024 - 7]), Ok(Some(0)));
    assert_eq!(call("grow", &[1024 - 8]), Ok(Some(1)));
}

/// Restoring a machine resets even the memory above the heap and below the stack, which no intact
/// program writes.
#[test]
fn the_whole_memory_is_restored() {
    assert_eq!(restores_whole_memory(), Ok(true));
}

struct Panics;

impl Host for Panics {
    fn call(&mut self, _: &[&[u8]]) -> (Data, u64) {
        panic!("a command");
    }
}

/// A panic of the host passes through protected calls. The interpreter then uses a new machine.
#[test]
fn a_panic_of_the_host_reaches_its_caller() {
    let mut interpreter = Interpreter::new();
    let text = b"return pcall(redis.call, 'x')";
    let run = Run { text, keys: &[], arguments: &[], seed: 1, visits: VISITS };
    let caught = catch_unwind(AssertUnwindSafe(|| interpreter.run(&run, &mut Panics)));
    assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"a command"));
    let fine = interpreter.run(&run, &mut Echo::default());
    assert_eq!(fine, Interpreter::new().run(&run, &mut Echo::default()));
}
