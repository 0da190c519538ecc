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
    Code, End, Error, How, Keep, Options, StreamReader, StreamWriter, Streams,
};
use quorate_core::dice::Dice;
use quorate_testbed::played::{Fault, SimulatedCluster};

/// Upper bound on the duration of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// Options to leave a silent node quickly and give up slowly.
fn options() -> Options {
    Options {
        stall: Duration::from_millis(300),
        attempt: Duration::from_millis(300),
        open: PATIENCE,
        patience: PATIENCE,
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
    StreamWriter::open(played.addresses(), "s", How::Create, options)
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
    played.play(faults);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(data).unwrap();
    assert_eq!(finish(writer), Ok(data.len() as u64), "{faults:?}");
    assert_eq!(played.stream("s"), Some((data.to_vec(), true)), "{faults:?}");
    played
}

#[test]
fn what_is_written_is_there_once_it_is_finished() {
    for count in [0, 1, 262_144, 262_145, 1_000_000] {
        let played = check(1, &[], &bytes(count));
        assert_eq!(played.met(), [0]);
    }
}

/// Losing any response (welcome, opening, acknowledgement, close) loses and repeats nothing.
#[test]
fn a_lost_answer_loses_and_repeats_nothing() {
    let data = bytes(3000);
    for at in 0..4 {
        check(1, &[Fault::CutOut(at)], &data);
        check(3, &[Fault::CutOut(at), Fault::CutOut(at), Fault::Mute(at)], &data);
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
                Fault::CutIn(near),
                Fault::CutIn(far),
                Fault::CutIn(far),
                Fault::CutOut(near % 8),
                Fault::End(far),
                Fault::End(near),
                Fault::Refuse(Code::Busy),
                Fault::Refuse(Code::Uncertain),
                Fault::Refuse(Code::Unavailable),
            ])
        };
        let faults: Vec<Fault> = (0..run % 13).map(|_| fault()).collect();
        played.play(&faults);
        let opened = StreamWriter::open(played.addresses(), &name, How::Create, options());
        let mut writer = opened.unwrap();
        let mut rest = &data[..];
        while !rest.is_empty() {
            let count = dice.index(60_000).min(rest.len());
            writer.write_all(&rest[..count]).unwrap();
            rest = &rest[count..];
        }
        assert_eq!(writer.finish(), Ok(data.len() as u64), "{faults:?}");
        let (stream, finished) = played.stream(&name).unwrap();
        assert!(stream == data && finished, "{faults:?}");

        // The reader meets the remaining faults.
        let cuts: Vec<Fault> = (0..dice.index(6)).map(|_| Fault::CutOut(dice.index(20))).collect();
        played.play(&cuts);
        let mut read = Vec::new();
        let mut reader = StreamReader::new(played.addresses(), &name, options());
        reader.read_to_end(&mut read).unwrap();
        assert!(read == data, "{faults:?} {cuts:?}");
        played.sound();
    }
}

/// A writer leaves a node that accepts bytes but acknowledges none on an open connection.
#[test]
fn a_silent_node_is_left() {
    let data = bytes(5000);
    let played = check(2, &[Fault::Mute(2)], &data);
    assert_eq!(played.met()[..2], [0, 1]);
    // The node also owes the response to a close after every byte is acknowledged.
    let played = check(2, &[Fault::Mute(2)], &[]);
    assert_eq!(played.met()[..2], [0, 1]);
}

#[test]
fn a_writer_whose_piece_was_ended_comes_back_at_once() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.play(&[Fault::End(500)]);
    let patient = Options { stall: 2 * PATIENCE, ..options() };
    let mut writer = create(&played, patient).unwrap();
    writer.write_all(&bytes(1000)).unwrap();
    assert_eq!(finish(writer), Ok(1000));
    assert_eq!(played.stream("s"), Some((bytes(1000), true)));
}

#[test]
fn a_cut_while_nothing_is_written_is_mended_without_the_caller() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.hold(3);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abcdef").unwrap();
    let watch = writer.watch();
    assert!(played.wait_for("s", 6, PATIENCE));
    // The other node gets all undecided bytes without any action of the caller.
    played.set_down(0, true);
    while watch.progress().reconnects == 0 {
        thread::yield_now();
    }
    played.hold(u64::MAX);
    writer.flush().unwrap();
    assert_eq!(writer.durable_position(), 6);
    assert_eq!(watch.progress().address, played.addresses()[1]);
    assert_eq!(played.stream("s"), Some((b"abcdef".to_vec(), false)));
}

#[test]
fn a_full_buffer_holds_the_caller_up_and_drops_nothing() {
    const BUFFER: u64 = 100_000;
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.hold(7);
    let patient =
        Options { buffer: usize::try_from(BUFFER).unwrap(), stall: PATIENCE, ..options() };
    let mut writer = create(&played, patient).unwrap();
    let watch = writer.watch();
    let data = bytes(300_000);
    let all = data.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&all).unwrap();
        writer.finish()
    });
    for held in [7, 150_000, 199_999] {
        played.hold(held);
        assert!(played.wait_for("s", held + BUFFER, PATIENCE));
        // The node has the buffered bytes, and gets more only after a decision.
        let progress = watch.progress();
        assert_eq!((progress.durable, progress.written), (held, held + BUFFER));
        assert_eq!(played.heard("s"), held + BUFFER);
    }
    played.hold(u64::MAX);
    assert_eq!(writing.join().unwrap(), Ok(300_000));
    assert_eq!(played.stream("s"), Some((data, true)));
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
        assert_eq!(played.stream("s").unwrap().0, &bytes(70_000)[..end]);
    }
}

#[test]
fn a_fenced_writer_never_writes_again() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.play(&[Fault::Fence(500)]);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(&bytes(1000)).unwrap();
    let error = writer.flush().unwrap_err();
    let error = Error::of(&error).unwrap().clone();
    assert_eq!(error.code(), Some(Code::Fenced));
    // The writer does not reopen the name, and repeats the error.
    let again = writer.write(b"x").unwrap_err();
    assert_eq!(Error::of(&again), Some(&error));
    let durable = writer.durable_position();
    assert_eq!(writer.finish(), Err(error));
    let (stream, finished) = played.stream("s").unwrap();
    assert_eq!((stream.len() as u64 >= durable, finished), (true, false));
    assert!(bytes(1000).starts_with(&stream));
}

/// A node's positions must agree with the bytes sent and acknowledged.
#[test]
fn positions_that_cannot_be_are_errors() {
    // Cut when all but the last byte is acknowledged.
    let lost = |by| {
        let played = SimulatedCluster::start(1, 1).unwrap();
        played.play(&[Fault::None, Fault::Misplace(by)]);
        let mut writer = create(&played, options()).unwrap();
        writer.write_all(b"abcd").unwrap();
        writer.flush().unwrap();
        played.set_down(0, true);
        played.set_down(0, false);
        writer.write_all(b"e").unwrap();
        writer.finish()
    };
    let error = Error::Lost { acknowledged: 4, position: 3 };
    assert_eq!(lost(-1), Err(error));
    // One byte more than was ever sent, which may include the fifth.
    assert!(matches!(lost(2), Err(Error::Ahead { position: 6, .. })));
    assert!(matches!(check_first(Fault::Misplace(1)), Err(Error::Ahead { sent: 0, position: 1 })));
    assert!(matches!(
        check_first(Fault::Exaggerate(1)),
        Err(Error::Ahead { sent: 3, position: 4 })
    ));
}

/// A close at a position other than the end of the written bytes is an error, even if its response
/// was lost.
#[test]
fn a_stream_that_was_closed_elsewhere_is_an_error() {
    let short = check_first(Fault::Shorten(1));
    // May have been reported earlier.
    assert!(
        matches!(
            short,
            Err(Error::Short { written: 3, position: 2 }
                | Error::Lost { acknowledged: 3, position: 2 })
        ),
        "{short:?}"
    );
    for by in [-1, 0, 1] {
        let played = SimulatedCluster::start(1, 1).unwrap();
        played.put("s", b"abc", false);
        played.play(&[Fault::CutOut(2), Fault::Misplace(by)]);
        let opened = StreamWriter::open(played.addresses(), "s", How::Append, options());
        let expected = match by {
            -1 => Err(Error::Lost { acknowledged: 3, position: 2 }),
            0 => Ok(3),
            _ => Err(Error::Ahead { sent: 3, position: 4 }),
        };
        assert_eq!(opened.unwrap().finish(), expected);
        assert_eq!(played.stream("s"), Some((b"abc".to_vec(), true)));
    }
}

fn check_first(fault: Fault) -> Result<u64, Error> {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.play(&[fault]);
    let mut writer = create(&played, options())?;
    writer.write_all(b"abc").unwrap();
    match writer.flush() {
        Ok(()) => writer.finish(),
        Err(error) => Err(Error::of(&error).unwrap().clone()),
    }
}

#[test]
fn a_writer_goes_to_the_leader_if_it_may_choose() {
    let played = SimulatedCluster::start(3, 1).unwrap();
    played.lead(2);
    let writer = create(&played, options()).unwrap();
    assert_eq!(writer.watch().progress().address, played.addresses()[2]);
    assert_eq!(writer.finish(), Ok(0));
    // A writer with a single address stays there.
    let alone = &played.addresses()[..1];
    let writer = StreamWriter::open(alone, "t", How::Create, options()).unwrap();
    assert_eq!(writer.watch().progress().address, alone[0]);
    // An unreachable leader does not prevent writing.
    played.set_down(2, true);
    let writer = StreamWriter::open(played.addresses(), "u", How::Create, options()).unwrap();
    assert_eq!(writer.watch().progress().address, played.addresses()[0]);
    // Nor does one that cannot serve: the next attempt avoids it.
    played.set_down(2, false);
    played.play(&[Fault::None, Fault::Refuse(Code::Unavailable)]);
    let writer = StreamWriter::open(played.addresses(), "v", How::Create, options()).unwrap();
    assert_eq!(writer.watch().progress().address, played.addresses()[1]);
}

#[test]
fn appending_goes_on_at_the_end() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abc").unwrap();
    assert_eq!(writer.leave(), Ok(3));
    let open = |how| StreamWriter::open(played.addresses(), "s", how, options());
    let mut writer = open(How::Append).unwrap();
    assert_eq!((writer.first_position(), writer.position()), (3, 3));
    writer.write_all(b"de").unwrap();
    assert_eq!(open(How::Append).unwrap_err().code(), Some(Code::InUse));
    let mut other = open(How::Takeover).unwrap();
    other.write_all(b"fg").unwrap();
    let end = other.finish().unwrap();
    // Bytes of the first writer may have been decided earlier.
    let (stream, finished) = played.stream("s").unwrap();
    assert_eq!((stream.len() as u64, finished), (end, true));
    assert!(stream.starts_with(b"abc") && stream.ends_with(b"fg"), "{stream:?}");
    for how in [How::Append, How::Takeover] {
        assert_eq!(open(how).unwrap_err().code(), Some(Code::Finished));
    }
    assert_eq!(open(How::Create).unwrap_err().code(), Some(Code::Exists));
    assert!(writer.finish().is_err());
}

/// The response to a close is lost, and another writer opens the stream before the client learns of
/// the close.
#[test]
fn a_stream_that_was_left_may_be_others_before_that_is_known() {
    let played = SimulatedCluster::start(1, 1).unwrap();
    played.play(&[Fault::CutOut(3), Fault::Refuse(Code::Fenced)]);
    let mut writer = create(&played, options()).unwrap();
    writer.write_all(b"abc").unwrap();
    writer.flush().unwrap();
    assert_eq!(writer.leave(), Ok(3));
}

#[test]
fn nobody_there_is_an_error_at_once_and_later_when_patience_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = [listener.local_addr().unwrap().to_string()];
    drop(listener);
    let opened = StreamWriter::open(&closed, "s", How::Create, options());
    assert!(matches!(opened, Err(Error::Unreachable(_))));
    let listed = Streams::new(&closed, options()).list();
    assert!(matches!(listed, Err(Error::Unreachable(_))));

    let played = SimulatedCluster::start(2, 1).unwrap();
    let hasty = Options { patience: Duration::from_millis(30), ..options() };
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
    played.put("s", &data, true);
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
    let end = End { position: 600_000, finished: true };
    assert_eq!(reader.end(), Some(end));
    assert!(reader.seek(SeekFrom::Current(-600_001)).is_err());

    let mut part = Vec::new();
    let reader = StreamReader::new(played.addresses(), "s", options());
    let mut reader = reader.from(10).to(300_010);
    reader.read_to_end(&mut part).unwrap();
    assert_eq!(part, data[10..300_010]);
}

#[test]
fn a_follower_goes_on_until_the_stream_is_closed_whatever_happens_to_its_nodes() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    played.put("s", b"", false);
    let quick = Options { silence: Duration::from_millis(20), ..options() };
    played.play(&[Fault::Mute(4), Fault::CutOut(3), Fault::CutOut(5)]);
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
    assert!(reader.end().unwrap().finished);
}

#[test]
fn a_reader_skips_nothing() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let data = bytes(600_000);
    played.put("s", &data, false);
    let reader = |from| StreamReader::new(played.addresses(), "s", options()).from(from);
    let mut all = Vec::new();
    let mut code = |mut reader: StreamReader| {
        let error = reader.read_to_end(&mut all).unwrap_err();
        Error::of(&error).unwrap().clone()
    };
    assert_eq!(code(reader(600_001)).code(), Some(Code::BehindEnd));
    played.play(&[Fault::Skip(1)]);
    assert!(matches!(code(reader(0)), Error::Skipped { .. }));
    let unknown = StreamReader::new(played.addresses(), "t", options());
    assert_eq!(code(unknown).code(), Some(Code::Unknown));

    // The bytes are trimmed while they are read: cut after two parts.
    played.play(&[Fault::CutOut(4)]);
    let mut trimmed = reader(0);
    let got = trimmed.fill_buf().unwrap().len();
    trimmed.consume(got);
    played.trim("s", 599_999);
    assert_eq!(code(trimmed).code(), Some(Code::Trimmed));
    let mut rest = reader(599_999);
    let mut last = Vec::new();
    rest.read_to_end(&mut last).unwrap();
    assert_eq!(last, data[599_999..]);

    // Another stream has its name.
    played.put("s", &data, false);
    played.play(&[Fault::CutOut(4)]);
    let mut replaced = reader(0);
    let got = replaced.fill_buf().unwrap().len();
    replaced.consume(got);
    played.put("s", &data, false);
    assert_eq!(code(replaced), Error::Replaced);
}

#[test]
fn streams_are_looked_at_trimmed_and_removed_at_whatever_node_can() {
    let played = SimulatedCluster::start(2, 1).unwrap();
    let names: Vec<String> = (0..20).map(|number| format!("s{number:02}")).collect();
    for name in &names {
        played.put(name, b"abc", false);
    }
    let mut streams = Streams::new(played.addresses(), options());
    // The list continues after the last name received.
    played.play(&[Fault::CutOut(5), Fault::Refuse(Code::NoQuorum), Fault::CutOut(9)]);
    let list = streams.list().unwrap();
    assert!(list.iter().map(|info| &info.name).eq(&names));
    played.play(&[Fault::Refuse(Code::NoQuorum)]);
    let info = streams.stat("s03").unwrap();
    assert_eq!((info.start, info.end, info.finished, info.writer), (0, 3, false, None));
    played.play(&[Fault::CutOut(1)]);
    assert_eq!(streams.trim("s03", 2), Ok(2));
    assert_eq!(streams.stat("s03").unwrap().start, 2);
    assert_eq!(streams.trim("s03", 4).unwrap_err().code(), Some(Code::BehindEnd));
    let keep = Keep { bytes: Some(1), age_ms: None };
    assert_eq!(streams.retain("s03", keep), Ok(2));
    assert_eq!(streams.stat("s03").unwrap().keep, keep);
    assert_eq!(streams.stat("s04").unwrap().keep, Keep::default());
    assert_eq!(streams.retain("none", keep).unwrap_err().code(), Some(Code::Unknown));
    // The response is lost, but the stream is removed.
    played.play(&[Fault::CutOut(1)]);
    assert_eq!(streams.remove("s03"), Ok(()));
    assert_eq!(streams.remove("s03").unwrap_err().code(), Some(Code::Unknown));
    assert_eq!(streams.stat("s03").unwrap_err().code(), Some(Code::Unknown));
    let long = "x".repeat(256);
    assert_eq!(streams.stat(&long).unwrap_err().code(), Some(Code::Name));
}
