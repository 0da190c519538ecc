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
    load::{CommandOutcome, LoadPlan, OfferedLoad},
    protocol::{Malformed, Protocol, framed::FramedEncoder, resp::RespEncoder},
    samples::Samples,
};

const USAGE: &str = "compare-load --protocol framed|resp --connect ADDR \
    (--outstanding N | --rate N) [--connections N] [--value-size B] [--warmup S] [--duration S]";
/// Number of keys written.
const KEY_COUNT: u64 = 100_000;
/// Length in bytes of a command's length field, and of the command number after it.
const LENGTH_BYTES: usize = 4;
const NUMBER_BYTES: usize = 8;
/// Time to wait for replies after the end of the run.
const REPLY_TIMEOUT_SECONDS: f64 = 10.0;

/// Load requested on the command line.
struct LoadRequest {
    protocol: String,
    node_address: SocketAddr,
    offer: OfferedLoad,
    connections: u32,
    value_bytes: usize,
    warmup_seconds: f64,
    duration_seconds: f64,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    let Some(wish) = parse_arguments(&words) else {
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

fn parse_arguments(words: &[String]) -> Option<LoadRequest> {
    let value = |name: &str| {
        let mut pairs = words.chunks_exact(2);
        pairs.find_map(|pair| (pair[0] == name).then_some(pair[1].as_str()))
    };
    let number = |name, usual: f64| value(name).map_or(Some(usual), |text| text.parse().ok());
    let count = |name| value(name).map(|text| text.parse::<u32>());
    let offer = match (count("--outstanding"), count("--rate")) {
        (Some(Ok(outstanding)), None) => OfferedLoad::Closed { outstanding },
        (None, Some(Ok(rate))) => OfferedLoad::Open { per_second: rate.into() },
        _ => return None,
    };
    Some(LoadRequest {
        protocol: value("--protocol")?.to_owned(),
        node_address: value("--connect")?.parse().ok()?,
        offer,
        connections: count("--connections").unwrap_or(Ok(1)).ok()?,
        value_bytes: value("--value-size").unwrap_or("64").parse().ok()?,
        warmup_seconds: number("--warmup", 1.0)?,
        duration_seconds: number("--duration", 5.0)?,
    })
}

fn run(wish: &LoadRequest) -> io::Result<()> {
    let plan = LoadPlan {
        offer: wish.offer,
        connections: wish.connections,
        warmup_ns: to_nanos(wish.warmup_seconds),
        measure_ns: to_nanos(wish.duration_seconds),
        reply_timeout_ns: to_nanos(REPLY_TIMEOUT_SECONDS),
    };
    let to = vec![wish.node_address.into()];
    let running = match wish.protocol.as_str() {
        "framed" => {
            RunningLoad::start(plan, to, NumberedCommands(FramedEncoder::new(wish.value_bytes)))?
        }
        "resp" => RunningLoad::start(plan, to, RespEncoder::new(wish.value_bytes, KEY_COUNT, 0))?,
        other => return Err(io::Error::other(format!("{other}: not a protocol"))),
    };
    if let Some(started) = running.wait_started() {
        let mut at = started;
        for (seconds, word) in
            [(wish.warmup_seconds, "measuring"), (wish.duration_seconds, "measured")]
        {
            at += Duration::from_secs_f64(seconds);
            while Instant::now() < at && !running.is_finished() {
                thread::sleep(at.saturating_duration_since(Instant::now()));
            }
            println!("{word}");
        }
    }
    print_samples(&running.finish()?);
    Ok(())
}

fn print_samples(samples: &Samples) {
    let acknowledged: u64 = samples.replies_over_time.iter().map(|count| u64::from(*count)).sum();
    let us = |share| samples.latencies.quantile_us(share);
    println!(
        "result achieved_per_s={} completed={} acknowledged={acknowledged} p50_us={} p95_us={} p99_us={} \
         p999_us={} max_us={} errors={} lost={} late_share={}",
        samples.completed_per_second(),
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
struct NumberedCommands(FramedEncoder);

impl Protocol for NumberedCommands {
    fn encode_request(&mut self, number: u64, out: &mut Vec<u8>) {
        let at = out.len() + LENGTH_BYTES;
        self.0.encode_request(number, out);
        if let Some(place) = out.get_mut(at..at + NUMBER_BYTES) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }

    fn decode_reply<'a>(
        &self,
        input: &'a [u8],
    ) -> Result<Option<(usize, CommandOutcome<'a>)>, Malformed> {
        self.0.decode_reply(input)
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "seconds of a run")]
fn to_nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}
