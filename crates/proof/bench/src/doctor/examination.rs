//! Runs all examinations in order and collects findings, verdicts on planes, figures, and whether
//! this machine is fit to run a node.

use std::{net::SocketAddrV4, path::Path, time::Duration};

use crate::probe::part::PartLauncher;
use quorate_admin::{
    client,
    tuning::TuningView,
    view::{Answer, ClusterView},
};
use quorate_testbed::machine::MachineInfo;
use serde::Serialize;

use crate::doctor::{
    buffers,
    bundle::Manifest,
    certificates::{self, Certificate},
    cgroups, clock,
    disk::{self, DiskSpace},
    figures::Figures,
    files,
    finding::{Finding, FindingState},
    flushes::FlushTimes,
    interfaces, kernel, load,
    measure::{self, PredictionCheck},
    memory, multicast, nodes, peers,
    plane::Plane,
    predict::{NodePlacement, PlanePrediction, predict},
    reach::{self, ReachReport},
    rights::Privileges,
    system::SystemFiles,
    trips::{self, MemberPath},
    uring,
    verdict::PlaneVerdict,
};

/// Timeout for a node's status page.
const STATUS_TIMEOUT: Duration = Duration::from_secs(3);
/// Group size assumed if no cluster or peers are given.
const DEFAULT_NODE_COUNT: u32 = 3;

#[derive(Clone, Debug)]
pub struct ExaminationOptions<'a> {
    pub data_folder: Option<&'a Path>,
    pub tls_folder: Option<&'a Path>,
    pub peers: &'a [String],
    /// A running cluster with the admin addresses through which it was found.
    pub cluster: Option<(&'a ClusterView, &'a [String])>,
    pub multicast_group: SocketAddrV4,
    /// Set if the user named the multicast group, so a failure to reach it is a problem.
    pub group_was_named: bool,
    /// Interface used by planes, on this machine and on each member; `None` for the default.
    pub interface: Option<&'a str>,
    /// Number of datagrams that each member sends in the multicast test.
    pub datagram_count: u32,
    /// Set to also measure bare commits and compare them with the predictions.
    pub measures_commits: bool,
    /// Set to skip every step that takes more than a few seconds: bare programs do not run, and
    /// members do not test multicast.
    pub skips_slow_steps: bool,
    /// Launcher of the bare programs; `None` to omit all steps that need them.
    pub launcher: Option<&'a PartLauncher>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub machine: MachineView,
    pub findings: Vec<Finding>,
    pub planes: Vec<PlaneVerdict>,
    /// Measured values on which the predictions are based.
    pub figures: Figures,
    /// Flush times, if a data folder was examined.
    pub flushes: Option<FlushTimes>,
    /// Free space of the data folder; `None` if unknown or no folder was examined.
    pub room: Option<DiskSpace>,
    /// Certificates from the folder and from running nodes.
    pub certificates: Vec<Certificate>,
    /// Results of the multicast test between members, if it ran.
    pub reach: Option<ReachReport>,
    /// Paths between members; `None` without a running cluster.
    pub trips: Option<Vec<MemberPath>>,
    /// Predictions compared with measurements, if this was requested.
    pub measured: Option<Vec<PredictionCheck>>,
    /// Contents of the support bundle, if one was written.
    pub bundle: Option<Manifest>,
    /// Set if TCP works and no finding is in the state [`FindingState::Failing`].
    pub healthy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineView {
    /// Name and release of the operating system kernel.
    pub kernel: String,
    pub cpus: usize,
    pub cpu_model: String,
}

pub fn examine(system: &SystemFiles, wish: &ExaminationOptions<'_>) -> Report {
    let rights = Privileges::of_this_process();
    let machine = MachineInfo::of_this_machine();
    let launcher = wish.launcher.filter(|_| !wish.skips_slow_steps);
    let mut findings = kernel::examine(system, rights.can_force_buffers());
    findings.push(load::examine(system, machine.cpu_count));
    findings.extend(rights.examine());
    findings.extend(files::examine(system));
    findings.extend(cgroups::examine(system));
    findings.extend(memory::examine(system));
    findings.extend(interfaces::examine(system, wish.interface));
    findings.push(interfaces::datagram_finding());
    findings.push(buffers::examine());
    findings.extend(clock::examine(system));
    findings.push(uring::examine(system));
    findings.push(multicast::examine(wish.multicast_group, wish.interface));

    let mut figures = Figures::default();
    figures.measure_round_trips(launcher);
    findings.extend(figures.check_loopback(launcher));
    let disk = wish.data_folder.map(|data| disk::examine(system, data));
    let flushes = disk.as_ref().and_then(|disk| disk.flushes.clone());
    figures.record_flush(disk.is_some(), flushes.as_ref().map(|flushes| flushes.quietest_us));
    findings.extend(disk.iter().flat_map(|disk| disk.findings.clone()));
    let shown = wish.cluster.map(|(cluster, _)| certificates::examine_nodes(cluster));
    let mut certificates = Vec::new();
    for examined in [wish.tls_folder.map(certificates::examine_folder), shown].into_iter().flatten()
    {
        findings.extend(examined.findings);
        certificates.extend(examined.certificates);
    }
    let dialled = peers::dial_all(wish.peers);
    figures.record_peers(&dialled);
    findings.extend(peers::examine(&dialled));
    let tuning = leader_tuning(wish);
    figures.record_leader(tuning.as_ref().map_err(Clone::clone));
    let trips = wish.cluster.map(|(cluster, _)| trips::reported_trips(cluster));
    figures.record_members(trips.as_deref());
    findings.extend(trips.iter().map(|trips| trips::trip_finding(trips)));

    findings.extend(wish.cluster.iter().flat_map(|(cluster, _)| nodes::examine(cluster)));

    let asked = wish.cluster.filter(|_| !wish.skips_slow_steps);
    let reach = asked.map(|(cluster, given)| {
        let (members, problems) = reach::test_members(cluster, given);
        let wish = reach::ReachOptions {
            group: wish.multicast_group,
            interface: wish.interface.map(str::to_owned),
            datagram_count: wish.datagram_count,
        };
        reach::run_test(&members, problems, &wish)
    });
    findings.extend(reach.iter().map(|reach| reach.reach_finding(wish.group_was_named)));

    let nodes = node_count(wish);
    let planes: Vec<PlaneVerdict> = Plane::ALL
        .into_iter()
        .map(|plane| {
            PlaneVerdict::new(plane, &findings, |works| match works {
                true => predict(plane, nodes, NodePlacement::SeparateMachines, &figures),
                false => PlanePrediction::unknown("the plane does not work here"),
            })
        })
        .collect();
    let scratch = disk.as_ref().and_then(|disk| disk.test_folder.as_ref());
    let measured = wish.measures_commits.then(|| {
        let scratch = scratch.map(tempfile::TempDir::path);
        let mut all = measure::measure_all(launcher, scratch, &figures);
        // In a running cluster, the leader's predictions for the current setting are also compared
        // with its measurements.
        if let Some(trips) = &trips {
            let plane = trips::most_common_plane(trips).unwrap_or(Plane::Tcp);
            all.extend(measure::compare_leader(plane, &tuning));
        }
        all
    });
    let MachineInfo { kernel_release: kernel, cpu_count: cpus, cpu_model } = machine;
    Report {
        healthy: is_healthy(&findings, &planes),
        machine: MachineView { kernel, cpus, cpu_model },
        findings,
        planes,
        figures,
        flushes,
        room: disk.as_ref().and_then(|disk| disk.free_space),
        certificates,
        reach,
        trips,
        measured,
        bundle: None,
    }
}

impl Report {
    /// Adds a finding and updates `healthy`.
    pub fn add_finding(&mut self, finding: Finding) {
        self.findings.push(finding);
        self.healthy = self.healthy && is_healthy(&self.findings, &self.planes);
    }
}

fn is_healthy(findings: &[Finding], planes: &[PlaneVerdict]) -> bool {
    let failing = findings.iter().any(|finding| finding.state == FindingState::Failing);
    let mut planes = planes.iter();
    let works = planes.any(|verdict| verdict.plane == Plane::Tcp && verdict.works);
    works && !failing
}

/// Returns the actual or expected number of nodes in the group.
fn node_count(wish: &ExaminationOptions<'_>) -> u32 {
    let small = |count: usize| u32::try_from(count).unwrap_or(DEFAULT_NODE_COUNT);
    match wish.cluster {
        Some((cluster, _)) if cluster.nodes.len() > 1 => small(cluster.nodes.len()),
        _ if !wish.peers.is_empty() => small(wish.peers.len() + 1),
        _ => DEFAULT_NODE_COUNT,
    }
}

/// Returns the tuner status reported by the leader.
fn leader_tuning(wish: &ExaminationOptions<'_>) -> Result<TuningView, String> {
    let (cluster, given) = wish.cluster.ok_or("give --admin")?;
    let (members, _) = reach::test_members(cluster, given);
    let leader = members.iter().find(|member| Some(member.node) == cluster.leader);
    let Some(leader) = leader else {
        let running = cluster.nodes.iter().filter_map(Answer::node_view).count();
        return Err(format!("none of {running} nodes that run leads"));
    };
    let response = client::get(&leader.admin, "/tuning", STATUS_TIMEOUT);
    let response = response.map_err(|error| format!("node {}: {error}", leader.node))?;
    response.parse_json().map_err(|refusal| format!("node {}: {}", leader.node, refusal.message))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns an empty report, for tests.
    pub(crate) fn report() -> Report {
        Report {
            machine: MachineView {
                kernel: "Linux".to_owned(),
                cpus: 1,
                cpu_model: "none".to_owned(),
            },
            findings: Vec::new(),
            planes: Vec::new(),
            figures: Figures::default(),
            flushes: None,
            room: None,
            certificates: Vec::new(),
            reach: None,
            trips: None,
            measured: None,
            bundle: None,
            healthy: true,
        }
    }

    fn wish() -> ExaminationOptions<'static> {
        ExaminationOptions {
            data_folder: None,
            tls_folder: None,
            peers: &[],
            cluster: None,
            multicast_group: SocketAddrV4::new([239, 81, 84, 73].into(), 7460),
            group_was_named: false,
            interface: None,
            datagram_count: 5,
            measures_commits: false,
            skips_slow_steps: false,
            launcher: None,
        }
    }

    /// Field names are stable, because scripts rely on them.
    #[test]
    fn a_report_has_the_documented_fields() {
        let report = examine(&SystemFiles::this_machine(), &wish());
        let json = serde_json::to_value(&report).unwrap();
        let keys = |json: &serde_json::Value| {
            json.as_object().unwrap().keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(
            keys(&json),
            [
                "bundle",
                "certificates",
                "figures",
                "findings",
                "flushes",
                "healthy",
                "machine",
                "measured",
                "planes",
                "reach",
                "room",
                "trips"
            ]
        );
        assert_eq!(keys(&json["machine"]), ["cpu_model", "cpus", "kernel"]);
        let finding = ["about", "blocks", "detail", "hint", "name", "state", "what"];
        assert_eq!(keys(&json["findings"][0]), finding);
        let verdict = ["because", "plane", "predicted", "spoken", "what_to_do", "works"];
        assert_eq!(keys(&json["planes"][0]), verdict);
        let predicted = ["class", "latency_us", "nodes", "throughput_per_s", "why"];
        assert_eq!(keys(&json["planes"][0]["predicted"]), predicted);
        assert_eq!(keys(&json["figures"][0]), ["name", "source", "value_us"]);
        assert_eq!(
            (&json["reach"], &json["measured"]),
            (&serde_json::Value::Null, &serde_json::Value::Null)
        );
        assert_eq!(json["planes"].as_array().unwrap().len(), Plane::ALL.len());
        for finding in &report.findings {
            assert_eq!(finding.hint.is_empty(), finding.state == FindingState::Ok, "{finding:?}");
        }
        let mut names: Vec<&str> = report.findings.iter().map(|finding| &*finding.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), report.findings.len(), "{names:?}");
    }

    #[test]
    fn failing_findings_make_a_machine_unhealthy_but_not_warnings() {
        let verdicts = |findings: &[Finding]| {
            let verdict =
                |plane| PlaneVerdict::new(plane, findings, |_| PlanePrediction::unknown(""));
            Plane::ALL.map(verdict)
        };
        let healthy = |findings: &[Finding]| is_healthy(findings, &verdicts(findings));
        assert!(healthy(&[]));
        assert!(healthy(&[Finding::warning("a", "", "x").blocking(&[Plane::Ethernet])]));
        assert!(!healthy(&[Finding::warning("a", "", "x").blocking(&[Plane::Tcp])]));
        assert!(!healthy(&[Finding::failing("a", "", "x")]));
    }

    #[test]
    fn group_size_follows_from_the_peers() {
        let peers = ["a:1", "b:1", "c:1", "d:1"].map(str::to_owned);
        assert_eq!(node_count(&wish()), 3);
        assert_eq!(node_count(&ExaminationOptions { peers: &peers, ..wish() }), 5);
    }
}
