//! Memory check: transparent huge pages, swapped memory, and overcommitment.

use crate::doctor::{
    finding::Finding,
    system::{SystemFiles, UnreadableFile},
};

const HUGE_PAGES_FILE: &str = "sys/kernel/mm/transparent_hugepage/enabled";

pub fn examine(system: &SystemFiles) -> Vec<Finding> {
    vec![huge_pages_finding(system), swap_finding(system), overcommit_finding(system)]
}

fn huge_pages_finding(system: &SystemFiles) -> Finding {
    let name = "thp";
    let hint = format!("echo madvise > /{HUGE_PAGES_FILE}; at boot: transparent_hugepage=madvise");
    let text = match system.read_text(HUGE_PAGES_FILE) {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", format!("cat /{HUGE_PAGES_FILE}"))
                .with_detail(why);
        }
    };
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match chosen.map(|(chosen, _)| chosen) {
        Some("always") => {
            let what = "always: the kernel pauses processes to build large pages";
            Finding::warning(name, what, hint)
                .with_detail("seen as occasional commands that take milliseconds")
        }
        Some(chosen @ ("madvise" | "never")) => Finding::ok(name, chosen),
        _ => Finding::unknown(name, "not understood", format!("cat /{HUGE_PAGES_FILE}")),
    }
}

fn swap_finding(system: &SystemFiles) -> Finding {
    let name = "swap";
    let text = match system.read_text("proc/meminfo") {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", "swapon --show").with_detail(why);
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
    let swappiness = system.read_number("proc/sys/vm/swappiness");
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
    found.with_detail(format!("vm.swappiness is {swappiness}"))
}

fn overcommit_finding(system: &SystemFiles) -> Finding {
    let name = "overcommit";
    match system.read_number("proc/sys/vm/overcommit_memory") {
        Ok(2) => {
            let what = "vm.overcommit_memory is 2: the kernel refuses memory that is not backed";
            Finding::warning(name, what, "sysctl -w vm.overcommit_memory=0")
                .with_detail("a node reserves more than it uses, and exits when it is refused")
        }
        Ok(mode) => Finding::ok(name, format!("vm.overcommit_memory is {mode}")),
        Err(UnreadableFile(why)) => {
            Finding::unknown(name, "not known", "sysctl vm.overcommit_memory").with_detail(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    fn state(look: fn(&SystemFiles) -> Finding, path: &str, text: &str) -> FindingState {
        look(&Tree::of(&[(path, text)]).system()).state
    }

    #[test]
    fn huge_pages_for_every_program_are_a_warning() {
        let of = |text| state(huge_pages_finding, HUGE_PAGES_FILE, text);
        assert_eq!(of("[always] madvise never"), FindingState::Warning);
        assert_eq!(of("always [madvise] never"), FindingState::Ok);
        assert_eq!(of("always madvise [never]\n"), FindingState::Ok);
        for garbage in ["", "always", "[", "]always["] {
            assert_eq!(of(garbage), FindingState::Unknown, "{garbage}");
        }
    }

    #[test]
    fn swap_in_use_is_a_warning() {
        let of = |text| state(swap_finding, "proc/meminfo", text);
        assert_eq!(of("SwapTotal:  0 kB\nSwapFree: 0 kB"), FindingState::Ok);
        assert_eq!(of("MemTotal: 9 kB\nSwapTotal: 2048 kB\nSwapFree: 2048 kB"), FindingState::Ok);
        assert_eq!(of("SwapTotal: 4096 kB\nSwapFree: 2048 kB"), FindingState::Warning);
        for garbage in ["", "SwapTotal: 3", "SwapTotal: x kB\nSwapFree: 1 kB"] {
            assert_eq!(of(garbage), FindingState::Unknown, "{garbage}");
        }
    }

    #[test]
    fn strict_overcommit_is_a_warning() {
        let of = |text| state(overcommit_finding, "proc/sys/vm/overcommit_memory", text);
        assert_eq!(
            (of("0"), of("1"), of("2")),
            (FindingState::Ok, FindingState::Ok, FindingState::Warning)
        );
        assert_eq!(of("x"), FindingState::Unknown);
        let nothing = examine(&Tree::of(&[]).system());
        assert!(nothing.iter().all(|finding| finding.state == FindingState::Unknown));
    }
}
