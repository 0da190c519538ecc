//! The generator in virtual time, against a server with known service times and stalls.

use std::{cmp::Reverse, collections::BinaryHeap};

use quorate_bench::{
    load::{CommandOutcome, LATE_SHARE_MAX, LoadDriver, LoadPlan, OfferedLoad},
    samples::Samples,
    schedule::{Nanos, SECOND},
};

const MS: Nanos = 1_000_000;
const US: Nanos = 1_000;

/// A server that processes each connection's commands in order with known service times, and stops
/// during a stall.
struct Fake {
    service: fn(u64) -> Nanos,
    stall: std::ops::Range<Nanos>,
    /// Period in which the generator does not run, as if other processes used the CPU.
    sleep: std::ops::Range<Nanos>,
    /// Number of outstanding commands at which the socket of a connection is full.
    socket: usize,
}

impl Default for Fake {
    fn default() -> Self {
        Self { service: |_| 100 * US, stall: 0..0, sleep: 0..0, socket: usize::MAX }
    }
}

impl Fake {
    /// Returns the reply time of a command that arrives at `at`.
    fn answers(&self, at: Nanos, number: u64) -> Nanos {
        let at = if self.stall.contains(&at) { self.stall.end } else { at };
        let done = at + (self.service)(number);
        if self.stall.contains(&done) { self.stall.end + done - self.stall.start } else { done }
    }

    fn run(&self, plan: LoadPlan) -> Samples {
        let mut load = LoadDriver::new(plan, 0);
        let mut now = 0;
        let mut replies = BinaryHeap::new();
        let mut last = vec![0; plan.connections_used()];
        let mut open = vec![0_usize; plan.connections_used()];
        let mut order = 0_u64;
        loop {
            while let Some(&Reverse((at, _, connection))) = replies.peek()
                && at <= now
            {
                replies.pop();
                open[connection] -= 1;
                // The generator sees a reply only when it runs.
                load.handle_reply(now, connection, CommandOutcome::Done);
            }
            // Like the real generator, this loop waits while a socket is full.
            while open.iter().all(|open| *open < self.socket)
                && let Some(issue) = load.take_due_command(now)
            {
                let at = self.answers(now, issue.number).max(last[issue.connection]);
                last[issue.connection] = at;
                open[issue.connection] += 1;
                order += 1;
                replies.push(Reverse((at, order, issue.connection)));
            }
            if load.is_over(now) {
                return load.finish();
            }
            let reply = replies.peek().map_or(Nanos::MAX, |Reverse((at, ..))| *at);
            let full = open.iter().any(|open| *open >= self.socket);
            let wake = if full { Nanos::MAX } else { load.next_wakeup() };
            now = reply.min(wake).max(now + 1);
            if self.sleep.contains(&now) {
                now = self.sleep.end;
            }
        }
    }
}

fn open(per_second: u64, connections: u32) -> LoadPlan {
    LoadPlan {
        offer: OfferedLoad::Open { per_second },
        connections,
        warmup_ns: SECOND,
        measure_ns: 10 * SECOND,
        reply_timeout_ns: 5 * SECOND,
    }
}

fn closed(outstanding: u32) -> LoadPlan {
    LoadPlan { offer: OfferedLoad::Closed { outstanding }, ..open(1, outstanding) }
}

#[track_caller]
fn close(got: f64, wanted: f64, share: f64) {
    assert!((got - wanted).abs() <= wanted * share, "{got} is not within {share} of {wanted}");
}

/// Returns service times evenly spread from 100 to 1100 µs.
fn spread(number: u64) -> Nanos {
    100 * US + number.wrapping_mul(617) % 1000 * US
}

/// A stall of 183 ms is measured to the microsecond, even though it covers only one whole bar of
/// the rate over time.
#[test]
fn the_longest_time_without_a_reply_is_found_to_the_microsecond() {
    let stall = 4 * SECOND + 10 * MS..4 * SECOND + 193 * MS;
    let fake = Fake { stall: stall.clone(), ..Fake::default() };
    for plan in [closed(8), open(10_000, 8)] {
        let samples = fake.run(plan);
        let after = |moment| samples.gaps.longest_after(moment).unwrap();
        // Replies stop when the stall begins, and resume at most one service time after it ends.
        let gap = after(3 * SECOND);
        assert!((183 * MS..=183 * MS + 200 * US).contains(&gap), "{gap}");
        assert_eq!(after(stall.start + MS), gap, "it ends later");
        assert!(after(stall.end + MS) <= 300 * US, "no other");
    }
}

/// If the server never replies again, the gap lasts until the end of sending.
#[test]
fn silence_to_the_end_is_a_gap() {
    let fake = Fake { stall: 7 * SECOND..1000 * SECOND, ..Fake::default() };
    let samples = fake.run(closed(8));
    let gap = samples.gaps.longest_after(6 * SECOND).unwrap();
    close(gap as f64, 4.0 * SECOND as f64, 0.001);
}

#[test]
fn percentiles_and_rate_of_a_known_server_are_found() {
    let fake = Fake { service: spread, ..Fake::default() };
    let samples = fake.run(open(10_000, 64));
    close(samples.completed_per_second(), 10_000.0, 0.01);
    for (share, us) in [(0.5, 600.0), (0.95, 1050.0), (0.99, 1090.0), (0.999, 1099.0)] {
        close(samples.latencies.quantile_us(share), us, 0.02);
    }
    close(samples.latencies.mean_us(), 600.0, 0.02);
    close(samples.latencies.max_us(), 1099.0, 0.02);
    assert_eq!((samples.errors, samples.lost, samples.late_count), (0, 0, 0));
    assert_eq!(samples.sent_count, 100_000);
}

#[test]
fn a_closed_loop_follows_littles_law() {
    let fake = Fake::default();
    for outstanding in [1, 8, 100] {
        let samples = fake.run(closed(outstanding));
        close(samples.completed_per_second(), f64::from(outstanding) * 10_000.0, 0.01);
        close(samples.latencies.quantile_us(0.5), 100.0, 0.02);
    }
}

/// A stall of half a second in ten seconds delays one command in twenty, by up to 500 ms in even
/// steps.
#[test]
fn a_stall_of_the_server_is_charged_to_every_command_that_it_delays() {
    let fake = Fake { stall: 4 * SECOND..4 * SECOND + 500 * MS, ..Fake::default() };
    let samples = fake.run(open(10_000, 16));
    close(samples.latencies.quantile_us(0.94), 100.0, 0.02);
    close(samples.latencies.quantile_us(0.96), 100_000.0, 0.02);
    close(samples.latencies.quantile_us(0.99), 400_000.0, 0.02);
    close(samples.latencies.max_us(), 500_000.0, 0.02);
    assert_eq!(samples.late_count, 0);
}

/// The sockets fill at once, so most commands of the stall can be sent only after it. Their latency
/// nevertheless includes the wait.
#[test]
fn a_command_that_could_not_be_sent_in_time_is_charged_from_its_intended_time() {
    let fake = Fake { stall: 4 * SECOND..4 * SECOND + 500 * MS, socket: 4, ..Fake::default() };
    let samples = fake.run(open(10_000, 16));
    close(samples.latencies.quantile_us(0.99), 400_000.0, 0.02);
    close(samples.latencies.max_us(), 500_000.0, 0.02);
    assert!(samples.late_share() > LATE_SHARE_MAX, "{}", samples.late_share());
}

/// If the generator does not run for 300 ms, it catches up, includes the delay in latencies, and
/// reports it.
#[test]
fn a_late_generator_counts_from_the_intended_time_and_says_that_it_was_late() {
    let fake = Fake { sleep: 4 * SECOND..4 * SECOND + 300 * MS, ..Fake::default() };
    let samples = fake.run(open(10_000, 16));
    close(samples.completed_per_second(), 10_000.0, 0.01);
    close(samples.latencies.quantile_us(0.99), 200_000.0, 0.02);
    close(samples.late_share(), 0.03, 0.02);
    close(samples.worst_lateness as f64, 300e6, 0.02);
}

#[test]
fn a_short_delay_of_the_generator_is_reported_and_harmless() {
    let fake = Fake { sleep: 4 * SECOND..4 * SECOND + 50 * MS, ..Fake::default() };
    let samples = fake.run(open(1000, 4));
    assert!(samples.late_count > 0 && samples.late_share() < LATE_SHARE_MAX);
}

#[test]
fn warm_up_is_thrown_away() {
    let fake = Fake { stall: 0..SECOND - 1, ..Fake::default() };
    let samples = fake.run(open(1000, 4));
    close(samples.latencies.max_us(), 100.0, 0.02);
    assert_eq!(samples.latencies.count(), 10_000);
}

#[test]
fn what_is_never_answered_is_lost() {
    let fake = Fake { stall: 10 * SECOND..1_000_000 * SECOND, ..Fake::default() };
    let samples = fake.run(open(1000, 4));
    assert_eq!(samples.lost, 1000);
    let samples = fake.run(closed(8));
    assert_eq!(samples.lost, 8);
}

#[test]
fn an_error_is_counted_with_its_words_and_not_as_done() {
    let mut load = LoadDriver::new(LoadPlan { warmup_ns: 0, ..closed(1) }, 0);
    let issue = load.take_due_command(0).unwrap();
    load.handle_reply(10, issue.connection, CommandOutcome::Error(b"BUSY"));
    let issue = load.take_due_command(10).unwrap();
    load.handle_reply(20, issue.connection, CommandOutcome::Done);
    let samples = load.finish();
    assert_eq!((samples.errors, samples.completed), (1, 1));
    assert_eq!(samples.first_error.as_deref(), Some("BUSY"));
}

#[test]
fn a_broken_connection_loses_what_was_outstanding_and_the_rest_goes_on() {
    let mut load = LoadDriver::new(LoadPlan { warmup_ns: 0, ..closed(4) }, 0);
    while load.take_due_command(0).is_some() {}
    load.handle_connection_loss(2, "reset");
    load.handle_connection_loss(2, "reset");
    load.handle_reply(10, 1, CommandOutcome::Done);
    assert_eq!(load.take_due_command(10).unwrap().connection, 1);
    assert!(!load.is_over(10));
    for connection in [0, 1, 3] {
        load.handle_connection_loss(connection, "reset");
    }
    assert!(load.is_over(10));
    assert_eq!(load.finish().lost, 4);
}

#[test]
fn a_reply_to_nothing_is_an_error() {
    let mut load = LoadDriver::new(closed(1), 0);
    load.handle_reply(5, 0, CommandOutcome::Done);
    assert_eq!(load.finish().errors, 1);
}

#[test]
fn the_rate_over_time_shows_when_nothing_came() {
    let fake = Fake { stall: 4 * SECOND..4 * SECOND + 500 * MS, ..Fake::default() };
    let samples = fake.run(open(1000, 4));
    assert_eq!(samples.replies_over_time[35], 100);
    assert!(samples.replies_over_time[41..45].iter().all(|count| *count == 0));
    assert!(samples.replies_over_time[45] > 500);
}

/// Commands that were not sent in time are never sent, and the generator does not wait for their
/// replies.
#[test]
fn a_load_that_was_held_up_ends_all_the_same() {
    let plan = open(1000, 1);
    let mut load = LoadDriver::new(plan, 0);
    let ends = plan.sending_ns();
    while load.take_due_command(SECOND).is_some() {}
    assert!(!load.is_over(ends), "it is behind, and would catch up");
    load.stop();
    assert_eq!(load.take_due_command(ends), None);
    assert!(!load.is_over(ends), "what was sent may be answered yet");
    let mut answered = 0;
    while !load.is_over(ends) {
        load.handle_reply(ends, 0, CommandOutcome::Done);
        answered += 1;
    }
    let samples = load.finish();
    assert_eq!((answered, samples.lost, samples.errors), (1001, 0, 0));
}
