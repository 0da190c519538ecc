//! Open-file check: usage on the whole machine, and the limit up to which this process can raise
//! its own.

use crate::doctor::{
    finding::Finding,
    system::{SystemFiles, UnreadableFile},
};

/// Recommended number of file descriptors for a process with many clients.
const PROCESS_FILES_WANTED: u64 = 65_536;
/// Percentage of the machine's limit in use that causes a warning.
const USED_PERCENT_WARNING: u64 = 90;

pub fn examine(system: &SystemFiles) -> Vec<Finding> {
    vec![machine_finding(system), process_finding(system)]
}

fn machine_finding(system: &SystemFiles) -> Finding {
    let name = "file-nr";
    let hint = "raise fs.file-max with sysctl -w; lsof shows who has files open";
    let text = match system.read_text("proc/sys/fs/file-nr") {
        Ok(text) => text,
        Err(UnreadableFile(why)) => {
            return Finding::unknown(name, "not known", hint).with_detail(why);
        }
    };
    let numbers: Option<Vec<u64>> = text.split_whitespace().map(|word| word.parse().ok()).collect();
    let Some([open, unused, most]) = numbers.as_deref() else {
        return Finding::unknown(name, "not understood", hint);
    };
    let used = open.saturating_sub(*unused);
    let what = format!("{used} of {most} files on the machine are open");
    if u128::from(used) * 100 >= u128::from(*most) * u128::from(USED_PERCENT_WARNING) {
        return Finding::warning(name, what, hint);
    }
    Finding::ok(name, what)
}

fn process_finding(system: &SystemFiles) -> Finding {
    let name = "nr_open";
    match system.read_number("proc/sys/fs/nr_open") {
        Ok(most) if most >= PROCESS_FILES_WANTED => {
            Finding::ok(name, format!("LimitNOFILE may be raised up to {most}"))
        }
        Ok(most) => {
            let what = format!("LimitNOFILE cannot be raised above {most}");
            Finding::warning(name, what, format!("sysctl -w fs.nr_open={PROCESS_FILES_WANTED}"))
        }
        Err(UnreadableFile(why)) => {
            Finding::unknown(name, "not known", "sysctl fs.nr_open").with_detail(why)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    #[test]
    fn few_remaining_file_handles_are_a_warning() {
        let of = |text: &str| {
            let tree = Tree::of(&[("proc/sys/fs/file-nr", text)]);
            machine_finding(&tree.system()).state
        };
        assert_eq!(of("375\t0\t2466174"), FindingState::Ok);
        assert_eq!((of("89 0 100"), of("90 0 100")), (FindingState::Ok, FindingState::Warning));
        assert_eq!(of("95 50 100"), FindingState::Ok, "what is not used is not open");
        for garbage in ["", "1 2", "1 2 3 4", "a b c"] {
            assert_eq!(of(garbage), FindingState::Unknown, "{garbage}");
        }
    }

    #[test]
    fn low_limit_of_files_per_process_is_a_warning() {
        let of = |text: &str| {
            process_finding(&Tree::of(&[("proc/sys/fs/nr_open", text)]).system()).state
        };
        assert_eq!((of("1048576"), of("1024")), (FindingState::Ok, FindingState::Warning));
        assert_eq!(of(""), FindingState::Unknown);
        assert_eq!(examine(&Tree::of(&[]).system()).len(), 2);
    }
}
