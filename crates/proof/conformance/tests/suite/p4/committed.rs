//! The committed switch programs compile, and pass on frames that are not for them.

use quorate_conformance::p4::{Machine, committed_sources, compile};

#[test]
fn committed_programs_compile() {
    for name in ["acceptor.p4", "coordinator.p4"] {
        let program = compile(&committed_sources(), name, &[("CELLS", "64")]);
        let program = program.unwrap_or_else(|error| panic!("{error}"));
        let mut machine = Machine::new(program);
        // A frame that belongs to no program is forwarded to the other port.
        let sent = machine.process(0, &[7; 64]).unwrap();
        assert_eq!(sent, [(1, vec![7; 64])]);
        assert_eq!(machine.register("counters", 1), Some(1));
    }
}
