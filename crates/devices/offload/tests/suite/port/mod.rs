//! Owners and the reference programs, over a port that loses, repeats and reorders frames both
//! ways.

mod device;
mod fencing;
mod frames;
mod giving;
mod losing;
mod world;

/// Runs a property with `count` seeds. Prints a failing seed, so that it can be run alone.
fn seeds(count: u64, run: impl Fn(u64)) {
    match std::env::var("SEED") {
        Ok(seed) => run(seed.parse().expect("a number")),
        Err(_) => (0..count).for_each(run),
    }
}
