//! Automation: `cargo xtask NAME`.
//!
//! Trials and benchmarks on real processes are passed on to the program `quorate-trials`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line")]

mod area;
mod ci;
mod deny;
mod fuzz;
mod lua;
mod mutants;
mod nightly;
mod offload;
mod package;
mod papers;
mod release;
mod spec;
mod steps;
mod tidy;
mod tla;
mod trials;
mod zoo;

use std::process::ExitCode;

use quorate_shell as shell;
use shell::{Failed, run_cargo};

/// Program that runs a task.
enum TaskRunner {
    InProcess(fn(&[&str]) -> Result<(), Failed>),
    TrialsProgram,
}

use TaskRunner::{InProcess, TrialsProgram};

/// Tasks with their help texts. A help text begins with the task's name.
const TASKS: &[(TaskRunner, &str)] = &[
    (
        InProcess(|words| without_words(words, ci::run)),
        "ci               what a change must pass; edits nothing",
    ),
    (
        InProcess(|words| without_words(words, nightly::run)),
        "nightly          what takes too long for that: long random runs, all mutants, all faults",
    ),
    (
        InProcess(|words| without_words(words, || run_cargo(&["fmt", "--all"]))),
        "fix              formats the code; the only task that edits",
    ),
    (
        InProcess(run_sim),
        "sim [SEED]       simulates clusters until a rule is broken, or one seed",
    ),
    (
        InProcess(run_hunt),
        "hunt [COUNT] [FROM]
                   simulates that many seeds, 20 000 steps each; prints their fingerprint",
    ),
    (
        InProcess(run_model),
        "model [--deep]   explores the protocol core",
    ),
    (
        InProcess(mutants::run),
        "mutants [--check] [NAME…]
                   plants faults, one at a time; each must be found, or with --check compile",
    ),
    (
        TrialsProgram,
        "cluster [ROUNDS] [--seed N] [--only FAULT[+FAULT]]
                   kills, pauses and cuts off real processes; judges what clients saw
  cluster short    one round of two settings, busy processors, and a killed leader: what CI runs
  cluster snapshots
                   kills and pauses around snapshots, trims and loads
  cluster queues [KILLS] [--seed N]
                   lists as queues while nodes are killed: each element once, in order
  cluster frames [ROUNDS] [--seed N] [--device NAME]
                   clients that speak frames to devices, while nodes are killed and links are
                   down: each batch executes once, in the slot reported to its client
  cluster replace  replaces machines while clients write, with a process killed at each step
  cluster streams [ROUNDS] [--seed N]
                   byte streams under kills, pauses, cuts and a replacement; 100 rounds,
                   1 takes a minute
  cluster streams kills [KILLS] [--seed N]
                   the leader, the follower and the auxiliary are killed 100 times each
                   next to byte streams
  cluster pressure busy processors and disks next to the nodes must not change the leader
  cluster failover time from a kill of the leader to the next acknowledged write",
    ),
    (
        TrialsProgram,
        "bench [cluster|core|log|kv|pipeline] [--quick] [--json]
                   what commands, steps and commits cost; kv in turns with Redis
  bench recycled   a log that writes over its segments, and a bare program that does
  bench device [--quick]
                   devices in the kernel and in user space decide, in turns; needs root
  bench snapshots [one|behind|lsm] [--quick]
                   snapshots during writes, restarts, a follower that missed all of it",
    ),
    (
        TrialsProgram,
        "compare [--only NAME,…] [--duration 5s] [--repeat 5] [--quick] [--list] [--out PATH]
                   Quorate and other systems, in turns; one report
  compare multicast [--quick] [--receivers N,…] [--speed 100mbit,1gbit] [--size BYTES]
                   one sender and many receivers on emulated links; needs root",
    ),
    (
        TrialsProgram,
        "gate [--bless REASON]
                   counts that must not grow, against their baseline",
    ),
    (
        InProcess(fuzz::run_all),
        "fuzz [TARGET] [--seconds N]
                   hostile frames, requests, segments",
    ),
    (
        InProcess(lua::run),
        "lua [--write]    builds the machine that executes scripts from its sources, by clang and Debian's
                   source package; the committed one must be equal, or is replaced",
    ),
    (
        InProcess(offload::run),
        "offload conformance [--require NAME,…] [--target NAME=COMMAND] [--count N] [--seed N]
                   devices against the reference programs, byte for byte
  offload groups [N]
                   mixed groups of devices under faults, judged by what is chosen
  offload rtl FOLDER [--room N] [--cells N] [--bus 64|512]
                   builds the simulated cores for `quorate start --device rtl:FOLDER`;
                   values of at most 128 bytes and 4096 cells by default
  offload area [--clock] [CORE…]
                   what the cores take of an FPGA, by Yosys; a clock on another one
  offload kernels [N]
                   programs for the kernel on Debian's 6.1 and 6.12, in virtual machines",
    ),
    (
        InProcess(|words| without_words(words, deny::run)),
        "deny             licences, advisories and sources of dependencies",
    ),
    (
        TrialsProgram,
        "disks [ROUNDS] [--seed N] [--only KIND[+FAULT]] [--json]
                   a node's disk flips bits, loses, tears, reorders and misdirects writes, for each
                   kind of file; what was acknowledged is compared on all nodes; needs root",
    ),
    (
        TrialsProgram,
        "clients [queues] unmodified Redis clients against a fresh cluster, or programs of Lua",
    ),
    (
        TrialsProgram,
        "client-suites [UNIT…]
                   tests of Redis' client libraries against fresh clusters, by suite and file",
    ),
    (
        TrialsProgram,
        "redis-suite [--source FOLDER] [--store lsm|memory] [UNIT…]
                   Redis' own tests against a fresh cluster, by unit",
    ),
    (
        TrialsProgram,
        "etcd             etcdctl and the Go client of etcd against a fresh cluster
  etcd kubernetes  the storage tests of Kubernetes' API server, each against its own node
  etcd tests [UNIT…]
                   etcd's own tests, with our nodes as members, by store and package",
    ),
    (
        InProcess(package::run),
        "package [deb|rpm|oci|all] [--to DIR] [--binary PATH] [--check]
                   packages, a container image and debug symbols of the binary, by default
                   of profile symbols, in target/packages; --check reads them back
  package check    the same for the debug build; deletes the packages",
    ),
    (
        InProcess(papers::run),
        "papers NAME|--list [--quick] [--json FILE]
                   repeats an experiment from a paper, and compares the published figures with ours
  papers check     lints that program and runs its tests, which `cargo test` does not build",
    ),
    (
        InProcess(release::run),
        "release VERSION [--dry-run]
                   cuts a release: version, changelog, commit, packages read back, tag; pushes nothing",
    ),
    (
        TrialsProgram,
        "page [PROGRAM]   the page at the admin address, and that of `quorate demo --devices`, in a headless
                   Chromium: layout, live figures, every button; pictures in target/page",
    ),
    (
        TrialsProgram,
        "tuner [--point-ms N] [NAME…]
                   batch and window that nodes choose, against the best of a grid
  tuner overload|step|default [--rounds N] [NAME…]
                   four times the load that nodes can serve; steps of the load; the
                   fixed default against the nodes' own choice",
    ),
    (
        InProcess(|words| without_words(words, spec::run)),
        "spec             rules that are neither cited by code nor listed as missing, unknown
                   rule ids; rules without a test or a mutant",
    ),
    (
        InProcess(|words| without_words(words, tidy::run)),
        "tidy             facts about the tree that are wrong",
    ),
    (
        InProcess(tla::run),
        "tla [--large] [MODULE…]
                   the specification in TLA+, checked by TLC: its modules within small or large
                   bounds, and without each of their rules, which TLC must find
  tla --trace FILE…
                   whether it allows what nodes did, as recorded by `--example steps`
  tla --seeds COUNT [FROM]
                   the same for that many seeds of the simulator",
    ),
    (
        TrialsProgram,
        "soak [--hours N | --minutes N] [--seed N] [--from REV]
                   runs clusters under load and faults, for 24 hours by default: keys, byte
                   streams, etcd; reports progress in target/soak/index.html",
    ),
    (
        TrialsProgram,
        "upgrade --from REV [--seed N]
                   nodes of that revision and of today in one cluster, exchanged under load and
                   kills, up and back: nothing is lost; builds the revision in target/upgrade",
    ),
    (
        TrialsProgram,
        "users            tests that touch the system, as an ordinary user with the usual limits, and
                   next to a mounted BPF file system; builds nothing anew after `cargo test`",
    ),
    (
        InProcess(zoo::run),
        "zoo [--json]     bugs of other systems, and our checks that find them: checks docs/zoo.toml and writes
                   docs/zoo.md, or prints it for programs
  zoo run [--record] [NAME…]
                   plants the bugs again, one at a time, or those with these names, and says what
                   found each, and how long it took; --record saves this in docs/zoo.found.toml",
    ),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(why)) => {
            println!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[&str]) -> Result<(), Failed> {
    if words.iter().any(|word| ["help", "--help", "-h"].contains(word)) {
        print_help();
        return Ok(());
    }
    let is_named = |help: &str| help.split_whitespace().next() == words.first().copied();
    match TASKS.iter().find(|(_, help)| is_named(help)) {
        Some((InProcess(run), _)) => run(&words[1..]),
        Some((TrialsProgram, _)) => trials::run(words),
        None => {
            print_help();
            Err(unknown_task(words))
        }
    }
}

fn print_help() {
    println!("cargo xtask NAME");
    TASKS.iter().for_each(|(_, help)| println!("  {help}"));
}

fn unknown_task(words: &[&str]) -> Failed {
    Failed(format!("unknown: {}", words.join(" ")))
}

/// Runs a task that takes no arguments.
fn without_words(words: &[&str], run: fn() -> Result<(), Failed>) -> Result<(), Failed> {
    if words.is_empty() { run() } else { Err(unknown_task(words)) }
}

/// Runs the simulator. Without a seed, runs until it finds a fault.
fn run_sim(words: &[&str]) -> Result<(), Failed> {
    let seed: &[&str] = match words {
        [] => &[],
        [seed] => &["--seed", seed],
        _ => return Err(Failed("sim [SEED]".to_owned())),
    };
    shell::build_programs()?;
    let program = shell::program_path("quorate");
    loop {
        let mut words = vec!["sim"];
        words.extend(seed);
        shell::run(&program, &words)?;
        if !seed.is_empty() {
            return Ok(());
        }
    }
}

fn run_hunt(words: &[&str]) -> Result<(), Failed> {
    let (count, from) = match words {
        [] => ("200", "1"),
        [count] => (*count, "1"),
        [count, from] => (*count, *from),
        _ => return Err(Failed("hunt [COUNT] [FROM]".to_owned())),
    };
    run_cargo(&["run", "--release", "--quiet", "--example", "hunt", "--", from, count])
}

fn run_model(rest: &[&str]) -> Result<(), Failed> {
    let effort: &[&str] = match rest {
        [] => &["run", "all", "--runs", "2000"],
        ["--deep"] => &["run", "all", "--runs", "1000000"],
        rest => rest,
    };
    let mut words = vec!["run", "--release", "--quiet", "--bin", "model", "--"];
    words.extend(effort);
    run_cargo(&words)
}
