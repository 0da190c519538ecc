//! A replicated counter. Run three replicas, each in its own terminal:
//!
//! ```text
//! cargo run --example counter -- 1      # and 2, and 3
//! ```
//!
//! Type a number to add it, or an empty line to query the count. Kill any one of them: the other
//! two continue.
#![allow(clippy::print_stdout, reason = "it talks to a person")]

use std::{error::Error, io::stdin};

use quorate::{Builder, CommandId, StateMachine};

struct Counter(i64);

impl StateMachine for Counter {
    fn apply(&mut self, _: CommandId, command: &[u8], reply: &mut Vec<u8>) {
        // Every node executes the same commands in the same order, so all of them reach the same
        // count.
        let amount = str::from_utf8(command).ok().and_then(|text| text.parse::<i64>().ok());
        self.0 = self.0.wrapping_add(amount.unwrap_or(0));
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn query(&self, _: &[u8], _: u64, reply: &mut Vec<u8>) {
        reply.extend_from_slice(self.0.to_string().as_bytes());
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let node: u32 = std::env::args().nth(1).unwrap_or("1".into()).parse()?;
    let replica = Builder::new(format!("counter-data/{node}"))
        .node(node)
        .cluster([(1, "127.0.0.1:7551"), (2, "127.0.0.1:7552"), (3, "127.0.0.1:7553")])
        .start(|| Counter(0))?;
    println!("node {node} is up; type a number, or an empty line to ask");
    for line in stdin().lines() {
        let line = line?;
        let answer = match line.trim() {
            "" => replica.query(b""),
            amount => replica.execute(amount),
        };
        match answer {
            Ok(count) => println!("{}", String::from_utf8_lossy(&count)),
            Err(why) => println!("{why}"),
        }
    }
    Ok(replica.stop()?)
}
