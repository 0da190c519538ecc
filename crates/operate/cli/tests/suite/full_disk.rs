//! A node on a full file system waits, reports the reason, loses nothing, and continues without
//! help.
//!
//! The file system is a small one in memory, in a separate mount namespace. Without namespaces, the
//! tests are skipped with a message.

use std::{
    fs::{self, File, Permissions},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    NodeProcess, START_TIMEOUT, Signal, http, program, quorate, signal, single, wait_end, wait_for,
};
use quorate_client::{
    Client, Options, Reply, StreamReader, StreamWriter,
    stream::{self, OpenMode},
};
use quorate_testbed::{
    nodes::NodeCluster,
    process,
    resp::RespConnection,
    stream_bytes::{bytes, first_difference},
    writers::Writers,
};
use rustix::fs::{FallocateFlags, fallocate};

/// Size of a value, which cannot be compressed.
const VALUE: usize = 200_000;

/// Small file system that exists as long as a process uses it.
struct Disk {
    folder: tempfile::TempDir,
    holder: Child,
}

impl Disk {
    /// Creates the file system. Prints a message and returns `None` if that is impossible.
    fn make(mib: usize) -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("quorate-test-").tempdir().unwrap();
        let inside = folder.path().join("disk");
        fs::create_dir(&inside).unwrap();
        // Also use a user namespace if this user may not mount.
        let own_user = !rustix::process::geteuid().is_root();
        let flags = if own_user { "-Urm" } else { "-m" };
        let script = format!("mount -t tmpfs -o size={mib}m tmpfs \"$0\" && echo up && exec cat");
        let holder = Command::new("unshare")
            .args([flags, "sh", "-c", &script])
            .arg(&inside)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let up = holder.and_then(|mut holder| {
            let mut line = String::new();
            BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line)?;
            Ok((holder, line == "up\n"))
        });
        let Ok((holder, true)) = up else {
            let why = "a file system in a mount namespace of its own cannot be made";
            eprintln!("skipped: {why}");
            let all = std::env::var("QUORATE_NO_SKIPS").is_ok_and(|value| value == "true");
            assert!(!all, "{why}");
            return None;
        };
        let disk = Self { folder, holder };
        let user = if own_user { "-U --preserve-credentials" } else { "" };
        let text = format!(
            "#!/bin/sh\nexec nsenter {user} -m -t {} -- {} \"$@\"\n",
            disk.holder.id(),
            program().display()
        );
        let program = disk.program();
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        Some(disk)
    }

    /// Returns a script that runs the binary inside the mount namespace.
    fn program(&self) -> PathBuf {
        self.folder.path().join("quorate")
    }

    fn start(&self, flags: &[&str]) -> NodeProcess {
        let data = self.folder.path().join("disk").join("node");
        let flags = [&["--log-ready", "0", "--client-timeout-ms", "1000"], flags].concat();
        let mut spec = single(&data, &flags);
        spec.program = self.program();
        spec.log_path = self.folder.path().join("node.log");
        // The node must return to the address that stream writers know.
        let at = spec.flags.iter().position(|flag| flag == "--stream");
        spec.flags[at.unwrap() + 1] = format!("127.0.0.1:{}", process::free_port().unwrap());
        let mut node = NodeProcess::spawn(spec).unwrap();
        node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
        node
    }

    /// Returns a path on the file system as this process sees it.
    fn path(&self, name: &str) -> PathBuf {
        let inside = self.folder.path().join("disk").join(name);
        let inside = inside.strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{}/root", self.holder.id())).join(inside)
    }

    /// Fills all free space: in one step as far as possible, then block by block.
    fn fill(&self) {
        let mut file =
            File::options().create(true).append(true).open(self.path("balloon")).unwrap();
        for bytes in [64 << 20, 1 << 20] {
            let grow = || {
                let end = file.metadata().unwrap().len();
                fallocate(&file, FallocateFlags::empty(), end, bytes)
            };
            while grow().is_ok() {}
        }
        while file.write_all(&[0; 1 << 12]).is_ok() {}
    }

    fn empty(&self) {
        fs::remove_file(self.path("balloon")).unwrap();
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("node.log")).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Writes numbered values and records which ones were acknowledged.
struct Writer {
    client: Client,
    number: u64,
    acknowledged: Vec<u64>,
}

impl Writer {
    fn new(node: &NodeProcess) -> Self {
        Self { client: client(node), number: 0, acknowledged: Vec::new() }
    }

    /// Writes the next value. Returns whether it was acknowledged.
    fn write(&mut self) -> bool {
        self.number += 1;
        let key = self.number.to_string();
        let reply = self.client.read(&[b"SET", key.as_bytes(), &value(self.number)]);
        let taken = reply == Ok(Reply::Simple("OK".into()));
        if taken {
            self.acknowledged.push(self.number);
        }
        taken
    }

    /// Sends a command that adds no data. Returns whether it was executed. Many of them fill the
    /// log.
    fn remove(&mut self) -> bool {
        let keys: Vec<_> = (0..12).map(|key| format!("{key:016000}")).collect();
        let words: Vec<_> = ["DEL"].into_iter().chain(keys.iter().map(|key| &**key)).collect();
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.client.read(&words) == Ok(Reply::Integer(0))
    }

    fn check(&mut self, node: &NodeProcess) {
        self.client = client(node);
        for number in &self.acknowledged {
            let found = self.client.read(&[b"GET", number.to_string().as_bytes()]);
            assert!(found == Ok(Reply::Bulk(value(*number))), "{number} is lost");
        }
    }
}

fn client(node: &NodeProcess) -> Client {
    let options = Options {
        command_timeout: Duration::from_secs(3),
        attempt_timeout: Duration::from_secs(2),
        ..Options::default()
    };
    Client::new(std::slice::from_ref(&node.ready.client), options)
}

/// Returns bytes that no other number has.
fn value(number: u64) -> Vec<u8> {
    bytes(0, number * VALUE as u64, VALUE)
}

fn ready(node: &NodeProcess) -> Option<String> {
    let (code, body) = http(&node.ready.admin, "/ready")?;
    Some(if code == 200 { String::new() } else { body })
}

fn wait_until_ready(node: &NodeProcess) {
    wait_for("a node that serves", || ready(node).filter(String::is_empty));
}

/// A node with a full disk keeps running. It once panicked, and again at each start while the disk
/// was full.
#[test]
fn a_full_disk_stops_a_node_until_there_is_room() {
    let Some(disk) = Disk::make(700) else { return };
    let mut node = disk.start(&[]);
    wait_until_ready(&node);
    let mut writer = Writer::new(&node);
    for _ in 0..300 {
        assert!(writer.write());
    }
    disk.fill();
    wait_for("a write that is refused", || (!writer.write()).then_some(()));
    assert!(writer.remove());
    wait_for("a log without room", || (!writer.remove()).then_some(()));
    let why = wait_for("the reason", || ready(&node).filter(|why| !why.is_empty()));
    assert!(why.contains("no room"), "{why}");
    // After a kill and a restart it waits as before.
    for _ in 0..2 {
        node.kill().unwrap();
        disk.fill();
        node.restart().unwrap();
        // At first it reports that it is starting.
        wait_for("the reason", || ready(&node).filter(|why| why.contains("room")));
        assert!(node.child.try_wait().unwrap().is_none());
    }
    disk.empty();
    wait_until_ready(&node);
    writer.check(&node);
    assert!(writer.write());
    signal(&node, Signal::TERM);
    assert!(wait_end(&mut node).success());
    assert!(!disk.log().contains("panicked"));
}

/// A node whose data has filled its disk refuses data, but not its removal, and clients can read.
#[test]
fn a_node_that_filled_its_disk_refuses_data_and_lets_it_be_removed() {
    let Some(disk) = Disk::make(1200) else { return };
    let node = disk.start(&["--log-segment", "8388608", "--log-max", "268435456"]);
    wait_until_ready(&node);
    let mut writer = Writer::new(&node);
    wait_for("a full disk", || (0..50).any(|_| !writer.write()).then_some(()));
    let refused = writer.client.read(&[b"SET", b"key", b"value"]).unwrap_err().to_string();
    assert!(refused.contains("DISKFULL not executed: the disk of node 1 is full"), "{refused}");
    let (_, status) = http(&node.ready.admin, "/status").unwrap();
    assert!(status.contains("the disk of node 1 is full: data is refused"), "{status}");
    writer.check(&node);
    assert_eq!(writer.client.read(&[b"DEL", b"1"]), Ok(Reply::Integer(1)));
    assert_eq!(writer.client.read(&[b"FLUSHALL"]), Ok(Reply::Simple("OK".into())));
}

/// The disk may become full at any moment, even while the storage engine is writing.
#[test]
fn a_disk_that_fills_up_again_and_again_loses_nothing() {
    let Some(disk) = Disk::make(1500) else { return };
    let mut node = disk.start(&[]);
    wait_until_ready(&node);
    let mut writer = Writer::new(&node);
    for round in 0..6 {
        for _ in 0..150 {
            writer.write();
        }
        disk.fill();
        let mut refused = 0;
        while refused < 2 && ready(&node).is_some_and(|why| why.is_empty()) {
            refused += u32::from(!writer.write());
        }
        if round == 3 {
            node.kill().unwrap();
            node.restart().unwrap();
            writer.client = client(&node);
        }
        disk.empty();
        wait_until_ready(&node);
    }
    writer.check(&node);
    assert!(writer.acknowledged.len() > 600);
    node.kill().unwrap();
    node.restart().unwrap();
    wait_until_ready(&node);
    writer.check(&node);
    signal(&node, Signal::TERM);
    assert!(wait_end(&mut node).success());
    assert!(!disk.log().contains("panicked"));
}

/// One node of three has a full disk. The others continue without it, and it reports the reason. In
/// the end, everything acknowledged is on its disk.
#[test]
fn a_disk_that_fills_up_during_a_snapshot_delays_one_node() {
    let Some(disk) = Disk::make(1200) else { return };
    let flags = "--store memory --log-ready 0 --log-segment 8388608 --transfer-limit 33554432";
    let flags: Vec<&str> = flags.split(' ').collect();
    let mut nodes = NodeCluster::with_empty_folder("quorate-test-").unwrap();
    let mut specs = process::loopback_cluster(&program(), nodes.data_folder(), 3, &flags).unwrap();
    specs[2].program = disk.program();
    specs[2].data_folder = disk.folder.path().join("disk").join("node");
    specs[2].log_path = disk.folder.path().join("node.log");
    nodes.start(specs).unwrap();
    nodes.wait_until_all_ready().unwrap();
    // More than fits in the first file of a snapshot.
    let mut link = RespConnection::connect(&nodes.client_addresses()[0]).unwrap();
    let large = "x".repeat(1 << 20);
    for number in 0..150 {
        let reply = link.run_command(&["SET", &format!("large:{number}"), &large]);
        assert!(reply.is_ok_and(|reply| reply.text().is_some()), "{number}");
    }

    let writers = Writers::start(&nodes.client_addresses());
    let admin = nodes.admin_addresses().swap_remove(2);
    let asked = admin.clone();
    let taking = thread::spawn(move || quorate(&["snapshot", "--admin", &asked]));
    wait_for("a snapshot in progress", || {
        let taking = nodes.status(3)?.snapshot_taking?;
        (taking.bytes > 0).then_some(())
    });
    wait_for("its end", || {
        disk.fill();
        taking.is_finished().then_some(())
    });
    let failed = taking.join().unwrap();
    let said = String::from_utf8_lossy(&failed.stderr);
    assert_eq!(failed.status.code(), Some(1), "{said}");
    assert!(said.contains("room") || said.contains("space"), "{said}");
    assert!(disk.log().contains("snapshot: "), "its log says so");
    // The node's log becomes full as well when it needs another segment.
    wait_for("the reason", || {
        disk.fill();
        let (code, body) = http(&admin, "/ready")?;
        (code != 200 && body.contains("room")).then_some(())
    });
    let before = writers.acknowledged_count();
    wait_for("writes without it", || (writers.acknowledged_count() > before + 50).then_some(()));
    nodes.check_alive().unwrap();

    disk.empty();
    nodes.wait_until_all_ready().unwrap();
    let taken = quorate(&["snapshot", "--admin", &admin]);
    assert!(taken.status.success(), "{taken:?}");
    let written = writers.end().unwrap();
    nodes.wait_until_equal().unwrap();
    for address in nodes.client_addresses() {
        assert!(written.compare(&address).unwrap() > 50);
    }
    // The data is on the disk of that node as well.
    nodes.kill(&[3]).unwrap();
    nodes.restart(&[3]).unwrap();
    nodes.wait_until_all_serve().unwrap();
    nodes.wait_until_equal().unwrap();
    written.compare(&nodes.client_addresses()[2]).unwrap();
    assert!(!disk.log().contains("panicked"));
}

/// The leader of three nodes has a full disk. The other nodes have space and form a quorum, so
/// another node leads and writes continue. The store is on the same disk as the log, as it is for
/// users.
#[test]
fn a_leader_on_a_full_disk_hands_over() {
    for (store, durability) in [("lsm", "durable"), ("memory", "durable"), ("memory", "volatile")] {
        let Some(disk) = Disk::make(420) else { return };
        let flags = format!(
            "--store {store} --durability {durability} --log-ready 0 --log-segment 8388608"
        );
        let flags: Vec<&str> = flags.split(' ').collect();
        let mut nodes = NodeCluster::with_empty_folder("quorate-test-").unwrap();
        let mut specs =
            process::loopback_cluster(&program(), nodes.data_folder(), 3, &flags).unwrap();
        specs[0].program = disk.program();
        specs[0].data_folder = disk.folder.path().join("disk").join("node");
        specs[0].log_path = disk.folder.path().join("node.log");
        nodes.start(specs).unwrap();
        nodes.wait_until_all_ready().unwrap();
        let admin = nodes.admin_addresses().swap_remove(0);
        wait_for("node 1 as leader", || {
            quorate(&["transfer", "--to", "1", "--admin", &admin]);
            (nodes.agreed_leader().ok()? == 1).then_some(())
        });

        let writers = Writers::start(&nodes.client_addresses()[1..]);
        let elsewhere = nodes.client_addresses().swap_remove(1);
        let enough = Arc::new(AtomicBool::new(false));
        let is_enough = Arc::clone(&enough);
        let writing = thread::spawn(move || longest_gap(&elsewhere, &is_enough));
        wait_for("another leader", || {
            disk.fill();
            disk.log().contains("handed leadership to node").then_some(())
        });
        // The pause is longer than any election and any client timeout.
        thread::sleep(Duration::from_secs(5));
        assert_ne!(nodes.agreed_leader().unwrap(), 1);
        let (code, body) = http(&admin, "/ready").unwrap();
        assert!(code != 200 && body.contains("room"), "{body}");
        let status = quorate(&["status", "--admin", &admin]);
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("node 1: ") && status.contains("room"), "{status}");
        enough.store(true, Ordering::Relaxed);
        let (longest, written) = writing.join().unwrap();
        eprintln!("{store}, {durability}: {longest:?} at most without a write, {written} written");
        // On an otherwise idle machine, the gap is a tenth of that.
        assert!(longest < Duration::from_secs(3), "{longest:?} without a write");

        disk.empty();
        nodes.wait_until_all_ready().unwrap();
        let written = writers.end().unwrap();
        nodes.wait_until_equal().unwrap();
        for address in nodes.client_addresses() {
            assert!(written.compare(&address).unwrap() > 50);
        }
        assert!(!disk.log().contains("panicked"));
    }
}

/// Writes large values through a node until stopped. Returns the longest time between two accepted
/// writes, and their number.
fn longest_gap(address: &str, enough: &AtomicBool) -> (Duration, u32) {
    let (mut last, mut longest, mut number) = (Instant::now(), Duration::ZERO, 0);
    let options = Options {
        command_timeout: Duration::from_secs(1),
        attempt_timeout: Duration::from_secs(1),
        ..Options::default()
    };
    let mut client = Client::new(&[address.to_owned()], options);
    while !enough.load(Ordering::Relaxed) {
        let key = format!("large:{}", number % 20);
        let reply = client.read(&[b"SET", key.as_bytes(), &value(u64::from(number))]);
        if reply == Ok(Reply::Simple("OK".into())) {
            longest = longest.max(last.elapsed());
            (last, number) = (Instant::now(), number + 1);
        }
        // This is a rate of ten megabytes per second.
        thread::sleep(Duration::from_millis(20));
    }
    (longest.max(last.elapsed()), number)
}

/// Stream writers observe only a delay, even if the node is killed during it.
#[test]
fn a_stream_waits_for_room_and_goes_on() {
    let Some(disk) = Disk::make(1500) else { return };
    let mut node = disk.start(&[]);
    wait_until_ready(&node);
    let address = [node.ready.stream.clone()];
    let options = stream::Options {
        buffer_bytes_max: 4 << 20,
        give_up_timeout: 2 * START_TIMEOUT,
        ..stream::Options::default()
    };
    let mut writer = StreamWriter::open(&address, "s", OpenMode::Create, options.clone()).unwrap();
    let watch = writer.progress_handle();
    let durable = || watch.progress().durable_position;
    let enough = Arc::new(AtomicBool::new(false));
    let is_enough = Arc::clone(&enough);
    let writing = thread::spawn(move || {
        while !is_enough.load(Ordering::Relaxed) {
            let part = bytes(0, writer.position(), 64 << 10);
            writer.write_all(&part).unwrap();
        }
        writer.finish().unwrap()
    });
    wait_for("a stream", || (durable() > 16 << 20).then_some(()));
    for is_killed in [false, true] {
        wait_for("the notice", || {
            disk.fill();
            says_that_it_waits(&node)
        });
        if is_killed {
            node.kill().unwrap();
            disk.fill();
            node.restart().unwrap();
            wait_for("the notice, or the reason", || {
                let why = ready(&node).filter(|why| why.contains("room"));
                why.map(drop).or_else(|| says_that_it_waits(&node))
            });
        }
        assert!(node.child.try_wait().unwrap().is_none());
        wait_for("the cause, where readiness for streams is asked for", || {
            let (code, why) = http(&node.ready.admin, "/ready?streams")?;
            (code == 503 && why.contains("room")).then_some(())
        });
        let before = durable();
        disk.empty();
        wait_for("a stream that goes on", || {
            assert!(!writing.is_finished());
            (durable() > before + (16 << 20)).then_some(())
        });
        wait_for("readiness for streams", || {
            (http(&node.ready.admin, "/ready?streams")?.0 == 200).then_some(())
        });
    }
    enough.store(true, Ordering::Relaxed);
    let end = writing.join().unwrap();
    let mut read = Vec::new();
    let mut reader = StreamReader::new(&address, "s", options);
    reader.read_to_end(&mut read).unwrap();
    assert_eq!((read.len() as u64, first_difference(0, 0, &read)), (end, None));
    assert!(!disk.log().contains("panicked"));
}

/// Returns whether the node serves and reports that its disk is full.
fn says_that_it_waits(node: &NodeProcess) -> Option<()> {
    let (_, status) = http(&node.ready.admin, "/status")?;
    status.contains("the disk of node 1 is full").then_some(())
}
