//! Runs all kinds of devices in turn: starts processes, pins them to CPUs, and collects their
//! results.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use aya::sys::{Stats, enable_stats};
use quorate_device::xdp::Hook;
use quorate_testbed::namespace;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{
    Fallible,
    client::VOTER,
    group::{CLIENT, HOSTS, Kind},
    network::{self, Network},
    switches::Switches,
    table::{self, Cell, Key, Sample},
};

/// Environment variable that is set in the process inside the namespaces.
const INSIDE: &str = "QUORATE_DEVICES_INSIDE";
const ROOMS: [usize; 2] = [64, 1000];
const OUTSTANDING: [usize; 2] = [1, 32];

pub(crate) const USAGE: &str = "devices run [--quick] [--only=KIND,…]";

pub(crate) fn run(flags: &[&str]) -> Fallible<()> {
    let (mut quick, mut kinds) = (false, Kind::ALL.to_vec());
    for flag in flags {
        match flag.strip_prefix("--only=") {
            Some(words) => kinds = words.split(',').map(Kind::of).collect::<Fallible<_>>()?,
            None if *flag == "--quick" => quick = true,
            None => return Err(USAGE.into()),
        }
    }
    if !namespace::is_inside(INSIDE) {
        if let Some(why) = namespace::check_support("ip link add switch type bridge") {
            println!("skipped: {why}");
            return Ok(());
        }
        return Err(namespace::reenter(INSIDE).into());
    }
    namespace::mount_private()?;
    let mut bench = Bench {
        network: network::lay()?,
        cpus: cpus()?,
        milliseconds: if quick { 200 } else { 400 },
    };
    let rounds = if quick { 1 } else { 7 };
    let mut samples: BTreeMap<Key, Vec<Sample>> = BTreeMap::new();
    for round in 0..rounds {
        eprintln!("round {} of {rounds}", round + 1);
        for room in ROOMS {
            for kind in kinds.iter().copied() {
                for (key, sample) in bench.measure(kind, room)? {
                    samples.entry(key).or_default().push(sample);
                }
            }
        }
    }
    table::print(&samples);
    bench.programs()
}

struct Bench {
    network: Network,
    /// The client's processor, then another one.
    cpus: [CpuSet; 2],
    milliseconds: u32,
}

/// Returns the first two processors that this process may use, or the only one twice.
fn cpus() -> Fallible<[CpuSet; 2]> {
    let all = sched_getaffinity(None)?;
    let mut single = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).map(|cpu| {
        let mut one = CpuSet::new();
        one.set(cpu);
        one
    });
    let first = single.next().ok_or("no processor")?;
    Ok([first, single.next().unwrap_or(first)])
}

impl Bench {
    /// Measures with all hosts on the client's processor, and then on another one. Devices in the
    /// kernel always run where their frames arrive.
    fn measure(&mut self, kind: Kind, room: usize) -> Fallible<Vec<(Key, Sample)>> {
        let layouts: &[usize] = if kind.is_kernel() { &[1] } else { &[0, 1] };
        let mut samples = Vec::new();
        for layout in layouts {
            let hosts = self.start(kind, room, *layout, 1..=HOSTS)?;
            for outstanding in OUTSTANDING {
                let sample = self.client(kind, room, outstanding, &hosts)?;
                let key =
                    Key { cell: Cell { room, outstanding, kind: kind.word() }, layout: *layout };
                samples.push((key, sample));
            }
            for host in hosts {
                host.stop()?;
            }
        }
        Ok(samples)
    }

    fn start(
        &mut self,
        kind: Kind,
        room: usize,
        layout: usize,
        hosts: std::ops::RangeInclusive<u8>,
    ) -> Fallible<Vec<Server>> {
        self.network.set_passing(kind == Kind::Kernel(Hook::Native))?;
        self.network.set_client_in_all(kind == Kind::Packet)?;
        let mut servers = Vec::new();
        for host in hosts {
            let words = [kind.word().to_owned(), host.to_string(), room.to_string()];
            servers.push(Server::start(host, &words, &self.cpus[layout])?);
        }
        servers.iter_mut().try_for_each(Server::wait)?;
        Ok(servers)
    }

    fn client(
        &self,
        kind: Kind,
        room: usize,
        outstanding: usize,
        hosts: &[Server],
    ) -> Fallible<Sample> {
        let ids: Vec<u32> = hosts.iter().map(|host| host.child.id()).collect();
        let before = Switches::of(&ids);
        let words = [
            kind.word().to_owned(),
            room.to_string(),
            outstanding.to_string(),
            self.milliseconds.to_string(),
        ];
        let said = self.at_client("client", &words)?;
        let servers = Switches::of(&ids).since(before);
        let number = |name: &str| table::number(&said, name);
        let (decided, all) = (number("decided")?, number("all")?);
        if decided == 0.0 {
            return Err(format!("{}: nothing was decided: {said}", kind.word()).into());
        }
        if number("given_up")? > 0.0 {
            eprintln!("{}, {outstanding} outstanding: {said}", kind.word());
        }
        Ok(Sample {
            per_second: decided * 1e9 / number("ns")?,
            p50_us: number("p50")? / 1000.0,
            p99_us: number("p99")? / 1000.0,
            switches: number("wanted")? / decided + servers.wanted / all.max(1.0),
            forced: number("forced")? / decided + servers.forced / all.max(1.0),
        })
    }

    fn at_client(&self, task: &str, words: &[String]) -> Fallible<String> {
        sched_setaffinity(None, &self.cpus[0])?;
        let mut command = at(CLIENT)?;
        let output = command.arg(task).args(words).stderr(Stdio::inherit()).output()?;
        if !output.status.success() {
            return Err(format!("the client ends with {}", output.status).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Prints the kernel's measurements of its programs. Measuring has a cost, so it is separate
    /// from the latencies.
    fn programs(&mut self) -> Fallible<()> {
        let _counting = enable_stats(Stats::RunTime)?;
        println!(
            "\n| hook | value | runs per decision | eBPF per decision | eBPF per vote | a program that does nothing |"
        );
        println!("|---|--:|--:|--:|--:|--:|");
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_kernel()) {
            for room in ROOMS {
                let hosts = self.start(kind, room, 1, 1..=HOSTS)?;
                self.client(kind, room, 32, &hosts)?;
                let said = hosts.into_iter().map(Server::stop);
                let said: Vec<String> = said.collect::<Fallible<_>>()?;
                let sum = |name: &str| -> Fallible<f64> {
                    said.iter().map(|said| table::number(said, name)).sum()
                };
                let decisions = table::number(&said[0], "heard")?;
                let (runs, nanos) = (sum("runs")? / decisions, sum("run_ns")? / decisions);
                let mut voters = self.start(kind, room, 1, VOTER..=VOTER)?;
                self.at_client("votes", &[room.to_string()])?;
                let voter = voters.pop().ok_or("no voter")?.stop()?;
                let vote = table::number(&voter, "run_ns")? / table::number(&voter, "runs")?;
                let lost = sum("lost")?;
                let nothing = self.network.nothing()?;
                let nothing = nothing.map_or("–".to_owned(), |nanos| format!("{nanos:.0} ns"));
                println!(
                    "| {} | {room} B | {runs:.1} | {:.2} µs | {vote:.0} ns | {nothing} |",
                    kind.name(),
                    nanos / 1000.0
                );
                if lost > 0.0 {
                    println!("\n{lost} frames found no room in a tap.\n");
                }
            }
        }
        println!();
        let output = Command::new(env::current_exe()?).arg("programs").output()?;
        print!("{}", String::from_utf8(output.stdout)?);
        Ok(())
    }
}

fn at(machine: u8) -> Fallible<Command> {
    let mut command = namespace::namespace_command(machine.into());
    command.arg(env::current_exe()?);
    Ok(command)
}

struct Server {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(host: u8, words: &[String], cpu: &CpuSet) -> Fallible<Self> {
        // The child inherits the affinity.
        sched_setaffinity(None, cpu)?;
        let mut child = at(host)?
            .arg("serve")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        Ok(Self { stdin: child.stdin.take(), stdout: BufReader::new(stdout), child })
    }

    fn wait(&mut self) -> Fallible<()> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        match line.trim() {
            "ready" => Ok(()),
            _ => Err("a host does not start".into()),
        }
    }

    /// Ends the process and returns its output.
    fn stop(mut self) -> Fallible<String> {
        drop(self.stdin.take());
        let mut said = String::new();
        self.stdout.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        if status.success() { Ok(said) } else { Err(format!("a host ends with {status}").into()) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process has ended, or its result is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
