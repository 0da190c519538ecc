//! FPGA cores, compiled to simulators by Verilator.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use crate::{
    Device, Event, Program,
    frames::DeviceSize,
    vectors::{SentFrame, read_sent_frames, write_event},
};

/// Tools that are needed to compile a core.
const REQUIRED_TOOLS: [&str; 3] = ["verilator", "make", "g++"];

/// Width of a core's bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusWidth {
    /// 64 bits. A UDP frame with a value of 32 bytes takes 17 words.
    Narrow,
    /// 512 bits. A UDP frame with a value of 32 bytes takes three words.
    Wide,
}

impl BusWidth {
    pub const ALL: [Self; 2] = [Self::Narrow, Self::Wide];

    pub const fn bits(self) -> usize {
        match self {
            Self::Narrow => 64,
            Self::Wide => 512,
        }
    }

    /// Returns the name of the target with this bus.
    pub fn target_name(self) -> String {
        format!("rtl-{}", self.bits())
    }

    /// Returns the module name of a program's core.
    pub fn module_name(self, program: Program) -> String {
        format!("{}{}", program.name(), self.bits())
    }

    /// Returns the source files of a program's core, in the order of their dependencies.
    pub fn source_files(self, program: Program) -> Vec<String> {
        let bits = self.bits();
        let names: &[&str] = match self {
            Self::Narrow => &["front", "leave"],
            Self::Wide => &["memory", "front", "leave"],
        };
        let own = program.name();
        let parts = names.iter().copied().chain([own]);
        let parts = parts.map(|name| format!("{name}{bits}.sv"));
        std::iter::once("quorate.sv".to_owned()).chain(parts).collect()
    }
}

/// Returns the folder that contains the committed cores.
pub fn cores_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../devices/programs/rtl")
}

/// Returns the name of a tool that is not installed, if there is one.
pub fn missing_tool() -> Option<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let is_there = |tool: &str| env::split_paths(&path).any(|folder| folder.join(tool).is_file());
    REQUIRED_TOOLS.into_iter().find(|tool| !is_there(tool))
}

/// Returns the path of a built simulator in `folder`. The name does not depend on the bus, so that
/// a node can find the simulator.
pub fn simulator_path(folder: &Path, program: Program) -> PathBuf {
    let name = program.name();
    folder.join(name).join(format!("V{name}"))
}

/// Builds a simulator from sources. Warnings are errors.
pub fn build(
    sources: &Path,
    folder: &Path,
    program: Program,
    bus: BusWidth,
    size: DeviceSize,
) -> Result<PathBuf, String> {
    if let Some(tool) = missing_tool() {
        return Err(format!("{tool} is not installed"));
    }
    let (name, core, bits) = (program.name(), bus.module_name(program), bus.bits());
    let made = folder.join(name);
    fs::create_dir_all(&made).map_err(|error| error.to_string())?;
    let sources = sources.canonicalize().map_err(|error| error.to_string())?;
    let output = Command::new("verilator")
        .args(["--cc", "--exe", "--build", "-O3", "-Wall", "--Mdir"])
        .arg(&made)
        // Some parts of words are unused, and some constants are used only by the other program.
        .args(["-Wno-UNUSEDSIGNAL", "-Wno-UNUSEDPARAM"])
        .args(["--top-module", &core, "--prefix", &format!("V{name}")])
        .args([format!("-GROOM={}", size.room_bytes), format!("-GCELLS={}", size.cell_count)])
        .args(["-CFLAGS", &format!("-O2 -DCORE=V{name} -DBUS={bits}")])
        .args(bus.source_files(program).iter().map(|file| sources.join(file)))
        .arg(sources.join("bench.cpp"))
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{core} is not built\n{said}"));
    }
    Ok(simulator_path(folder, program))
}

/// Running simulator that processes one event at a time, as for a node.
pub struct CoreSimulator {
    child: Child,
    stdin: ChildStdin,
    from: ChildStdout,
}

impl CoreSimulator {
    /// Starts the simulator. It runs until the returned value is dropped.
    pub fn start(simulator: &Path) -> Result<Self, String> {
        let mut child = Command::new(simulator)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.expect("both were asked for");
        Ok(Self { child, stdin: to, from })
    }
}

impl Device for CoreSimulator {
    fn step(&mut self, event: &Event) -> Result<Vec<SentFrame>, String> {
        write_event(&mut self.stdin, event).map_err(|error| error.to_string())?;
        let answer = read_sent_frames(&mut self.from).map_err(|error| error.to_string())?;
        answer.ok_or_else(|| "it gave up".to_owned())
    }
}

impl Drop for CoreSimulator {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a simulator on events without pauses between the frames. Returns `None` if the simulator
/// aborts.
pub fn run(simulator: &Path, events: &[Event]) -> Result<Option<Vec<Vec<SentFrame>>>, String> {
    let text = |error: std::io::Error| error.to_string();
    let input = simulator.with_extension("in");
    let mut bytes = Vec::new();
    for event in events {
        write_event(&mut bytes, event).map_err(text)?;
    }
    fs::write(&input, &bytes).map_err(text)?;
    let output = Command::new(simulator)
        .stdin(fs::File::open(&input).map_err(text)?)
        .output()
        .map_err(text)?;
    let mut answers = Vec::new();
    let mut rest = &output.stdout[..];
    while let Ok(Some(answer)) = read_sent_frames(&mut rest) {
        answers.push(answer);
    }
    Ok(output.status.success().then_some(answers))
}
