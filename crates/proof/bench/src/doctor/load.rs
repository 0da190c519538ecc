//! Load from other processes on this machine, which distorts measurements.

use crate::doctor::{
    finding::Finding,
    system::{SystemFiles, UnreadableFile},
};

/// Evaluates the load average of the last minute on a machine with `cpus` CPUs.
pub fn examine(system: &SystemFiles, cpus: usize) -> Finding {
    let name = "load";
    let hint = "uptime";
    let text = match system.read_text("proc/loadavg") {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", hint).with_detail(why);
        }
    };
    let load = text.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    let Some(load) = load.filter(|load| load.is_finite() && *load >= 0.0) else {
        return Finding::unknown(name, "not understood", hint);
    };
    let what = format!("{load} tasks run or wait to run, on {cpus} CPUs");
    let cpus = u32::try_from(cpus).map_or(f64::INFINITY, f64::from);
    if load <= cpus {
        return Finding::ok(name, what);
    }
    let hint = "the measurements below include other work: run doctor again when it is over";
    Finding::warning(name, what, hint)
        .with_detail("a flush or a message may wait milliseconds for a CPU, so predictions and measurements differ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    #[test]
    fn load_above_the_processors_is_a_warning() {
        let state = |text: &str| {
            let tree = Tree::of(&[("proc/loadavg", text)]);
            examine(&tree.system(), 2).state
        };
        assert_eq!(state("0.31 0.4 0.5 1/200 999\n"), FindingState::Ok);
        assert_eq!(state("2.00 9 9 1/2 3"), FindingState::Ok);
        assert_eq!(state("7.11 0 0 1/2 3"), FindingState::Warning);
        for garbage in ["", "much", "NaN 1", "-1 1", "inf"] {
            assert_eq!(state(garbage), FindingState::Unknown, "{garbage}");
        }
        assert_eq!(examine(&Tree::of(&[]).system(), 2).state, FindingState::Unknown);
    }
}
