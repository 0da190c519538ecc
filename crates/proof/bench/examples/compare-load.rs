//! Generates the load of `quorate bench` at an address and prints the results in one line.
//!
//! The line's format is that of bench-compare/README.md. The generator is that of quorate-bench,
//! the same for every system whose protocol it speaks.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a report")]

use std::{
    env, io,
    net::SocketAddr,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use quorate_bench::{
    generator::RunningLoad,
    load::{Answer, Offer, Plan},
    protocol::{Malformed, Protocol, framed::Framed, resp::Resp},
    samples::Samples,
};

const USAGE: &str = "compare-load --protocol framed|resp --connect ADDR \
    (--outstanding N | --rate N) [--connections N] [--value-size B] [--warmup S] [--duration S]";
/// Number of keys written.
const KEYS: u64 = 100_000;
/// Length in bytes of a command's length field, and of the command number after it.
const HEAD: usize = 4;
const NUMBER: usize = 8;
/// Time to wait for replies after the end of the run.
const PATIENCE_SECONDS: f64 = 10.0;

/// Load requested on the command line.
struct Wish {
    protocol: String,
    connect: SocketAddr,
    offer: Offer,
    connections: u32,
    value_bytes: usize,
    warmup: f64,
    duration: f64,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some(wish) = parse(&words) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&wish) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("compare-load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(words: &[String]) -> Option<Wish> {
    let value = |name: &str| {
        let mut pairs = words.chunks_exact(2);
        pairs.find_map(|pair| (pair[0] == name).then_some(pair[1].as_str()))
    };
    let number = |name, usual: f64| value(name).map_or(Some(usual), |text| text.parse().ok());
    let count = |name| value(name).map(|text| text.parse::<u32>());
    let offer = match (count("--outstanding"), count("--rate")) {
        (Some(Ok(outstanding)), None) => Offer::Closed { outstanding },
        (None, Some(Ok(rate))) => Offer::Open { per_second: rate.into() },
        _ => return None,
    };
    Some(Wish {
        protocol: value("--protocol")?.to_owned(),
        connect: value("--connect")?.parse().ok()?,
        offer,
        connections: count("--connections").unwrap_or(Ok(1)).ok()?,
        value_bytes: value("--value-size").unwrap_or("64").parse().ok()?,
        warmup: number("--warmup", 1.0)?,
        duration: number("--duration", 5.0)?,
    })
}

fn run(wish: &Wish) -> io::Result<()> {
    let plan = Plan {
        offer: wish.offer,
        connections: wish.connections,
        warmup: nanos(wish.warmup),
        measure: nanos(wish.duration),
        reply_timeout: nanos(PATIENCE_SECONDS),
    };
    let to = vec![wish.connect.into()];
    let running = match wish.protocol.as_str() {
        "framed" => RunningLoad::start(plan, to, Numbered(Framed::new(wish.value_bytes)))?,
        "resp" => RunningLoad::start(plan, to, Resp::new(wish.value_bytes, KEYS, 0))?,
        other => return Err(io::Error::other(format!("{other}: not a protocol"))),
    };
    if let Some(started) = running.started() {
        let mut at = started;
        for (seconds, word) in [(wish.warmup, "measuring"), (wish.duration, "measured")] {
            at += Duration::from_secs_f64(seconds);
            while Instant::now() < at && !running.is_finished() {
                thread::sleep(at.saturating_duration_since(Instant::now()));
            }
            println!("{word}");
        }
    }
    tell(&running.finish()?);
    Ok(())
}

fn tell(samples: &Samples) {
    let acknowledged: u64 = samples.over_time.iter().map(|count| u64::from(*count)).sum();
    let us = |share| samples.latencies.quantile_us(share);
    println!(
        "result achieved_per_s={} completed={} acknowledged={acknowledged} p50_us={} p95_us={} p99_us={} \
         p999_us={} max_us={} errors={} lost={} late_share={}",
        samples.per_second(),
        samples.completed,
        us(0.5),
        us(0.95),
        us(0.99),
        us(0.999),
        samples.latencies.max_us(),
        samples.errors,
        samples.lost,
        samples.late_share(),
    );
    if let Some(error) = &samples.first_error {
        println!("error {}", error.replace('\n', " "));
    }
}

/// Commands that begin with their number, so that the order of execution can be verified.
struct Numbered(Framed);

impl Protocol for Numbered {
    fn request(&mut self, number: u64, out: &mut Vec<u8>) {
        let at = out.len() + HEAD;
        self.0.request(number, out);
        if let Some(place) = out.get_mut(at..at + NUMBER) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    fn reply<'a>(&self, input: &'a [u8]) -> Result<Option<(usize, Answer<'a>)>, Malformed> {
        self.0.reply(input)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
