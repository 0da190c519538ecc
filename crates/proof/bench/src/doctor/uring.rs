//! Checks whether this process can create an io_uring that a log can use, with the same probe that
//! a node runs on startup.

use std::io;

use quorate_log::disk::{Buffers, uring_available};

use crate::doctor::{finding::Finding, system::SystemFiles};

pub fn examine(system: &SystemFiles) -> Finding {
    uring_finding(&uring_available(Buffers::default()), system)
}

fn uring_finding(available: &io::Result<String>, system: &SystemFiles) -> Finding {
    let name = "io_uring";
    let (what, why) = match available {
        Ok(shape) if !shape.contains("no registered") && !shape.contains("plain") => {
            return Finding::ok(name, shape);
        }
        Ok(shape) => ("available, but not with all features", shape.clone()),
        Err(error) => ("not available: threads write the log, using more CPU", error.to_string()),
    };
    let hint = match (available, system.read_number("proc/sys/kernel/io_uring_disabled")) {
        (Err(_), Ok(1 | 2)) => "sysctl -w kernel.io_uring_disabled=0",
        (Err(_), _) => {
            "containers forbid it by default: a seccomp profile with io_uring_setup, io_uring_enter and io_uring_register"
        }
        (Ok(shape), _) if shape.contains("no registered") => {
            "raise the limit on locked memory: LimitMEMLOCK=8M"
        }
        (Ok(_), _) => "Linux 6.1 has better rings",
    };
    Finding::warning(name, what, hint).with_detail(why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::{finding::FindingState, system::tests::Tree};

    #[test]
    fn hint_depends_on_the_obstacle() {
        let plain = Tree::of(&[]).system();
        let ok = |shape: &str| uring_finding(&Ok(shape.to_owned()), &plain);
        assert_eq!(ok("single issuer, 4 registered buffers").state, FindingState::Ok);
        let short = ok("single issuer, no registered buffers: out of memory");
        assert!(short.hint.contains("MEMLOCK"), "{short:?}");
        assert!(ok("plain, 4 registered buffers").hint.contains("6.1"));
        let refused = || Err(io::ErrorKind::PermissionDenied.into());
        let sealed = uring_finding(&refused(), &plain);
        assert!(sealed.hint.contains("seccomp") && !sealed.blocks, "{sealed:?}");
        for (text, word) in [("2\n", "sysctl"), ("0", "seccomp"), ("maybe", "seccomp")] {
            let tree = Tree::of(&[("proc/sys/kernel/io_uring_disabled", text)]);
            let found = uring_finding(&refused(), &tree.system());
            assert!(found.hint.contains(word), "{text} {found:?}");
        }
    }
}
