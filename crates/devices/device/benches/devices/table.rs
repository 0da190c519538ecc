//! Result table: medians over rounds, and ratios within each round.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Fallible, group::Kind};

/// Configuration in which kinds are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cell {
    pub(crate) room: usize,
    pub(crate) outstanding: usize,
    pub(crate) kind: &'static str,
}

/// A cell with its kind and its layout of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) cell: Cell,
    /// 0: hosts on the client's processor, 1: on another one.
    pub(crate) layout: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Voluntary context switches of client and hosts per decision.
    pub(crate) switches: f64,
    /// Involuntary context switches of client and hosts per decision.
    pub(crate) forced: f64,
}

/// Returns the number in `name=number` among the words of a text.
pub(crate) fn number(text: &str, name: &str) -> Fallible<f64> {
    let pairs = text.split_whitespace().filter_map(|word| word.split_once('='));
    let mut found = pairs.filter(|(other, _)| *other == name);
    let (_, value) = found.next().ok_or_else(|| format!("no {name} in {text:?}"))?;
    Ok(value.parse()?)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints each kind with its best layout. The last column is the kernel's rate divided by that of
/// the row, by round.
pub(crate) fn print(samples: &BTreeMap<Key, Vec<Sample>>) {
    println!(
        "| value | outstanding | devices | hosts | decisions/s | p50 | p99 | switches per decision | and forced ones | native XDP is | tc is |"
    );
    println!("|--:|--:|---|---|--:|--:|--:|--:|--:|--:|--:|");
    let pairs: BTreeSet<(usize, usize)> =
        samples.keys().map(|key| (key.cell.room, key.cell.outstanding)).collect();
    for (room, outstanding) in pairs {
        for kind in Kind::ALL {
            let cell = |kind: Kind| Cell { room, outstanding, kind: kind.word() };
            let Some((layout, own)) = best(samples, cell(kind)) else {
                continue;
            };
            let of = |value: fn(&Sample) -> f64| median(own.iter().map(value));
            let ratio_of = |other: Kind| {
                let Some((_, other)) = best(samples, cell(other)) else {
                    return f64::NAN;
                };
                let ratios = other.iter().zip(own);
                median(ratios.map(|(other, own)| other.per_second / own.per_second))
            };
            let place = match layout {
                _ if kind.is_kernel() => "in the client's calls",
                0 => "next to the client",
                _ => "on another processor",
            };
            println!(
                "| {room} B | {outstanding} | {} | {place} | {:.1} k | {:.1} µs | {:.1} µs | {:.3} | {:.3} | {:.2} × | {:.2} × |",
                kind.name(),
                of(|sample| sample.per_second) / 1000.0,
                of(|sample| sample.p50_us),
                of(|sample| sample.p99_us),
                of(|sample| sample.switches),
                of(|sample| sample.forced),
                ratio_of(Kind::ALL[0]),
                ratio_of(Kind::ALL[1]),
            );
        }
    }
}

fn best(samples: &BTreeMap<Key, Vec<Sample>>, cell: Cell) -> Option<(usize, &Vec<Sample>)> {
    let rate = |samples: &Vec<Sample>| median(samples.iter().map(|sample| sample.per_second));
    let layouts = samples.iter().filter(|(key, _)| key.cell == cell);
    let best = layouts.max_by(|(_, one), (_, other)| rate(one).total_cmp(&rate(other)));
    best.map(|(key, samples)| (key.layout, samples))
}
