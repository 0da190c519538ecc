//! `quorate doctor`: checks what this machine can achieve, and suggests remedies.

mod shown;

use std::{
    io,
    net::SocketAddrV4,
    path::{Path, PathBuf},
};

use clap::Args;
use quorate_admin::{look::query_cluster, reaching::DATAGRAMS_MAX};
use quorate_bench::doctor::{
    bundle,
    examination::{ExaminationOptions, Report, examine},
    finding::{Finding, FindingState},
    monitoring,
    system::SystemFiles,
};
use quorate_bench::run::part_launcher;

use quorate_cli::values::{Number, Unit, must_be};
use quorate_cli::{
    address_argument,
    output::{Exit, Output, Problem, print_line},
};

/// Multicast group that is tested by default.
const DEFAULT_MULTICAST_GROUP: &str = "239.81.84.69:7460";

/// Arguments of `quorate doctor`.
#[derive(Args, Clone, Debug)]
#[command(
    after_help = "Exits with 0 if TCP works and no finding is an error, else with 1; with --check, with 0, 1, 2 or 3 as \
                  Nagios plugins do. docs/operate/doctor.md explains each finding."
)]
pub(crate) struct DoctorArgs {
    /// Data folder of a node, or its future place: tests that disk (writes a few MiB, or 600 MiB
    /// with --measure, and removes them)
    #[arg(long, env = "QUORATE_DATA", value_name = "DIR")]
    data: Option<PathBuf>,
    /// Peer addresses of other nodes: tries to connect to them
    #[arg(long, value_name = "ADDR[,…]", value_delimiter = ',', value_parser = address_argument)]
    peer: Vec<String>,
    /// Admin addresses of a running cluster: its members test multicast among themselves; the other
    /// members are found
    #[arg(long, env = "QUORATE_ADMIN", value_name = "ADDR[,…]", value_delimiter = ',', value_parser = address_argument)]
    admin: Vec<String>,
    /// Multicast group to test; it is an error if it does not work [default: 239.81.84.69:7460,
    /// with a warning if it does not work]
    #[arg(long, value_name = "GROUP:PORT", value_parser = group_argument)]
    plane_group: Option<SocketAddrV4>,
    /// Interface for multicast, here and on each member [default: loopback here, the interface of
    /// the peer address on members]
    #[arg(long, value_name = "NAME", value_parser = interface_argument)]
    interface: Option<String>,
    /// Number of datagrams that each member sends
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = Number::between(1, DATAGRAMS_MAX as u64, Unit::Count).argument::<u32>())]
    count: u32,
    /// Measure the predicted rates on this machine and compare; takes some seconds
    #[arg(long)]
    measure: bool,
    /// For monitoring: print one line and exit with 0, 1, 2 or 3 for OK, WARNING, CRITICAL or
    /// UNKNOWN, as Nagios plugins do; skips slow tests
    #[arg(long, conflicts_with = "measure")]
    check: bool,
    /// Names of findings that --check ignores
    #[arg(long, value_name = "NAME[,…]", value_delimiter = ',', requires = "check")]
    ignore: Vec<String>,
    /// Write a support bundle (.tar.gz, without secrets): this report, the state of each node,
    /// logs, and facts about the machine
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    bundle: Option<PathBuf>,
    /// Log files to add to the bundle (the last 8 MiB of each), in addition to the systemd journal
    #[arg(long, value_name = "FILE[,…]", value_delimiter = ',', requires = "bundle")]
    log: Vec<PathBuf>,
}

fn group_argument(text: &str) -> Result<SocketAddrV4, String> {
    quorate_packets::socket::reach::parse_group(text).map_err(|why| why.to_string())
}

fn interface_argument(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_graphic() && c != '/';
    let named = (1..=15).contains(&text.len()) && text.chars().all(plain) && !text.starts_with('.');
    named
        .then(|| text.to_owned())
        .ok_or_else(|| must_be("the name of a network interface, as listed by 'ip link'", text))
}

impl DoctorArgs {
    /// Returns whether the arguments request an examination of a cluster.
    fn examines_cluster(&self) -> bool {
        !self.admin.is_empty()
    }
}

/// Runs `quorate doctor`. `tls` is the folder of the certificates to examine, if any.
pub(crate) fn run(args: &DoctorArgs, tls: Option<&Path>, output: Output) -> Result<Exit, Problem> {
    if let Some(to) = &args.bundle {
        bundle::check_target_free(to).map_err(|error| bundle_problem(to, &error))?;
    }
    match make_report(args, tls) {
        Ok(report) if args.check => {
            let told = monitoring::summarize(&report, &args.ignore);
            output.print_result(&report, || told.line.clone());
            Ok(monitoring_exit(told.state))
        }
        Ok(report) => {
            output.print_result(&report, || shown::format_report(&report));
            Ok(match report.healthy {
                true => Exit::Done,
                false => Exit::Failed,
            })
        }
        // A monitoring system reads a single line, even if the cluster does not respond.
        Err(problem) if args.check => {
            let state = match problem.exit {
                Exit::Unreachable => FindingState::Failing,
                _ => FindingState::Unknown,
            };
            match output.json {
                true => drop(output.print_problem(&problem)),
                false => print_line(&monitoring::without_report(state, &problem.message).line),
            }
            Ok(monitoring_exit(state))
        }
        Err(problem) => Err(problem),
    }
}

/// Returns the exit code for a monitoring state. Other commands use the same numbers with other
/// meanings.
fn monitoring_exit(state: FindingState) -> Exit {
    let code = monitoring::nagios_exit_code(state);
    let all = [Exit::Done, Exit::Failed, Exit::Usage, Exit::Unreachable];
    all[usize::from(code)]
}

fn bundle_problem(to: &Path, error: &io::Error) -> Problem {
    let shown = to.display();
    match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let what = format_args!("{shown} already exists and is not overwritten");
            Problem::new(Exit::Failed, "exists", what)
                .with_hint("give another --bundle FILE, or remove this one")
        }
        _ => Problem::io_error(format_args!("create the bundle {shown}"), error)
            .with_hint("check that the folder exists and is writable, and that the disk has space"),
    }
}

fn make_report(args: &DoctorArgs, tls: Option<&Path>) -> Result<Report, Problem> {
    let cluster = match &args.admin[..] {
        [] => Err("give --admin".to_owned()),
        admin => {
            let proved = tls.map_or(Ok(()), quorate_cli::use_certificate);
            match proved.and_then(|()| Ok(query_cluster(admin)?)) {
                Ok(cluster) => Ok(cluster),
                // A bundle is most useful when no node responds.
                Err(problem) if args.bundle.is_some() => Err(problem.message),
                Err(problem) => return Err(problem),
            }
        }
    };
    let group = DEFAULT_MULTICAST_GROUP.parse().expect("the usual group is one");
    let launcher = part_launcher()?;
    let wish = ExaminationOptions {
        data_folder: args.data.as_deref(),
        tls_folder: tls,
        peers: &args.peer,
        cluster: cluster.as_ref().ok().map(|cluster| (cluster, &args.admin[..])),
        multicast_group: args.plane_group.unwrap_or(group),
        group_was_named: args.plane_group.is_some(),
        interface: args.interface.as_deref(),
        datagram_count: args.count,
        measures_commits: args.measure,
        skips_slow_steps: args.check,
        launcher: Some(&launcher),
    };
    let system = SystemFiles::this_machine();
    let mut report = examine(&system, &wish);
    if let (Err(why), true) = (&cluster, args.examines_cluster()) {
        let hint = "check that a node is running, and give its address with --admin";
        report.add_finding(Finding::failing("nodes", "no node answers", hint).with_detail(why));
    }
    if let Some(to) = &args.bundle {
        let wish = bundle::BundleInputs {
            report: serde_json::to_value(&report).expect("results are plain data"),
            printed_report: shown::format_report(&report),
            cluster: wish
                .cluster
                .ok_or_else(|| cluster.as_ref().err().cloned().unwrap_or_default()),
            logs: &args.log,
        };
        let made =
            bundle::write_bundle(to, &system, &wish).map_err(|error| bundle_problem(to, &error))?;
        report.bundle = Some(made);
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_groups_and_interfaces_are_refused_first() {
        assert!(group_argument(DEFAULT_MULTICAST_GROUP).is_ok());
        for bad in ["10.0.0.1:7", "239.1.2.3", "224.0.0.1:7", ""] {
            assert!(group_argument(bad).is_err(), "{bad}");
        }
        assert_eq!(interface_argument("eth0.7"), Ok("eth0.7".to_owned()));
        for bad in ["", "..", "a/b", "a b", "sixteen-letters-"] {
            assert!(interface_argument(bad).is_err(), "{bad}");
        }
    }
}
