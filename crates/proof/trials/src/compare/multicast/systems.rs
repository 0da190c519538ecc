//! The multicast systems under comparison, with notes for readers.

use crate::shell::Failed;

/// The systems, in the order of their turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum System {
    /// A bare sender of datagrams and receivers that count them, which serve as the ceiling.
    Bare,
    Quorate,
    Corosync,
    Jgroups,
    Aeron,
}

pub(super) const ALL: [System; 5] =
    [System::Bare, System::Quorate, System::Corosync, System::Jgroups, System::Aeron];

impl System {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare multicast",
            Self::Quorate => "quorate",
            Self::Corosync => "corosync",
            Self::Jgroups => "jgroups",
            Self::Aeron => "aeron",
        }
    }

    /// Returns the order guaranteed to receivers.
    pub(super) const fn delivery_order(self) -> &'static str {
        match self {
            Self::Bare => "none, and nothing is repaired",
            Self::Quorate => "one order of all senders, after a majority of the voters has it",
            Self::Corosync | Self::Jgroups => "one order of all senders",
            Self::Aeron => "of each sender only",
        }
    }

    pub(super) const fn version(self) -> &'static str {
        match self {
            Self::Bare | Self::Quorate => "this checkout",
            Self::Corosync => "as installed (Debian)",
            Self::Jgroups => "5.5.7.Final",
            Self::Aeron => "1.51.0",
        }
    }

    pub(super) const fn settings(self) -> &'static str {
        match self {
            Self::Bare => "datagrams of 1472 bytes, 44 of them in a call (UDP_SEGMENT, UDP_GRO)",
            Self::Quorate => {
                "volatile, --plane multicast, --votes ring; up to five voters, the other receivers are learners; 2 MiB of commands in flight, \
                 from clients at the leader"
            }
            Self::Corosync => {
                "closed process groups, agreed order; transport udp, no encryption; packets of 8900 bytes (default 1500), a window of 50 of \
                 them (50), 28 from one member per token (17), 20 and 20 with more than eight members, the defaults with more than 16: the best \
                 that we found; real-time priority, as it is by default"
            }
            Self::Jgroups => {
                "SEQUENCER over UDP, the sender is the coordinator, so that nothing is forwarded; values of the project's udp.xml, failure \
                 detection after a minute"
            }
            Self::Aeron => {
                "UDP multicast with flow control by the slowest receiver (min, for the whole group); a media driver in each process, one thread, \
                 naps when idle; packets of 1472 bytes, window of 512 KiB, terms of 16 MiB"
            }
        }
    }
}

/// Returns the named systems and the ceiling, or all systems if none is named.
pub(super) fn choose_systems(names: &[String]) -> Result<Vec<System>, Failed> {
    if let Some(name) = names.iter().find(|name| from_name(name).is_none()) {
        let all: Vec<&str> = ALL.iter().skip(1).map(|system| system.name()).collect();
        return Err(Failed(format!("{name}: no such system; there are {}", all.join(", "))));
    }
    let is_wanted = |system: &System| {
        names.is_empty()
            || *system == System::Bare
            || names.iter().any(|name| from_name(name) == Some(*system))
    };
    Ok(ALL.into_iter().filter(is_wanted).collect())
}

fn from_name(name: &str) -> Option<System> {
    ALL.into_iter().find(|system| system.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ceiling_is_always_measured() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let choose = |list: &[&str]| choose_systems(&names(list) as &Vec<String>);
        assert_eq!(choose(&[]).unwrap(), ALL);
        let one = choose(&["aeron"]).unwrap();
        assert_eq!(one, [System::Bare, System::Aeron]);
        assert!(choose(&["spread"]).is_err());
    }
}
