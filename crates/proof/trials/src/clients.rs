//! Unmodified Redis clients against a fresh cluster of three nodes.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{Command, Stdio},
};

use quorate_testbed::{interrupt, nodes::NodeCluster};

use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    nodes,
    shell::{self, Failed, is_installed, read_output, report_skip, workspace_root},
};

/// A client under test: its name, and a function that gets the ports of all nodes.
type ClientTrial = (&'static str, fn(&[u16]) -> Result<(), Failed>);

const TRIALS: [ClientTrial; 8] = [
    ("redis-cli", try_redis_cli),
    ("redis-benchmark", try_redis_benchmark),
    ("redis-py", try_redis_py),
    ("redis-py's locks", try_redis_py_locks),
    ("node-redis", try_node_redis),
    ("node-redlock", try_node_redlock),
    ("go-redis", try_go_redis),
    ("Redisson", try_redisson),
];

/// Runs `cargo xtask clients`.
pub(crate) fn run() -> Result<(), Failed> {
    shell::build_programs()?;
    interrupt::clean_up_on_signals()?;
    let nodes = nodes::start_serving(3, &[])?;
    let ports = nodes.client_ports();
    for (name, trial) in TRIALS {
        trial(&ports)?;
        println!("done: {name}");
    }
    drop(nodes);
    run_finding_nodes()?;
    println!("done: clients in Sentinel and cluster mode");
    let scripts = [python_script("redis-py's scripts", "redis_py_scripts.py", "redis")?];
    run_scripts_across_kill(scripts)?;
    println!("done: scripts");
    Ok(())
}

/// Runs `cargo xtask clients queues`: job queues and a rate limiter, whose steps are Lua.
pub(crate) fn run_queues() -> Result<(), Failed> {
    shell::build_programs()?;
    interrupt::clean_up_on_signals()?;
    run_scripts_across_kill([
        node_script("rate-limiter-flexible", "rate_limiter.mjs", &["rate-limiter-flexible"])?,
        node_script("Bull", "bull.mjs", &["bull", "ioredis"])?,
        node_script("BullMQ", "bullmq.mjs", &["bullmq", "ioredis"])?,
        python_script("Dramatiq", "dramatiq_actors.py", "dramatiq")?,
        python_script("Huey", "huey_tasks.py", "huey")?,
        python_script("RQ", "rq_jobs.py", "rq")?,
    ])
}

/// Clients that find the nodes by Sentinel or in cluster mode.
fn run_finding_nodes() -> Result<(), Failed> {
    let mut nodes = nodes::start_serving(3, &["--cluster-mode", "emulated"])?;
    let clients = [
        python_script("redis-py by Sentinel", "redis_py_sentinel.py", "redis")?,
        node_script("ioredis by Sentinel", "ioredis_sentinel.mjs", &["ioredis"])?,
        python_script("redis-py in cluster mode", "redis_py_cluster.py", "redis")?,
        node_script("ioredis in cluster mode", "ioredis_cluster.mjs", &["ioredis"])?,
        java_program("Jedis by Sentinel", "jedis", "Sentinels")?,
    ];
    clients.into_iter().flatten().try_for_each(|client| run_across_kill(client, &mut nodes))
}

/// Runs programs whose commands are Lua scripts, and kills the leader under each.
fn run_scripts_across_kill(
    programs: impl IntoIterator<Item = Option<Command>>,
) -> Result<(), Failed> {
    let mut nodes = nodes::start_serving(3, &[])?;
    let address = format!("127.0.0.1:{}", nodes.client_ports()[0]);
    nodes::wait_for("the feature level of scripts", || {
        let mut ask = Command::new(nodes::program_path());
        let said = read_output(ask.args(["kv", "--client", &address, "EVAL", "return 1", "0"]));
        said.is_ok_and(|said| said.contains('1')).then_some(())
    })?;
    programs.into_iter().flatten().try_for_each(|program| run_across_kill(program, &mut nodes))
}

/// Runs a client, and kills the leader once the client reports that it is ready.
fn run_across_kill(client: Command, nodes: &mut NodeCluster) -> Result<(), Failed> {
    let ports = nodes.client_ports();
    // Without a timeout, a client that waits for a lost reply would block the task.
    let mut bounded = Command::new("timeout");
    bounded.args(["--kill-after=5", "180"]).arg(client.get_program()).args(client.get_args());
    let mut client = bounded;
    client.args(ports.iter().map(u16::to_string)).stdout(Stdio::piped());
    let mut client = client.spawn()?;
    let mut said = BufReader::new(client.stdout.take().expect("piped above")).lines();
    let is_ready = said.next().transpose()?.as_deref() == Some("ready");
    if is_ready {
        let leader = nodes.leader()?;
        nodes.kill(&[leader])?;
        for line in said {
            println!("  {}", line?);
        }
        nodes.restart(&[leader])?;
    }
    if client.wait()?.success() && is_ready {
        return Ok(());
    }
    Err(Failed("a client failed over a change of leader; it says why above".to_owned()))
}

fn try_redis_cli(ports: &[u16]) -> Result<(), Failed> {
    if !is_installed("redis-cli") {
        return report_skip("redis-cli", "not installed; ./setup does it (Debian: redis-tools)");
    }
    let ask = |port: u16, words: &[&str]| {
        let text =
            read_output(Command::new("redis-cli").args(["-p", &port.to_string()]).args(words))?;
        Ok::<_, Failed>(text.trim_end().to_owned())
    };
    for (index, port) in ports.iter().enumerate() {
        let expected = index.to_string();
        expect_equal("SET", &ask(*port, &["set", "cli", &expected])?, "OK")?;
        for other in ports {
            expect_equal("GET", &ask(*other, &["get", "cli"])?, &expected)?;
            expect_equal("GET in RESP3", &ask(*other, &["-3", "get", "cli"])?, &expected)?;
        }
    }
    try_pipe(ports[0])
}

/// Tests `redis-cli --pipe`, which sends many commands from its standard input.
fn try_pipe(port: u16) -> Result<(), Failed> {
    let mut child = Command::new("redis-cli")
        .args(["-p", &port.to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin =
        child.stdin.take().ok_or_else(|| Failed("redis-cli has no input".to_owned()))?;
    for number in 0..10_000 {
        writeln!(stdin, "SET pipe:{number} {number}\r")?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("errors: 0, replies: 10000") {
        Ok(())
    } else {
        Err(Failed(format!("redis-cli --pipe: {text}")))
    }
}

fn expect_equal(what: &str, found: &str, expected: &str) -> Result<(), Failed> {
    if found == expected {
        Ok(())
    } else {
        Err(Failed(format!("{what}: {found:?} instead of {expected:?}")))
    }
}

fn try_redis_benchmark(ports: &[u16]) -> Result<(), Failed> {
    if !is_installed("redis-benchmark") {
        return report_skip(
            "redis-benchmark",
            "not installed; ./setup does it (Debian: redis-tools)",
        );
    }
    for port in ports {
        let port = port.to_string();
        let base = ["-p", &port, "-n", "20000", "-q"];
        for more in [
            &["-t", "set,get,incr,mset", "-c", "50"][..],
            &["-t", "set,get", "-c", "50", "-P", "16"],
        ] {
            let text = read_output(Command::new("redis-benchmark").args(base).args(more))?;
            if text.contains("rror") {
                return Err(Failed(format!("redis-benchmark: {text}")));
            }
            let lines = text.replace('\r', "\n");
            let results = lines.lines().filter(|line| line.contains("requests per second"));
            results.for_each(|line| println!("  {line}"));
        }
    }
    Ok(())
}

fn try_redis_py(ports: &[u16]) -> Result<(), Failed> {
    run_python("redis-py", "redis_py.py", ports)
}

fn try_redis_py_locks(ports: &[u16]) -> Result<(), Failed> {
    run_python("redis-py's locks", "redis_py_locks.py", ports)
}

fn run_python(what: &str, file: &str, ports: &[u16]) -> Result<(), Failed> {
    python_script(what, file, "redis")?
        .map_or(Ok(()), |mut command| run_script(&mut command, ports))
}

/// Returns the command that runs one of our scripts; `None` if it is skipped.
fn python_script(what: &str, file: &str, package: &str) -> Result<Option<Command>, Failed> {
    let python = clients_folder().join("venv/bin/python");
    let is_there =
        || read_output(Command::new(&python).args(["-c", &format!("import {package}")])).is_ok();
    if !python.is_file() || !is_there() {
        report_skip(what, &format!("not installed; ./setup does it (pip: {package})"))?;
        return Ok(None);
    }
    let mut command = Command::new(python);
    command.arg(workspace_root().join("crates/proof/trials/clients").join(file));
    Ok(Some(command))
}

fn try_node_redis(ports: &[u16]) -> Result<(), Failed> {
    run_node("node-redis", "node_redis.mjs", &["redis"], ports)
}

fn try_node_redlock(ports: &[u16]) -> Result<(), Failed> {
    run_node("node-redlock", "redlock.mjs", &["redlock", "ioredis"], ports)
}

fn run_node(what: &str, file: &str, packages: &[&str], ports: &[u16]) -> Result<(), Failed> {
    node_script(what, file, packages)?.map_or(Ok(()), |mut command| run_script(&mut command, ports))
}

/// Returns the command that runs one of our scripts; `None` if it is skipped.
fn node_script(what: &str, file: &str, packages: &[&str]) -> Result<Option<Command>, Failed> {
    let modules = clients_folder().join("node");
    let is_there = |package: &&str| modules.join("node_modules").join(package).is_dir();
    if !is_installed("node") || !packages.iter().all(is_there) {
        let names = packages.join(", ");
        report_skip(what, &format!("not installed; ./setup does it (npm: {names})"))?;
        return Ok(None);
    }
    // Node looks up modules in the script's folder.
    let copy = modules.join(file);
    fs::copy(workspace_root().join("crates/proof/trials/clients").join(file), &copy)?;
    let mut command = Command::new("node");
    command.arg(copy);
    Ok(Some(command))
}

fn try_redisson(ports: &[u16]) -> Result<(), Failed> {
    java_program("Redisson", "redisson", "Locks")?
        .map_or(Ok(()), |mut command| run_script(&mut command, ports))
}

/// Compiles one of our Java programs and returns the command that runs it; `None` if it is skipped.
fn java_program(what: &str, library: &str, class: &str) -> Result<Option<Command>, Failed> {
    let folder = clients_folder().join(library);
    if !is_installed("java") || !is_installed("javac") || !folder.join("lib").is_dir() {
        let how = format!("no JDK, or not fetched; ./setup does it with Maven ({library})");
        report_skip(what, &how)?;
        return Ok(None);
    }
    let libraries = format!("{}/*", folder.join("lib").display());
    let classes = folder.join("classes");
    let sources = workspace_root().join("crates/proof/trials/clients").join(library);
    let mut compile = Command::new("javac");
    compile.args(["-cp", &libraries, "-d"]).arg(&classes);
    read_output(compile.arg(sources.join(class).with_extension("java")))?;
    let mut command = Command::new("java");
    command.args(["-cp", &format!("{libraries}:{}", classes.display()), class]);
    Ok(Some(command))
}

fn try_go_redis(ports: &[u16]) -> Result<(), Failed> {
    let Some(go) = GoToolchain::find() else {
        return report_skip("go-redis", NO_GO_MESSAGE);
    };
    let program = shell::build_folder().join("tools/goclient");
    let here = || go.go_command_in(&workspace_root().join("tools/goclient"));
    if let Err(Failed(why)) = read_output(here().args(["mod", "download"])) {
        return report_skip("go-redis", &format!("its source cannot be fetched: {why}"));
    }
    read_output(here().args(["build", "-o"]).arg(&program).arg("."))?;
    run_script(&mut Command::new(program), ports)
}

fn run_script(command: &mut Command, ports: &[u16]) -> Result<(), Failed> {
    let text = read_output(command.args(ports.iter().map(u16::to_string)))?;
    text.lines().for_each(|line| println!("  {line}"));
    Ok(())
}

/// Returns the folder where ./setup stores files that do not belong in a system folder.
fn clients_folder() -> PathBuf {
    workspace_root().join("target/clients")
}
