//! C programs, compiled with `cc` against the header and run as separate processes.

mod build;
mod cluster;
mod libpaxos;
mod program;

use std::{fs, time::Duration};

use build::Built;
use cluster::{Cluster, number};
use program::Program;

#[test]
fn the_first_program_runs() {
    let Some(built) = Built::of("first") else {
        return;
    };
    runs_twice(&built);
}

/// A statically linked program runs without the shared library.
#[test]
fn the_first_program_runs_with_the_library_in_it() {
    let Some(built) = Built::with_library("first") else {
        return;
    };
    let bytes = fs::read(built.program()).expect("a program");
    let needs = |name: &[u8]| bytes.windows(name.len()).any(|part| part == name);
    assert!(!needs(b"libquorate.so"));
    runs_twice(&built);
}

fn runs_twice(built: &Built) {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path().to_str().expect("a name");
    let output = built.run(&[folder]);
    let mut lines: Vec<&str> = output.lines().collect();
    lines.sort_unstable();
    // The documentation shows the same lines in another order.
    let page = include_str!("../../../../../../docs/libquorate.md");
    let printed = page.split("```\n").find(|block| block.starts_with("delivered 1: one\n"));
    let mut expected: Vec<&str> = printed.expect("a block of output").lines().collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
    // In a second run, the three earlier values are delivered first.
    let output = built.run(&[folder]);
    assert!(output.contains("delivered 1: "), "{output}");
}

/// The headers can be included from C++.
#[test]
fn the_headers_are_taken_by_cxx() {
    let Some(_) = Built::of("first") else { return };
    assert!(build::is_cxx("quorate.h"));
    if Built::of_libpaxos("paxos_roles").is_some() {
        for header in ["evpaxos.h", "paxos.h", "config.h", "quorate_paxos.h"] {
            assert!(build::is_cxx(header), "{header}");
        }
    }
}

/// Three replicas of a table: every node accepts writes and serves reads. Two nodes continue
/// without the third, which is killed and restarted.
#[test]
fn a_table_in_c_survives_the_death_of_a_replica() {
    let Some(built) = Built::of("kv") else { return };
    let mut cluster = Cluster::start(&built, 3);
    let slot = number(&cluster.ask(0, "set colour red"));
    assert_eq!(cluster.ask(1, "get colour"), "value red");
    cluster.kill(2);
    for key in 0..50 {
        let node = key % 2;
        number(&cluster.ask(node, &format!("set key{key} {key}")));
    }
    assert_eq!(cluster.ask(0, "count"), "count 51");
    cluster.restart(2);
    assert_eq!(cluster.ask(2, "get key49"), "value 49");
    assert_eq!(cluster.ask(2, "count"), "count 51");
    // The table is rebuilt from the retained values.
    assert_eq!(cluster.ask(2, "again"), "ok");
    assert_eq!(cluster.ask(2, "get colour"), "value red");
    // All replicas save their tables, so that the values may be trimmed. A killed replica resumes
    // from its saved table.
    let saved: Vec<u64> = (0..3).map(|node| number(&cluster.ask(node, "save"))).collect();
    assert!(saved.iter().all(|at| *at > slot + 50), "{saved:?}");
    let least = saved.iter().min().expect("three");
    assert_eq!(number(&cluster.ask(1, &format!("trim {least}"))), *least);
    number(&cluster.ask(1, "set colour blue"));
    cluster.kill(0);
    assert_eq!(cluster.ask(2, "get colour"), "value blue");
    cluster.restart(0);
    assert_eq!(cluster.ask(0, "get colour"), "value blue");
    assert_eq!(cluster.ask(0, "count"), "count 51");
    assert!(cluster.ask(0, "status").contains(&format!("\"first\":{least}")));
    // Durable values survive a crash of all nodes at once.
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.restart_later(node));
    (0..3).for_each(|node| cluster.wait_up(node));
    assert_eq!(cluster.ask(1, "get colour"), "value blue");
    assert_eq!(cluster.ask(1, "count"), "count 51");
    cluster.quit();
}

/// A replica that has lost its saved table gets an error, because the values that it needs were
/// trimmed.
#[test]
fn a_replica_that_is_behind_what_is_held_is_told() {
    let Some(built) = Built::of("kv") else { return };
    let mut cluster = Cluster::start(&built, 1);
    number(&cluster.ask(0, "set a 1"));
    number(&cluster.ask(0, "set b 2"));
    assert_eq!(number(&cluster.ask(0, "trim 2")), 2);
    let told = cluster.ask(0, "again");
    assert!(told.starts_with("error QUORATE_TRIMMED") && told.contains("slot 1 "), "{told}");
    cluster.quit();
}

/// An attached program receives each value once, even if the nodes to which it attaches are killed
/// one after another.
#[test]
fn an_attached_program_loses_and_repeats_nothing_when_nodes_die() {
    let (Some(kv), Some(load)) = (Built::of("kv"), Built::of("load")) else {
        return;
    };
    let mut cluster = Cluster::listening(&kv, 3);
    let addresses = cluster.listen_addresses();
    let other = addresses.iter().rev().cloned().collect::<Vec<_>>().join(",");
    let addresses = addresses.join(",");
    let mut programs = [
        Program::start(&load, &[&addresses, "20000", "a"]),
        Program::start(&load, &[&other, "20000", "b"]),
    ];
    programs.iter_mut().for_each(|program| assert_eq!(program.line(), "begun"));
    for node in 0..3 {
        cluster.kill(node);
        cluster.restart(node);
    }
    for program in &mut programs {
        let line = program.line();
        assert!(line.starts_with("acknowledged 20000 unknown 0 delivered 20000 "), "{line}");
        assert!(program.wait(Duration::from_secs(60)).success());
    }
    cluster.quit();
}

/// Misuse by a C program causes errors instead of crashes. `misuse.c` reports wrong reactions of
/// the library.
#[test]
fn misuse_is_an_error() {
    let Some(built) = Built::of("misuse") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let output = built.run(&[folder.path().to_str().expect("a name")]);
    assert_eq!(output, "all was refused\n");
}
