//! Memory check: transparent huge pages, swapped memory, and overcommitment.

use crate::doctor::{
    finding::Finding,
    system::{System, UnreadableFile},
};

const PAGES: &str = "sys/kernel/mm/transparent_hugepage/enabled";

pub fn examine(system: &System) -> Vec<Finding> {
    vec![pages(system), swap(system), promises(system)]
}

fn pages(system: &System) -> Finding {
    let name = "thp";
    let hint = format!("echo madvise > /{PAGES}; at boot: transparent_hugepage=madvise");
    let text = match system.read(PAGES) {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", format!("cat /{PAGES}")).detail(why);
        }
    };
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(chosen, _)| chosen) {
        Some("always") => {
            let what = "always: the kernel pauses processes to build large pages";
            Finding::warning(name, what, hint)
                .detail("seen as occasional commands that take milliseconds")
        }
        Some(chosen @ ("madvise" | "never")) => Finding::ok(name, chosen),
        _ => Finding::unknown(name, "not understood", format!("cat /{PAGES}")),
    }
}

fn swap(system: &System) -> Finding {
    let name = "swap";
    let text = match system.read("proc/meminfo") {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", "swapon --show").detail(why);
        }
    };
    let kib = |field: &str| -> Option<u64> {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        line.trim().strip_suffix(" kB")?.trim().parse().ok()
    };
    let (Some(total), Some(free)) = (kib("SwapTotal"), kib("SwapFree")) else {
        return Finding::unknown(name, "not understood", "swapon --show");
    };
    let used = total.saturating_sub(free);
    let swappiness = system.number("proc/sys/vm/swappiness");
    let swappiness =
        swappiness.map_or_else(|_| "not known".to_owned(), |number| number.to_string());
    let found = match (total, used) {
        (0, _) => return Finding::ok(name, "none"),
        (_, 0) => Finding::ok(name, format!("{} MiB, unused", total >> 10)),
        _ => {
            let what = format!("{} of {} MiB are in use", used >> 10, total >> 10);
            let hint = "a node that swaps is slow: give it more memory, set MemorySwapMax=0 in the unit, or run swapoff -a";
            Finding::warning(name, what, hint)
        }
    };
    found.detail(format!("vm.swappiness is {swappiness}"))
}

fn promises(system: &System) -> Finding {
    let name = "overcommit";
    match system.number("proc/sys/vm/overcommit_memory") {
        Ok(2) => {
            let what = "vm.overcommit_memory is 2: the kernel refuses memory that is not backed";
            Finding::warning(name, what, "sysctl -w vm.overcommit_memory=0")
                .detail("a node reserves more than it uses, and exits when it is refused")
        }
        Ok(mode) => Finding::ok(name, format!("vm.overcommit_memory is {mode}")),
        Err(UnreadableFile(why)) => {
            Finding::unknown(name, "not known", "sysctl vm.overcommit_memory").detail(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::State, system::tests::Tree};

    fn state(look: fn(&System) -> Finding, path: &str, text: &str) -> State {
        look(&Tree::of(&[(path, text)]).system()).state
    }

    #[test]
    fn huge_pages_for_every_program_are_a_warning() {
        let of = |text| state(pages, PAGES, text);
        assert_eq!(of("[always] madvise never"), State::Warning);
        assert_eq!(of("always [madvise] never"), State::Ok);
        assert_eq!(of("always madvise [never]\n"), State::Ok);
        for garbage in ["", "always", "[", "]always["] {
            assert_eq!(of(garbage), State::Unknown, "{garbage}");
        }
    }

    #[test]
    fn swap_in_use_is_a_warning() {
        let of = |text| state(swap, "proc/meminfo", text);
        assert_eq!(of("SwapTotal:  0 kB\nSwapFree: 0 kB"), State::Ok);
        assert_eq!(of("MemTotal: 9 kB\nSwapTotal: 2048 kB\nSwapFree: 2048 kB"), State::Ok);
        assert_eq!(of("SwapTotal: 4096 kB\nSwapFree: 2048 kB"), State::Warning);
        for garbage in ["", "SwapTotal: 3", "SwapTotal: x kB\nSwapFree: 1 kB"] {
            assert_eq!(of(garbage), State::Unknown, "{garbage}");
        }
    }

    #[test]
    fn strict_overcommit_is_a_warning() {
        let of = |text| state(promises, "proc/sys/vm/overcommit_memory", text);
        assert_eq!((of("0"), of("1"), of("2")), (State::Ok, State::Ok, State::Warning));
        assert_eq!(of("x"), State::Unknown);
        let nothing = examine(&Tree::of(&[]).system());
        assert!(nothing.iter().all(|finding| finding.state == State::Unknown));
    }
}
