//! Writers and readers of streams against fake nodes that cut connections, lose responses, end
//! pieces and report impossible positions.

use std::{
    io::{BufRead as _, Read as _, Seek as _, SeekFrom, Write as _},
    net::TcpListener,
    sync::mpsc::channel,
    thread,
    time::Duration,
};

use quorate_client::stream::{
    Error, ErrorCode, OpenMode, Options, ReadEnd, Retention, StreamReader, StreamWriter, Streams,
};
use quorate_core::dice::Dice;
use quorate_testbed::played::{Fault, SimulatedCluster};

/// Upper bound on the duration of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options to leave a silent node quickly and give up slowly.
fn options() -> Options {
    Options {
        stall_timeout: Duration::from_millis(300),
        connect_timeout: Duration::from_millis(300),
        open: PATIENCE,
        give_up_timeout: PATIENCE,
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(5),
        ..Options::default()
    }
}

/// Returns bytes that differ from their neighbours, so that no loss, repetition or move goes
/// unnoticed.
fn bytes(count: usize) -> Vec<u8> {
    let mut dice = Dice::new(count as u64);
    let words = (0..count.div_ceil(8)).flat_map(|_| dice.word().to_le_bytes());
    words.take(count).collect()
}

fn create(played: &SimulatedCluster, options: Options) -> Result<StreamWriter, Error> {
    StreamWriter::open(played.addresses(), "s", OpenMode::Create, options)
}

/// Closes the stream and returns the result. Fails if that takes too long.
#[track_caller]
fn finish(writer: StreamWriter) -> Result<u64, Error> {
    let (sender, finished) = channel();
    thread::spawn(move || sender.send(writer.finish()));
    finished.recv_timeout(PATIENCE).expect("it ends")
}

/// Writes all bytes despite `faults` and closes the stream. Checks that it has every byte once and
/// in order.
#[track_caller]
fn check(nodes: usize, faults: &[Fault], data: &[u8]) -> SimulatedCluster {
    let played = SimulatedCluster::start(nodes, 1).unwrap();
    played.queue_faults(faults);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(data).unwrap();
    assert_eq!(finish(writer), Ok(data.len() as u64), "{faults:?}");
    assert_eq!(played.decided_bytes("s"), Some((data.to_vec(), true)), "{faults:?}");
    played
}

#[test]
fn what_is_written_is_there_once_it_is_finished() {
    for count in [0, 1, 262_144, 262_145, 1_000_000] {
        let played = check(1, &[], &bytes(count));
        assert_eq!(played.accepted_by(), [0]);
    }
}

/// Losing any response (welcome, opening, acknowledgement, close) loses and repeats nothing.
#[test]
fn a_lost_answer_loses_and_repeats_nothing() {
    let data = bytes(3000);
    for at in 0..4 {
        check(1, &[Fault::CutBeforeFrame(at)], &data);
        check(
            3,
            &[Fault::CutBeforeFrame(at), Fault::CutBeforeFrame(at), Fault::SilenceFromFrame(at)],
            &data,
        );
    }
}

#[test]
fn a_connection_cut_anywhere_loses_and_repeats_nothing() {
    let mut dice = Dice::new(14);
    let data = bytes(200_000);
    let played = SimulatedCluster::start(3, 14).unwrap();
    for run in 0..100 {
        let name = format!("s{run}");
        let mut fault = || {
            let near = dice.index(300);
            let far = dice.index(data.len() + 1000);
            dice.pick(&[
                Fault::CutInputAfter(near),
                Fault::CutInputAfter(far),
                Fault::CutInputAfter(far),
                Fault::CutBeforeFrame(near % 8),
                Fault::EndPieceAfter(far),
                Fault::EndPieceAfter(near),
                Fault::RefuseFirst(ErrorCode::Busy),
                Fault::RefuseFirst(ErrorCode::Uncertain),
                Fault::RefuseFirst(ErrorCode::Unavailable),
            ])
        };
        let faults: Vec<Fault> = (0..run % 13).map(|_| fault()).collect();
        played.queue_faults(&faults);
        let opened = StreamWriter::open(played.addresses(), &name, OpenMode::Create, options());
        let mut writer = opened.unwrap();
        let mut rest = &data[..];
        while !rest.is_empty() {
            let count = dice.index(60_000).min(rest.len());
            writer.write_all(&rest[..count]).unwrap();
            rest = &rest[count..];
        }
        assert_eq!(writer.finish(), Ok(data.len() as u64), "{faults:?}");
        let (stream, finished) = played.decided_bytes(&name).unwrap();
        assert!(stream == data && finished, "{faults:?}");

        // The reader meets the remaining faults.
        let cuts: Vec<Fault> =
            (0..dice.index(6)).map(|_| Fault::CutBeforeFrame(dice.index(20))).collect();
        played.queue_faults(&cuts);
        let mut read = Vec::new();
        let mut reader = StreamReader::new(played.addresses(), &name, options());
        reader.read_to_end(&mut read).unwrap();
        assert!(read == data, "{faults:?} {cuts:?}");
        played.clear_faults();
    }
}

/// A writer leaves a node that accepts bytes but acknowledges none on an open connection.
#[test]
fn a_silent_node_is_left() {
    let data = bytes(5000);
    let played = check(2, &[Fault::SilenceFromFrame(2)], &data);
    assert_eq!(played.accepted_by()[..2], [0, 1]);
    // The node also owes the response to a close after every byte is acknowledged.
    let played = check(2, &[Fault::SilenceFromFrame(2)], &[]);
    assert_eq!(played.accepted_by()[..2], [0, 1]);
}

#[test]
fn a_writer_whose_piece_was_ended_comes_back_at_once() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.queue_faults(&[Fault::EndPieceAfter(500)]);
    let patient = Options { stall_timeout: 2 * PATIENCE, ..options() };
    let mut writer = create(&played, patient).unwrap();
    writer.write_all(&bytes(1000)).unwrap();
    assert_eq!(finish(writer), Ok(1000));
    assert_eq!(played.decided_bytes("s"), Some((bytes(1000), true)));
}

#[test]
fn a_cut_while_nothing_is_written_is_mended_without_the_caller() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.stop_deciding_at(3);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abcdef").unwrap();
    let watch = writer.progress_handle();
    assert!(played.wait_for_bytes("s", 6, PATIENCE));
    // The other node gets all undecided bytes without any action of the caller.
    played.set_down(0, true);
    while watch.progress().reconnect_count == 0 {
        thread::yield_now();
    }
    played.stop_deciding_at(u64::MAX);
    writer.flush().unwrap();
    assert_eq!(writer.durable_position(), 6);
    assert_eq!(watch.progress().address, played.addresses()[1]);
    assert_eq!(played.decided_bytes("s"), Some((b"abcdef".to_vec(), false)));
}

#[test]
fn a_full_buffer_holds_the_caller_up_and_drops_nothing() {
    const BUFFER: u64 = 100_000;
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.stop_deciding_at(7);
    let patient = Options {
        buffer_bytes_max: usize::try_from(BUFFER).unwrap(),
        stall_timeout: PATIENCE,
        ..options()
    };
    let mut writer = create(&played, patient).unwrap();
    let watch = writer.progress_handle();
    let data = bytes(300_000);
    let all = data.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&all).unwrap();
        writer.finish()
    });
    for held in [7, 150_000, 199_999] {
        played.stop_deciding_at(held);
        assert!(played.wait_for_bytes("s", held + BUFFER, PATIENCE));
        // The node has the buffered bytes, and gets more only after a decision.
        let progress = watch.progress();
        assert_eq!((progress.durable_position, progress.written_position), (held, held + BUFFER));
        assert_eq!(played.received_bytes("s"), held + BUFFER);
    }
    played.stop_deciding_at(u64::MAX);
    assert_eq!(writing.join().unwrap(), Ok(300_000));
    assert_eq!(played.decided_bytes("s"), Some((data, true)));
}

#[test]
fn a_flush_returns_when_all_is_durable() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let mut writer = create(&played, options()).unwrap();
    for end in [1, 1000, 70_000] {
        let from = usize::try_from(writer.position()).unwrap();
        writer.write_all(&bytes(70_000)[from..end]).unwrap();
        writer.flush().unwrap();
        assert_eq!(writer.durable_position(), end as u64);
        assert_eq!(played.decided_bytes("s").unwrap().0, &bytes(70_000)[..end]);
    }
}

#[test]
fn a_fenced_writer_never_writes_again() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.queue_faults(&[Fault::FenceAfter(500)]);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(&bytes(1000)).unwrap();
    let error = writer.flush().unwrap_err();
    let error = Error::from_io_error(&error).unwrap().clone();
    assert_eq!(error.code(), Some(ErrorCode::Fenced));
    // The writer does not reopen the name, and repeats the error.
    let again = writer.write(b"x").unwrap_err();
    assert_eq!(Error::from_io_error(&again), Some(&error));
    let durable = writer.durable_position();
    assert_eq!(writer.finish(), Err(error));
    let (stream, finished) = played.decided_bytes("s").unwrap();
    assert_eq!((stream.len() as u64 >= durable, finished), (true, false));
    assert!(bytes(1000).starts_with(&stream));
}

/// A node's positions must agree with the bytes sent and acknowledged.
#[test]
fn positions_that_cannot_be_are_errors() {
    // Cut when all but the last byte is acknowledged.
    let lost = |by| {
        let played = SimulatedCluster::start(1, 1).unwrap();
        played.queue_faults(&[Fault::None, Fault::ShiftPosition(by)]);
        let mut writer = create(&played, options()).unwrap();
        writer.write_all(b"abcd").unwrap();
        writer.flush().unwrap();
        played.set_down(0, true);
        played.set_down(0, false);
        writer.write_all(b"e").unwrap();
        writer.finish()
    };
    let error = Error::AcknowledgedLost { acknowledged_position: 4, node_position: 3 };
    assert_eq!(lost(-1), Err(error));
    // One byte more than was ever sent, which may include the fifth.
    assert!(matches!(lost(2), Err(Error::NodeAhead { node_position: 6, .. })));
    assert!(matches!(
        check_first(Fault::ShiftPosition(1)),
        Err(Error::NodeAhead { sent_position: 0, node_position: 1 })
    ));
    assert!(matches!(
        check_first(Fault::RaiseAcknowledged(1)),
        Err(Error::NodeAhead { sent_position: 3, node_position: 4 })
    ));
}

/// A close at a position other than the end of the written bytes is an error, even if its response
/// was lost.
#[test]
fn a_stream_that_was_closed_elsewhere_is_an_error() {
    let short = check_first(Fault::LowerClosed(1));
    // May have been reported earlier.
    assert!(
        matches!(
            short,
            Err(Error::ClosedEarly { written_position: 3, closed_position: 2 }
                | Error::AcknowledgedLost { acknowledged_position: 3, node_position: 2 })
        ),
        "{short:?}"
    );
    for by in [-1, 0, 1] {
        let played = SimulatedCluster::start(1, 1).unwrap();
        played.put_stream("s", b"abc", false);
        played.queue_faults(&[Fault::CutBeforeFrame(2), Fault::ShiftPosition(by)]);
        let opened = StreamWriter::open(played.addresses(), "s", OpenMode::Append, options());
        let expected = match by {
            -1 => Err(Error::AcknowledgedLost { acknowledged_position: 3, node_position: 2 }),
            0 => Ok(3),
            _ => Err(Error::NodeAhead { sent_position: 3, node_position: 4 }),
        };
        assert_eq!(opened.unwrap().finish(), expected);
        assert_eq!(played.decided_bytes("s"), Some((b"abc".to_vec(), true)));
    }
}

fn check_first(fault: Fault) -> Result<u64, Error> {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.queue_faults(&[fault]);
    let mut writer = create(&played, options())?;
    writer.write_all(b"abc").unwrap();
    match writer.flush() {
        Ok(()) => writer.finish(),
        Err(error) => Err(Error::from_io_error(&error).unwrap().clone()),
    }
}

#[test]
fn a_writer_goes_to_the_leader_if_it_may_choose() {
    let played = SimulatedCluster::start(3, 1).unwrap();
    played.set_leader(2);
    let writer = create(&played, options()).unwrap();
    assert_eq!(writer.progress_handle().progress().address, played.addresses()[2]);
    assert_eq!(writer.finish(), Ok(0));
    // A writer with a single address stays there.
    let alone = &played.addresses()[..1];
    let writer = StreamWriter::open(alone, "t", OpenMode::Create, options()).unwrap();
    assert_eq!(writer.progress_handle().progress().address, alone[0]);
    // An unreachable leader does not prevent writing.
    played.set_down(2, true);
    let writer = StreamWriter::open(played.addresses(), "u", OpenMode::Create, options()).unwrap();
    assert_eq!(writer.progress_handle().progress().address, played.addresses()[0]);
    // Nor does one that cannot serve: the next attempt avoids it.
    played.set_down(2, false);
    played.queue_faults(&[Fault::None, Fault::RefuseFirst(ErrorCode::Unavailable)]);
    let writer = StreamWriter::open(played.addresses(), "v", OpenMode::Create, options()).unwrap();
    assert_eq!(writer.progress_handle().progress().address, played.addresses()[1]);
}

#[test]
fn appending_goes_on_at_the_end() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abc").unwrap();
    assert_eq!(writer.detach(), Ok(3));
    let open = |how| StreamWriter::open(played.addresses(), "s", how, options());
    let mut writer = open(OpenMode::Append).unwrap();
    assert_eq!((writer.first_position(), writer.position()), (3, 3));
    writer.write_all(b"de").unwrap();
    assert_eq!(open(OpenMode::Append).unwrap_err().code(), Some(ErrorCode::InUse));
    let mut other = open(OpenMode::Takeover).unwrap();
    other.write_all(b"fg").unwrap();
    let end = other.finish().unwrap();
    // Bytes of the first writer may have been decided earlier.
    let (stream, finished) = played.decided_bytes("s").unwrap();
    assert_eq!((stream.len() as u64, finished), (end, true));
    assert!(stream.starts_with(b"abc") && stream.ends_with(b"fg"), "{stream:?}");
    for how in [OpenMode::Append, OpenMode::Takeover] {
        assert_eq!(open(how).unwrap_err().code(), Some(ErrorCode::Finished));
    }
    assert_eq!(open(OpenMode::Create).unwrap_err().code(), Some(ErrorCode::Exists));
    assert!(writer.finish().is_err());
}

/// The response to a close is lost, and another writer opens the stream before the client learns of
/// the close.
#[test]
fn a_stream_that_was_left_may_be_others_before_that_is_known() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.queue_faults(&[Fault::CutBeforeFrame(3), Fault::RefuseFirst(ErrorCode::Fenced)]);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abc").unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.detach(), Ok(3));
}

#[test]
fn nobody_there_is_an_error_at_once_and_later_when_patience_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = [listener.local_addr().unwrap().to_string()];
    drop(listener);
    let opened = StreamWriter::open(&closed, "s", OpenMode::Create, options());
    assert!(matches!(opened, Err(Error::Unreachable(_))));
    let listed = Streams::new(&closed, options()).list();
    assert!(matches!(listed, Err(Error::Unreachable(_))));

    let played = SimulatedCluster::start(2, 1).unwrap();
    let hasty = Options { give_up_timeout: Duration::from_millis(30), ..options() };
    let mut writer = create(&played, hasty).unwrap();
    played.set_down(0, true);
    played.set_down(1, true);
    writer.write_all(b"x").unwrap();
    assert!(matches!(writer.finish(), Err(Error::Unreachable(_))));
}

#[test]
fn a_reader_reads_from_anywhere_to_anywhere() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let data = bytes(600_000);
    played.put_stream("s", &data, true);
    let mut reader = StreamReader::new(played.addresses(), "s", options());
    let mut dice = Dice::new(3);
    let mut some = vec![0; 3000];
    for _ in 0..50 {
        let at = dice.index(data.len() - some.len());
        let to = match dice.index(3) {
            0 => SeekFrom::Start(at as u64),
            1 => SeekFrom::End(at as i64 - data.len() as i64),
            _ => SeekFrom::Current(at as i64 - reader.position() as i64),
        };
        assert_eq!(reader.seek(to).unwrap(), at as u64);
        reader.read_exact(&mut some).unwrap();
        assert_eq!(some, data[at..at + some.len()]);
    }
    reader.seek(SeekFrom::End(0)).unwrap();
    assert_eq!(reader.read(&mut some).unwrap(), 0);
    let end = ReadEnd { position: 600_000, is_finished: true };
    assert_eq!(reader.end(), Some(end));
    assert!(reader.seek(SeekFrom::Current(-600_001)).is_err());

    let mut part = Vec::new();
    let reader = StreamReader::new(played.addresses(), "s", options());
    let mut reader = reader.from(10).stop_at(300_010);
    reader.read_to_end(&mut part).unwrap();
    assert_eq!(part, data[10..300_010]);
}

#[test]
fn a_follower_goes_on_until_the_stream_is_closed_whatever_happens_to_its_nodes() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.put_stream("s", b"", false);
    let quick = Options { silence_timeout: Duration::from_millis(20), ..options() };
    played.queue_faults(&[
        Fault::SilenceFromFrame(4),
        Fault::CutBeforeFrame(3),
        Fault::CutBeforeFrame(5),
    ]);
    let data = bytes(50_000);
    let mut reader = StreamReader::new(played.addresses(), "s", quick).follow();
    let mut read = Vec::new();
    for part in data.chunks(5_000) {
        played.append("s", part, false);
        let mut new = vec![0; part.len()];
        reader.read_exact(&mut new).unwrap();
        read.extend(new);
    }
    played.append("s", b"", true);
    assert!(reader.fill_buf().unwrap().is_empty());
    assert!(read == data);
    assert!(reader.end().unwrap().is_finished);
}

#[test]
fn a_reader_skips_nothing() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let data = bytes(600_000);
    played.put_stream("s", &data, false);
    let reader = |from| StreamReader::new(played.addresses(), "s", options()).from(from);
    let mut all = Vec::new();
    let mut code = |mut reader: StreamReader| {
        let error = reader.read_to_end(&mut all).unwrap_err();
        Error::from_io_error(&error).unwrap().clone()
    };
    assert_eq!(code(reader(600_001)).code(), Some(ErrorCode::PastEnd));
    played.queue_faults(&[Fault::SkipInRead(1)]);
    assert!(matches!(code(reader(0)), Error::WrongPosition { .. }));
    let unknown = StreamReader::new(played.addresses(), "t", options());
    assert_eq!(code(unknown).code(), Some(ErrorCode::Unknown));

    // The bytes are trimmed while they are read: cut after two parts.
    played.queue_faults(&[Fault::CutBeforeFrame(4)]);
    let mut trimmed = reader(0);
    let got = trimmed.fill_buf().unwrap().len();
    trimmed.consume(got);
    played.trim("s", 599_999);
    assert_eq!(code(trimmed).code(), Some(ErrorCode::Trimmed));
    let mut rest = reader(599_999);
    let mut last = Vec::new();
    rest.read_to_end(&mut last).unwrap();
    assert_eq!(last, data[599_999..]);

    // Another stream has its name.
    played.put_stream("s", &data, false);
    played.queue_faults(&[Fault::CutBeforeFrame(4)]);
    let mut replaced = reader(0);
    let got = replaced.fill_buf().unwrap().len();
    replaced.consume(got);
    played.put_stream("s", &data, false);
    assert_eq!(code(replaced), Error::StreamReplaced);
}

#[test]
fn streams_are_looked_at_trimmed_and_removed_at_whatever_node_can() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
    for name in &names {
        played.put_stream(name, b"abc", false);
    }
    let mut streams = Streams::new(played.addresses(), options());
    // The list continues after the last name received.
    played.queue_faults(&[
        Fault::CutBeforeFrame(5),
        Fault::RefuseFirst(ErrorCode::NoQuorum),
        Fault::CutBeforeFrame(9),
    ]);
    let list = streams.list().unwrap();
    assert!(list.iter().map(|info| &info.name).eq(&names));
    played.queue_faults(&[Fault::RefuseFirst(ErrorCode::NoQuorum)]);
    let info = streams.stat("s03").unwrap();
    assert_eq!(
        (info.start, info.durable_end, info.is_finished, info.writer_node),
        (0, 3, false, None)
    );
    played.queue_faults(&[Fault::CutBeforeFrame(1)]);
    assert_eq!(streams.trim("s03", 2), Ok(2));
    assert_eq!(streams.stat("s03").unwrap().start, 2);
    assert_eq!(streams.trim("s03", 4).unwrap_err().code(), Some(ErrorCode::PastEnd));
    let keep = Retention { bytes: Some(1), age_max_ms: None };
    assert_eq!(streams.set_retention("s03", keep), Ok(2));
    assert_eq!(streams.stat("s03").unwrap().retention, keep);
    assert_eq!(streams.stat("s04").unwrap().retention, Retention::default());
    assert_eq!(streams.set_retention("none", keep).unwrap_err().code(), Some(ErrorCode::Unknown));
    // The response is lost, but the stream is removed.
    played.queue_faults(&[Fault::CutBeforeFrame(1)]);
    assert_eq!(streams.remove("s03"), Ok(()));
    assert_eq!(streams.remove("s03").unwrap_err().code(), Some(ErrorCode::Unknown));
    assert_eq!(streams.stat("s03").unwrap_err().code(), Some(ErrorCode::Unknown));
    let long = "x".repeat(256);
    assert_eq!(streams.stat(&long).unwrap_err().code(), Some(ErrorCode::Name));
}
