//! Executes a script from the command line: `script TEXT [COUNT]`.
#![allow(clippy::print_stdout, reason = "a command line")]

use std::time::Instant;

use quorate_lua::{Data, Host, Interpreter, Run};

struct Integers(i64);

impl Host for Integers {
    fn call(&mut self, _: &[&[u8]]) -> (Data, u64) {
        self.0 += 1;
        (Data::Integer(self.0), 10)
    }
}

fn main() {
    let mut words = std::env::args().skip(1);
    let text = words.next().unwrap_or_default();
    let count: u32 = words.next().and_then(|word| word.parse().ok()).unwrap_or(1);
    let (mut interpreter, mut host) = (Interpreter::new(), Integers(0));
    let run = Run {
        text: text.as_bytes(),
        keys: &[b"k1", b"k2"],
        arguments: &[b"10", b"60"],
        seed: 1,
        visits: 1 << 30,
    };
    let (outcome, visits) = interpreter.run(&run, &mut host);
    println!("{outcome:?} {visits} visits");
    let start = Instant::now();
    for _ in 0..count {
        std::hint::black_box(interpreter.run(&run, &mut host));
    }
    let time = start.elapsed() / count;
    println!("{time:?} each, {:.1} ns a visit", time.as_nanos() as f64 / visits as f64);
}
