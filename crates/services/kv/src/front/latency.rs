//! LATENCY: latency spikes, with at most one sample per second and event, as in Redis.

use std::{collections::VecDeque, fmt::Write as _};

use super::{
    slow::{LatencySplit, SLOW_MS},
    subcommands,
};
use crate::{
    command::Local,
    resp::{reply::Reply, request::Arguments},
};

/// Maximum number of samples per event, as in Redis.
const SAMPLES_MAX: usize = 160;

const NO_GRAPH: &str = "ERR LATENCY GRAPH is not supported: use LATENCY HISTORY";
const NO_HISTOGRAM: &str = "ERR LATENCY HISTOGRAM is not supported: times of single commands are not kept; \
    use INFO commandstats, or the metrics of the admin address";

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_s: u64,
    ms: u64,
}

/// Monitored activity, with its spikes.
#[derive(Debug)]
struct Event {
    name: &'static str,
    event_name: &'static str,
    /// Samples, oldest first.
    samples: VecDeque<Sample>,
    /// Maximum latency in milliseconds since the last RESET.
    max_ms: u64,
}

impl Event {
    const fn new(name: &'static str, event_name: &'static str) -> Self {
        Self { name, event_name, samples: VecDeque::new(), max_ms: 0 }
    }

    fn add(&mut self, ms: u64, now_ms: u64) {
        if ms < SLOW_MS {
            return;
        }
        self.max_ms = self.max_ms.max(ms);
        let at_s = now_ms / 1000;
        match self.samples.back_mut() {
            Some(last) if last.at_s == at_s => last.ms = last.ms.max(ms),
            _ => {
                if self.samples.len() == SAMPLES_MAX {
                    self.samples.pop_front();
                }
                self.samples.push_back(Sample { at_s, ms });
            }
        }
    }

    /// Resets the event. Returns whether it had samples.
    fn reset(&mut self) -> bool {
        self.max_ms = 0;
        let had = !self.samples.is_empty();
        self.samples.clear();
        had
    }
}

#[derive(Debug)]
pub(super) struct Latency([Event; 3]);

impl Default for Latency {
    fn default() -> Self {
        Self([
            Event::new("command", "from arrival to reply"),
            Event::new("command-queued", "waiting for earlier commands of its connection"),
            Event::new("command-sent", "waiting for the leader, a quorum or the disk"),
        ])
    }
}

impl Latency {
    pub(super) fn add(&mut self, split: LatencySplit, now_ms: u64) {
        let LatencySplit { took_ms, waited_ms } = split;
        let parts = [took_ms, waited_ms, took_ms - waited_ms];
        for (event, ms) in self.0.iter_mut().zip(parts) {
            event.add(ms, now_ms);
        }
    }

    pub(super) fn answer_latency(&mut self, arguments: &Arguments<'_>, r: &mut Reply<'_>) {
        match &*arguments.at(1).to_ascii_lowercase() {
            b"latest" => self.write_latest(r),
            b"history" => self.write_history(arguments.at(2), r),
            b"reset" => {
                let named = arguments.from(2);
                let wanted = |event: &Event| {
                    named.is_empty()
                        || named.iter().any(|name| name.eq_ignore_ascii_case(event.name.as_bytes()))
                };
                let events = self.0.iter_mut().filter(|event| wanted(event));
                r.count(events.filter_map(|event| event.reset().then_some(())).count());
            }
            b"doctor" => r.verbatim(&self.report()),
            b"graph" => r.error(NO_GRAPH),
            b"histogram" => r.error(NO_HISTOGRAM),
            _ => subcommands::help(Local::Latency, r),
        }
    }

    fn write_latest(&self, r: &mut Reply<'_>) {
        let known = || {
            let events = self.0.iter();
            events.filter_map(|event| Some((event, event.samples.back()?)))
        };
        r.array(known().count());
        for (event, last) in known() {
            r.array(4);
            r.bulk(event.name.as_bytes());
            r.integer(integer(last.at_s));
            r.integer(integer(last.ms));
            r.integer(integer(event.max_ms));
        }
    }

    fn write_history(&self, name: &[u8], r: &mut Reply<'_>) {
        let mut events = self.0.iter();
        let event = events.find(|event| name.eq_ignore_ascii_case(event.name.as_bytes()));
        let samples = || event.into_iter().flat_map(|event| &event.samples);
        r.array(samples().count());
        for sample in samples() {
            r.array(2);
            r.integer(integer(sample.at_s));
            r.integer(integer(sample.ms));
        }
    }

    fn report(&self) -> String {
        let mut text = String::new();
        for event in self.0.iter().filter(|event| !event.samples.is_empty()) {
            let Event { name, event_name: what, samples, max_ms: most_ms } = event;
            let total: u64 = samples.iter().map(|sample| sample.ms).sum();
            let seconds = samples.len();
            let average_ms = total / u64::try_from(seconds).unwrap_or(1).max(1);
            let _ = writeln!(
                text,
                "{name} ({what}): {SLOW_MS} ms or more in {seconds} of the last seconds that had commands; \
                 worst {most_ms} ms, average of the worst per second {average_ms} ms."
            );
        }
        if text.is_empty() {
            text = format!(
                "No command took {SLOW_MS} ms or more since the start or the last LATENCY RESET.\n"
            );
        }
        text
    }
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
