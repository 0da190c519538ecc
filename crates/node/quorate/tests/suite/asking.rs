//! Requests from an embedding program and the resulting calls of the replica, without sockets,
//! threads or a clock.

use std::sync::mpsc::{TryRecvError, channel};

use quorate::{Failure, RequestError, local_channel};
use quorate_replica::front::{Completion, Front as _};
use quorate_testbed::asked::FakeReplica;

/// [time-2] Deadlines follow the clock of the node that accepts the command, not the program's
/// clock.
#[test]
fn a_command_with_a_deadline_is_made_with_the_time_of_the_node() {
    let (local, mut front) = local_channel().expect("an eventfd");
    let (tell, told) = channel();
    let submit = |made: fn(u64) -> Vec<u8>| {
        let tell = tell.clone();
        let done = move |result| drop(tell.send(result));
        local.submit_at(made, done).expect("there is room");
    };
    submit(|now_ms| (now_ms + 5).to_be_bytes().to_vec());
    submit(|_| vec![7; 11]);
    let mut asked =
        FakeReplica { wall_ms: 66, lacks_clock: true, ..FakeReplica::with_command_limit(10) };
    front.run_turn(&mut asked);
    assert!(asked.unacknowledged_commands.is_empty(), "[time-4] it waits for the group's clock");
    (asked.wall_ms, asked.lacks_clock) = (77, false);
    front.run_turn(&mut asked);
    assert_eq!(told.try_recv(), Ok(Err(RequestError(Failure::TooBig))));
    let [(tag, command)] = &asked.unacknowledged_commands[..] else {
        panic!("one was written");
    };
    assert_eq!(command[..], 82_u64.to_be_bytes());
    let (tag, reply) = (*tag, &b"done"[..]);
    front.handle_completion(Completion::Written(tag, reply), &mut asked);
    assert_eq!(told.try_recv(), Ok(Ok(reply.to_vec())));
    asked.lacks_clock = true;
    submit(|_| vec![7; 5]);
    // The timeout counts turns, which occur as on an idle node, and not jumps of the clock.
    for ms in [100, 9_000, 10_000, 11_000, 12_000, 12_715, 12_716] {
        asked.wall_ms = ms;
        front.run_turn(&mut asked);
        let answer = if ms < 12_716 {
            Err(TryRecvError::Empty)
        } else {
            Ok(Err(RequestError(Failure::NoQuorum)))
        };
        assert_eq!(told.try_recv(), answer, "as long as for a leader");
    }
}
