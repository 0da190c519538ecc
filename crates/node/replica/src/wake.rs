//! Time at which a replica must next be woken: the earliest of many, computed after each event.

use quorate_core::time::Time;

/// Returns the earliest of `times`; `None` if all are `None`. Written as a loop without branches,
/// because it runs at several places after every event, and a chain of iterators or a call costs
/// more instructions.
#[inline(always)]
pub(crate) fn earliest_time<const N: usize>(times: [Option<Time>; N]) -> Option<Time> {
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
    fn earliest_of_the_present_times() {
        assert_eq!(earliest_time([None, None]), None);
        let times = [Some(Time(7)), None, Some(Time(3)), Some(Time(5))];
        assert_eq!(earliest_time(times), Some(Time(3)));
    }
}
