//! The same loads applied to nodes with different planes and devices, on segments of different link
//! speeds.

use std::time::Duration;

use quorate_bench::{
    lan::Lan,
    load::OfferedLoad,
    problem::Problem,
    repetition::{GENERATOR_ROLE, Repetition},
    report::BenchReport,
    row::{Row, RowSetting},
    run::{
        RunTime,
        ceilings::MeasuredCeilings,
        measure::{NodeBench, partial_row},
        session::{NO_DEVICE_CODE, NODE_COUNT, NodeSession},
    },
};
use quorate_testbed::progress;

use crate::{
    experiment::{Experiment, PaperTime},
    published::{Metric, PlaneAndDevice, Ways},
};

/// Default measured time. It is short because there are many rows and all processes share one
/// machine.
const DEFAULT_DURATION: Duration = Duration::from_secs(2);
const DEFAULT_WARMUP: Duration = Duration::from_millis(500);

/// Interface at the switch for clients that send frames.
const FRAME_INTERFACE: &str = "frames0";

/// Returns the requested durations, with defaults for those not requested.
pub(crate) fn run_time(given: &PaperTime) -> RunTime {
    let usual = given.with_usual_defaults();
    RunTime {
        duration: given.duration.unwrap_or(DEFAULT_DURATION),
        warmup: given.warmup.unwrap_or(DEFAULT_WARMUP),
        repetition_count: usual.repetition_count,
    }
}

/// Runs the experiment. In each round, every combination is measured once on new nodes, so that
/// other load on the machine affects all of them equally and the contents of their logs are
/// similar.
pub(crate) fn run(
    experiment: &Experiment<'_>,
    ways: &Ways,
    session: &mut NodeSession,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    let environment = document.environment.clone();
    let mut ceilings =
        MeasuredCeilings::new(session, &run_time(&experiment.options.time), environment)?;
    if let (Some(network), true) = (session.network(), ways.nodes.iter().any(|one| one.frames)) {
        let joined = network.create_interface(FRAME_INTERFACE);
        joined.map_err(|error| Problem::io_error("make an interface for clients", &error))?;
    }
    let measured = measure_sizes(experiment, ways, session, &mut ceilings, document);
    document.rows.extend(ceilings.into_rows());
    if let Some(network) = session.network() {
        document.notes.push(network.describe());
    }
    let note = "bare programs ran on loopback; clients speak TCP with the leader's process, whatever votes, \
                if rows do not say that they speak frames: then one process is all of them";
    document.notes.push(note.to_owned());
    measured?;
    session.kill_nodes();
    Ok(())
}

fn measure_sizes(
    experiment: &Experiment<'_>,
    ways: &Ways,
    session: &mut NodeSession,
    ceilings: &mut MeasuredCeilings,
    document: &mut BenchReport,
) -> Result<(), Problem> {
    for value_bytes in &experiment.run.value_bytes {
        let mut groups = Vec::new();
        for link in &ways.links {
            let all = ways.nodes.iter();
            groups.extend(all.map(|spoken| WayGroup::new(experiment, spoken, link, *value_bytes)));
        }
        let measured = measure_rounds(&mut groups, session);
        let put =
            groups.iter().map(|group| group.add_rows(measured.as_ref().err(), ceilings, document));
        let put = put.fold(Ok(()), Result::and);
        measured.and(put)?;
    }
    Ok(())
}

/// Measures all repetitions of all groups in turn.
fn measure_rounds(groups: &mut [WayGroup<'_>], session: &mut NodeSession) -> Result<(), Problem> {
    let repeat = groups.first().map_or(0, |group| group.run_time().repetition_count);
    for round in 1..=repeat {
        for group in &mut *groups {
            progress(&format!(
                "round {round} of {repeat}: {}, {} B, {}",
                group.plane_and_device.name(),
                group.value_bytes,
                group.link_speed
            ));
            group.measure_turn(session)?;
        }
    }
    Ok(())
}

/// Nodes with one combination of plane and device, and the value size of their load.
struct WayGroup<'a> {
    experiment: &'a Experiment<'a>,
    plane_and_device: &'a PlaneAndDevice,
    link_speed: &'a str,
    value_bytes: usize,
    /// Repetitions for each number of clients.
    repetitions: Vec<(u32, Vec<Repetition>)>,
    /// Problem that shows that the required device is not used.
    device_problem: Option<Problem>,
}

impl<'a> WayGroup<'a> {
    /// Returns a group to be measured with all numbers of clients, or only the first and last.
    fn new(
        experiment: &'a Experiment<'a>,
        spoken: &'a PlaneAndDevice,
        link: &'a str,
        value_bytes: usize,
    ) -> Self {
        let clients = match &experiment.run.clients[..] {
            [first, .., last] if experiment.options.ends_only => vec![*first, *last],
            all => all.to_vec(),
        };
        Self {
            experiment,
            plane_and_device: spoken,
            link_speed: link,
            value_bytes,
            repetitions: clients.into_iter().map(|count| (count, Vec::new())).collect(),
            device_problem: None,
        }
    }

    fn run_time(&self) -> RunTime {
        run_time(&self.experiment.options.time)
    }

    /// Measures a repetition for each number of clients on new nodes. A group whose device is not
    /// used is not measured again.
    fn measure_turn(&mut self, session: &mut NodeSession) -> Result<(), Problem> {
        if self.device_problem.is_some() {
            return Ok(());
        }
        self.set_speed(session)?;
        let bench = self.start_nodes(session)?;
        for at in 0..self.repetitions.len() {
            let setting = self.row_setting(self.repetitions[at].0);
            match bench.measure_more(&setting, &mut self.repetitions[at].1) {
                Ok(()) => {}
                Err(problem) if problem.code == NO_DEVICE_CODE => {
                    progress(&problem.message);
                    self.device_problem = Some(problem);
                    return Ok(());
                }
                Err(problem) => return Err(problem),
            }
        }
        Ok(())
    }

    /// Sets the speed of every link to that of the group.
    fn set_speed(&self, session: &NodeSession) -> Result<(), Problem> {
        let megabits = |name: &str| Lan::parse_speed(name).map_or(1, |lan| lan.link_megabits());
        let percent = megabits(self.link_speed) * 100 / megabits(&self.experiment.run.lan);
        for node in 1..=NODE_COUNT {
            let set = session.narrow_link(node, percent);
            set.map_err(|error| Problem::io_error("set the speed of a link", &error))?;
        }
        Ok(())
    }

    fn start_nodes(&self, session: &mut NodeSession) -> Result<NodeBench, Problem> {
        let mut flags = vec!["--plane", &self.plane_and_device.plane, "--plane-trusted"];
        if let Some(device) = self.plane_and_device.device {
            flags.extend(["--device", device.name()]);
        }
        let mut bench = self.experiment.start_nodes_with(session, &flags)?;
        bench.time = RunTime { repetition_count: 1, ..self.run_time() };
        bench.device = self.plane_and_device.device;
        bench.frame_interface = self.plane_and_device.frames.then(|| FRAME_INTERFACE.to_owned());
        Ok(bench)
    }

    /// Returns the parameters of a row in which each client has its own connection.
    fn row_setting(&self, clients: u32) -> RowSetting {
        let offer = OfferedLoad::Closed { outstanding: clients };
        let name = &self.experiment.scenario.name;
        RowSetting {
            wan: Some(self.link_speed.to_owned()),
            plane: Some(self.plane_and_device.name()),
            ..self.experiment.row_setting(name, self.value_bytes, clients, offer)
        }
    }

    /// Adds a row for each number of clients, compared with a bare program of the same window.
    /// `failed` is the problem that ended the rounds, if any.
    fn add_rows(
        &self,
        failed: Option<&Problem>,
        ceilings: &mut MeasuredCeilings,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        for (clients, all) in &self.repetitions {
            let Some(mut row) = self.make_row(*clients, all, failed, document) else {
                continue;
            };
            if self.is_compared_by(Metric::SwitchesPerS) {
                document.notes.push(self.describe_switches(&row, *clients));
            }
            let mut measured = Ok(None);
            if failed.is_none() && !all.is_empty() {
                let durable = self.experiment.is_durable();
                let flush = self.experiment.options.disk_flush;
                measured = ceilings.ceiling_per_second(self.value_bytes, *clients, durable, flush);
            }
            if let Ok(Some(per_second)) = measured {
                row.set_bare_ceiling(per_second);
            }
            document.rows.push(row);
            measured?;
        }
        Ok(())
    }

    /// Returns a row about the group. If its device is not used, the row is invalid and names the
    /// reason.
    fn make_row(
        &self,
        clients: u32,
        all: &[Repetition],
        failed: Option<&Problem>,
        document: &BenchReport,
    ) -> Option<Row> {
        let (setting, environment) = (self.row_setting(clients), &document.environment);
        let Some(why) = self.device_problem.as_ref().or(failed) else {
            return Row::new(&setting, environment, all);
        };
        if !all.is_empty() {
            let wanted = self.run_time().repetition_count;
            return partial_row(&setting, environment, all, wanted, why);
        }
        self.device_problem.as_ref()?;
        let mut row = Row::new(&setting, environment, &[Repetition::default()])?;
        row.why_not.clear();
        row.invalidate(why.message.clone());
        Some(row)
    }

    fn is_compared_by(&self, metric: Metric) -> bool {
        let mut figures = self.experiment.scenario.figure.iter();
        figures.any(|figure| figure.metric == metric)
    }

    /// Describes the context switches of the nodes in each role.
    fn describe_switches(&self, row: &Row, clients: u32) -> String {
        let roles = row.roles.iter().filter(|role| role.role != GENERATOR_ROLE);
        let roles: Vec<String> = roles
            .map(|role| {
                let (each, all) = (role.switches_per_op, role.switches_per_s);
                format!("{} {all}/s, {each} per command", role.role)
            })
            .collect();
        format!(
            "context switches, {}, {} B, outstanding {clients}: {}",
            self.plane_and_device.name(),
            self.value_bytes,
            roles.join("; ")
        )
    }
}
