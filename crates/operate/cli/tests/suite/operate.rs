//! The pages of docs/operate are correct: the commands of their `sh` blocks are run in order in an
//! empty folder.
//!
//! Substitutions: each address `10.…:PORT` becomes a free loopback port, each `127.0.0.N` an unused
//! loopback address with unchanged ports, and [`SAMPLE_ID`] the cluster's id. `quorate start` keeps
//! running during the following commands, which wait until it serves. On pages with certificates
//! they wait until it listens, and the page itself says when to wait for more. Exported variables
//! apply to all later commands of the page. Installations that need their own machine are tested by
//! `cargo xtask package check` instead. Comments that begin with `<!-- test` contain more commands,
//! which a reader finds elsewhere on the page, and lines with the few other words that
//! [`World::event`] knows.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

use crate::common::{
    NodeProcess, NodeSpec, Signal, free_port, http, patient, program, signal, wait_for,
};
use quorate_client::{Client, Reply};
use quorate_testbed::page::{PageCommand, page_commands, to_shell};
use serde_json::Value as Json;
use tempfile::TempDir;

/// Cluster id used in all pages.
const SAMPLE_ID: &str = "794452eab31f9c12c68b63f40562eb29";
/// Number of keys that each `write` event writes.
const KEYS: usize = 20;

macro_rules! pages {
    ($($name:ident: $page:literal,)+) => {
        /// All pages whose commands are run.
        const PAGES: &[&str] = &[$($page),+];
        $(
            #[test]
            fn $name() {
                run($page);
            }
        )+
    };
}

pages! {
    a_cluster_grows_as_written: "grow.md",
    a_machine_is_replaced_as_written: "replace.md",
    an_auxiliary_is_had_as_written: "auxiliary.md",
    a_backup_is_restored_as_written: "backup.md",
    a_lost_majority_is_given_up_as_written: "lost-majority.md",
    members_are_changed_as_written: "members.md",
    snapshots_are_taken_as_written: "snapshots.md",
    streams_are_kept_as_written: "streams.md",
    devices_are_used_as_written: "devices.md",
    planes_are_used_as_written: "planes.md",
    the_first_hour_goes_as_written: "first-hour.md",
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/operate")
}

/// Every page is run unless it has no commands.
#[test]
fn every_page_with_commands_is_run() {
    let mut with_commands = BTreeSet::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = fs::read_to_string(folder().join(&name)).unwrap();
        if !page_commands(&page).is_empty() {
            with_commands.insert(name);
        }
    }
    let run: BTreeSet<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(with_commands, run);
}

#[test]
fn addresses_of_a_page_are_places_of_a_run() {
    let mut world = World::new();
    let told = world.told("x 10.0.0.1:7451,10.0.0.2:7451 2=10.0.0.1:7451 10.5 1.10.0.0:1");
    let words: Vec<&str> = told.split([' ', ',', '=']).collect();
    assert!(words[1].starts_with("127.0.0.1:"), "{told}");
    assert_eq!((words[1], words[3], words[5]), (words[4], "2", "10.5"));
    assert_ne!(words[1], words[2]);
    assert_eq!(words[6], "1.10.0.0:1");
    let told = world.told("--listen 127.0.0.2 2=127.0.0.2:7451,127.0.0.3:1 127.0.1.1");
    let own = |end| format!("{}{end}", own_network());
    let [second, third] = [own("2"), own("3")];
    let expected = format!("--listen {second} 2={second}:7451,{third}:1 127.0.1.1");
    assert_eq!(told, expected);
}

fn run(page: &str) {
    let text = fs::read_to_string(folder().join(page)).unwrap();
    let mut world = World::new();
    for PageCommand { line, text, .. } in page_commands(&text) {
        world.now_at = format!("docs/operate/{page}:{line}: {text}");
        world.step(&text);
    }
    // The nodes started last must serve as well.
    world.settle();
}

/// Node that was started, and the condition for running the next command.
struct Started {
    name: String,
    /// Log line that marks the end of joining. `None` for a node that does not join.
    joins: Option<&'static str>,
    /// Length of the node's log before this start.
    said_before: usize,
}

struct World {
    folder: TempDir,
    /// Addresses that replace the addresses of the page.
    places: BTreeMap<String, String>,
    /// Running nodes by the name of their folder.
    nodes: BTreeMap<String, NodeProcess>,
    /// Exported variables.
    variables: BTreeMap<String, String>,
    started: Vec<Started>,
    cluster: Option<String>,
    written: usize,
    /// Current command and its position in the page, for error messages.
    now_at: String,
}

impl World {
    fn new() -> Self {
        Self {
            folder: TempDir::new().unwrap(),
            places: BTreeMap::new(),
            nodes: BTreeMap::new(),
            variables: BTreeMap::new(),
            started: Vec::new(),
            cluster: None,
            written: 0,
            now_at: String::new(),
        }
    }

    /// Applies all substitutions to a text.
    fn told(&mut self, text: &str) -> String {
        let mut told = String::new();
        for word in text.split_inclusive([' ', ',', '=', '/']) {
            let address = word.trim_end_matches([' ', ',', '=', '/']);
            if address.starts_with("10.") && address.contains(':') {
                let places = self.places.entry(address.to_owned());
                told += places.or_insert_with(|| format!("127.0.0.1:{}", free_port()));
                told += &word[address.len()..];
            } else if let Some(end) = address.strip_prefix("127.0.0.") {
                told += &own_network();
                told += end;
                told += &word[address.len()..];
            } else {
                told += word;
            }
        }
        match &self.cluster {
            Some(cluster) => told.replace(SAMPLE_ID, cluster),
            None => told,
        }
    }

    fn step(&mut self, step: &str) {
        let told = self.told(step);
        let words: Vec<&str> = told.split_whitespace().collect();
        match words[..] {
            ["quorate", "start", "--data", name, ..] => {
                // Drop the words that run it in the background.
                let flags = words.split(|word| word.starts_with("2>")).next();
                self.start(name, &flags.unwrap_or_default()[4..]);
            }
            ["export", pair] => {
                let (name, value) = pair.split_once('=').unwrap();
                self.variables.insert(name.to_owned(), value.to_owned());
            }
            ["unset", name] => {
                self.variables.remove(name).unwrap();
            }
            ["sudo" | "sha256sum", ..] => {
                eprintln!("run by cargo xtask package check: {told}");
            }
            ["quorate" | "tar" | "printf" | "rm" | "run", ..] => {
                self.settle();
                self.command(&to_shell(&told));
            }
            ["nc", "-N", host, port, "<", input, ">", output] => {
                self.settle();
                let place = self.told(&format!("{host}:{port}"));
                self.nc(&place, input, output);
            }
            _ => {
                self.settle();
                self.event(&words);
            }
        }
    }

    fn start(&mut self, name: &str, flags: &[&str]) {
        let data = self.folder.path().join(name);
        let stderr = data.with_extension("log");
        let joins = !data.join("identity").exists() && flags.contains(&"--join");
        self.started.push(Started {
            name: name.to_owned(),
            joins: joins.then_some(match flags.contains(&"learner") {
                true => "is caught up: it learns",
                false => "now votes",
            }),
            said_before: fs::read(&stderr).map_or(0, |said| said.len()),
        });
        let spec = NodeSpec {
            program: program(),
            data_folder: data,
            flags: flags.iter().map(|flag| self.found(flag)).collect(),
            environment: self.variables.clone().into_iter().collect(),
            log_path: stderr,
            dies_with_parent: true,
        };
        let node = NodeProcess::spawn(spec).unwrap();
        self.nodes.insert(name.to_owned(), node);
    }

    /// Returns the path of a file or folder of the page for a flag.
    fn found(&self, flag: &str) -> String {
        let path = self.folder.path().join(flag);
        match path.exists() {
            true => path.display().to_string(),
            false => flag.to_owned(),
        }
    }

    /// Waits until all newly started nodes serve.
    fn settle(&mut self) {
        for Started { name, joins, said_before } in std::mem::take(&mut self.started) {
            let node = self.nodes.get_mut(&name).unwrap();
            node.wait_ready().unwrap_or_else(|error| panic!("{error}"));
            // Further requests would need a certificate.
            if node.spec.flags.iter().any(|flag| flag == "--tls") {
                continue;
            }
            if let Some(line) = joins {
                wait_for(line, || {
                    let said = fs::read(&node.spec.log_path).unwrap();
                    let said = String::from_utf8_lossy(&said[said_before..]);
                    said.contains(line).then_some(())
                });
            }
            wait_for(&format!("{name} to serve"), || {
                let status = status(node)?;
                let serves = match status["role"].as_str()? {
                    // An auxiliary serves no commands.
                    "auxiliary" => !status["leader"].is_null(),
                    _ => http(&node.ready.admin, "/ready")?.0 == 200,
                };
                serves.then_some(())
            });
            let cluster = status(node).unwrap()["cluster"].as_str().map(str::to_owned);
            self.cluster = self.cluster.take().or(cluster);
        }
    }

    /// Runs a command, which must succeed.
    fn command(&self, command: &str) {
        let program = program();
        let path = env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", program.parent().unwrap().display());
        let mut shell = Command::new("sh");
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("QUORATE_") {
                shell.env_remove(name);
            }
        }
        shell
            .args(["-ec", command])
            .env("PATH", path)
            .envs(&self.variables)
            .current_dir(&self.folder);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {output:?}");
    }

    /// Acts as `nc -N`: runs it, or replaces it if it is not installed.
    fn nc(&self, place: &str, input: &str, output: &str) {
        let (host, port) = place.rsplit_once(':').unwrap();
        if Command::new("nc").arg("-h").output().is_ok() {
            return self.command(&format!("nc -N {host} {port} < {input} > {output}"));
        }
        eprintln!("there is no nc: a socket does as it would");
        let mut socket = TcpStream::connect(place).unwrap();
        let bytes = fs::read(self.folder.path().join(input)).unwrap();
        socket.write_all(&bytes).unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut counts = Vec::new();
        socket.read_to_end(&mut counts).unwrap();
        fs::write(self.folder.path().join(output), counts).unwrap();
    }

    /// Applies an event to the cluster, or checks an expectation.
    fn event(&mut self, words: &[&str]) {
        match *words {
            ["kill", name] if !name.starts_with('$') => {
                self.nodes.remove(name).unwrap().kill().unwrap();
            }
            // `kill` and `stop` as typed in a shell.
            ["kill", "-9", ref names @ ..] => {
                for name in names {
                    self.event(&["kill", name.strip_prefix('$').unwrap()]);
                }
            }
            ["kill", name] => self.event(&["stop", name.strip_prefix('$').unwrap()]),
            // `kill` and `stop` have waited already.
            ["wait", ..] => {}
            ["stop", name] => {
                let mut node = self.nodes.remove(name).unwrap();
                signal(&node, Signal::TERM);
                assert!(node.wait_for_exit().unwrap().success());
            }
            ["write"] => self.write(),
            ["read"] => self.read(),
            ["voters", ref voters @ ..] => self.voters(voters),
            ["idle", node] => self.engaged(node, false),
            ["engaged", node] => self.engaged(node, true),
            _ => panic!("this means nothing"),
        }
    }

    fn client(&self) -> Client {
        let nodes = self.nodes.values();
        let addresses: Vec<String> = nodes.map(|node| node.ready.client.clone()).collect();
        Client::new(&addresses, patient())
    }

    fn write(&mut self) {
        let mut client = self.client();
        for _ in 0..KEYS {
            let (key, value) = pair(self.written);
            client.run(&[b"SET", key.as_bytes(), value.as_bytes()]).unwrap();
            self.written += 1;
        }
    }

    /// Checks that the cluster has everything that the page has written.
    fn read(&self) {
        assert!(self.written > 0, "there is nothing to read");
        let mut client = self.client();
        for number in 0..self.written {
            let (key, value) = pair(number);
            let found = client.read(&[b"GET", key.as_bytes()]).unwrap();
            assert_eq!(found, Reply::Bulk(value.into_bytes()), "{key}");
        }
    }

    /// Waits until every node reports exactly the given voters and no plan in progress.
    fn voters(&self, voters: &[&str]) {
        for node in self.nodes.values() {
            wait_for(&format!("voters {voters:?}"), || {
                let list: Json =
                    serde_json::from_str(&http(&node.ready.admin, "/members")?.1).unwrap();
                let nodes = list["nodes"].as_array()?.iter();
                let votes = nodes.filter(|node| node["weight"].as_u64() > Some(0));
                let votes: Vec<String> = votes.map(|node| node["node"].to_string()).collect();
                (votes == voters && list["plan"].is_null()).then_some(())
            });
        }
    }

    /// Waits until the leader sends proposals to an auxiliary, or no longer does.
    fn engaged(&self, auxiliary: &str, engaged: bool) {
        let auxiliary: u32 = auxiliary.parse().unwrap();
        wait_for("the auxiliary", || {
            let mut views = self.nodes.values().filter_map(status);
            let leader = views.find(|view| view["role"] == "leader")?;
            let mut members = leader["members"].as_array()?.iter();
            let member = members.find(|member| member["node"] == auxiliary)?;
            (member["role"] == "auxiliary" && member["engaged"] == engaged).then_some(())
        });
    }
}

/// Prints the page and line of a failure, and the nodes' output.
impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("at {}", self.now_at);
            for (name, node) in &self.nodes {
                let said = fs::read_to_string(&node.spec.log_path).unwrap_or_default();
                eprintln!("--- {name}\n{said}");
            }
        }
    }
}

/// Returns a loopback address prefix that is unique to this process and at which no other process
/// listens.
fn own_network() -> String {
    let id = std::process::id();
    format!("127.{}.{}.", 1 + id / 256 % 255, id % 256)
}

fn pair(number: usize) -> (String, String) {
    (format!("key-{number}"), format!("value-{number}"))
}

fn status(node: &NodeProcess) -> Option<Json> {
    let (code, body) = http(&node.ready.admin, "/status")?;
    (code == 200).then(|| serde_json::from_str(&body).unwrap())
}
