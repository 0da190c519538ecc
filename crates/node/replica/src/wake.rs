//! Time of a replica's next wake-up: the earliest of many, computed after every event.

use quorate_core::time::Time;

/// Returns the earliest of these times; `None` if all are `None`. This is a loop without branches,
/// because it runs at several places after every event. An equivalent chain of iterators costs more
/// instructions, and so does a call.
#[inline(always)]
pub(crate) fn earliest<const N: usize>(times: [Option<Time>; N]) -> Option<Time> {
    const NEVER: Time = Time(u64::MAX);
    let mut first = NEVER;
    let mut any = false;
    for at in times {
        any |= at.is_some();
        first = first.min(at.unwrap_or(NEVER));
    }
    any.then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_of_those_that_there_are() {
        assert_eq!(earliest([None, None]), None);
        let times = [Some(Time(7)), None, Some(Time(3)), Some(Time(5))];
        assert_eq!(earliest(times), Some(Time(3)));
    }
}
