//! Submits commands by frames to the devices of a cluster, and prints which node executed each.
//!
//! ```text
//! by_frames INTERFACE SECONDS NODE…
//! ```
//! For example `by_frames eth0 10 10.0.0.1:7450 10.0.0.2:7450 10.0.0.3:7450`, where the nodes run
//! `quorate start --store none --durability volatile --device kernel --plane-trusted …`.
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::{
    env,
    error::Error,
    net::SocketAddr,
    time::{Duration, Instant},
};

use quorate_frame_client::{FrameClient, LentName, Options, Outcome};

const BATCHES_IN_FLIGHT: usize = 32;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args().skip(1);
    let interface = words.next().ok_or("which interface?")?;
    let seconds = words.next().ok_or("how many seconds?")?.parse()?;
    let nodes: Vec<SocketAddr> = words.map(|word| word.parse()).collect::<Result<_, _>>()?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut number = 0_u64;
    while Instant::now() < until {
        let mut client = FrameClient::open(&nodes, &interface, Options::default())?;
        let LentName { origin, boot } = client.name();
        println!("name {origin}/{boot}");
        while Instant::now() < until || client.outstanding_batches() > 0 {
            while client.outstanding_batches() < BATCHES_IN_FLIGHT && Instant::now() < until {
                let text = format!("command {number}");
                let submitted = client.submit(number, [text.as_bytes()].into_iter());
                if submitted.is_err() {
                    break;
                }
                number += 1;
            }
            client.poll(Duration::from_millis(50))?;
            while let Some(done) = client.take_completed() {
                match done.outcome {
                    Outcome::Executed(Some(slot)) => println!("{} {slot}", done.tag),
                    Outcome::Executed(None) => println!("{} -", done.tag),
                    Outcome::Unknown => println!("{} unknown", done.tag),
                }
            }
            if client.is_session_gone() {
                break;
            }
        }
        println!("{:?}", client.counters());
    }
    Ok(())
}
