//! Runs an experiment, and compares the published figures with ours.

use quorate_bench::{
    load::OfferedLoad,
    problem::Problem,
    report::BenchReport,
    row::RowSetting,
    run::{
        ceilings::MeasuredCeilings,
        measure::NodeBench,
        series::{RATE_PERCENTS, highest_throughput, percent_of},
        session::{NODE_COUNT, NodeSession},
    },
};

use crate::{
    experiment::Experiment,
    kinds::{bare, echo, failure, grid, rates, segment, ways},
    published::{Kind, PublishedPaper, Service},
};

impl Experiment<'_> {
    /// Checks that the durations suit the experiment.
    pub fn check_durations(&self) -> Result<(), Problem> {
        match self.run.kind {
            Kind::Failure => failure::check_duration(&self.options.time.with_usual_defaults()),
            Kind::Bare => bare::check_durations(&self.options.time),
            _ => Ok(()),
        }
    }

    /// Runs the experiment. If it fails, the rows measured before remain in the document.
    pub fn run(&self, document: &mut BenchReport) -> Result<(), Problem> {
        let most = |counts: &[u32]| counts.iter().copied().max().unwrap_or(0);
        let voters = most(&self.run.voters).max(NODE_COUNT);
        let room = match &self.run.bare {
            Some(bare) => bare.namespaces_needed(),
            None => voters + most(&self.run.learners),
        };
        let mut session = NodeSession::with_capacity(self.network, room)?;
        let measured = self.measure(&mut session, document);
        measured.map_err(|problem| session.add_last_log_lines(problem))?;
        document.published = self.scenario.compare_with(self.paper, &document.rows);
        let PublishedPaper { name, setup, .. } = self.paper;
        document.notes.push(format!("{name}: {}", self.scenario.about));
        document.notes.push(format!("theirs: {setup}"));
        let ours = match self.network {
            _ if self.run.service == Service::Bare => {
                "ours: bare programs on this one machine, and its kernel as the switch between them"
            }
            Some(_) => {
                "ours: all processes on this one machine, and clients on the leader's fast link"
            }
            None => "ours: all processes and the clients on this one machine, over loopback TCP",
        };
        document.notes.push(ours.to_owned());
        Ok(())
    }

    fn measure(
        &self,
        session: &mut NodeSession,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        if self.run.kind == Kind::Failure {
            return failure::run(self, session, document);
        }
        if self.run.kind == Kind::Rates {
            return rates::run(self, session, document);
        }
        if self.run.kind == Kind::Segment {
            return segment::run(self, session, document);
        }
        if let Some(ways) = &self.run.ways {
            return ways::run(self, ways, session, document);
        }
        if self.run.kind == Kind::Echo {
            return echo::run(self, document);
        }
        if let Some(bare) = &self.run.bare {
            return bare::run(self, bare, session, document);
        }
        if self.run.kind.fixes_batches() {
            return grid::run(self, session, document);
        }
        let environment = document.environment.clone();
        let mut ceilings =
            MeasuredCeilings::new(session, &self.options.time.with_usual_defaults(), environment)?;
        let measured = self.measure_rows(session, &mut ceilings, document);
        document.rows.extend(ceilings.into_rows());
        measured?;
        session.kill_nodes();
        Ok(())
    }

    fn measure_rows(
        &self,
        session: &mut NodeSession,
        ceilings: &mut MeasuredCeilings,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        for value_bytes in &self.run.value_bytes {
            // Each value size gets new nodes, so that the contents of their logs are similar.
            let bench = self.start_nodes(session)?;
            let first = document.rows.len();
            for outstanding in &self.run.clients {
                let offer = OfferedLoad::Closed { outstanding: *outstanding };
                let setting =
                    self.row_setting(&self.scenario.name, *value_bytes, *outstanding, offer);
                self.measure_row(&bench, ceilings, &setting, *outstanding, document)?;
            }
            if self.run.kind == Kind::Shares
                && let Some(highest_throughput) = highest_throughput(&document.rows[first..])
            {
                for percent in RATE_PERCENTS {
                    let offer = OfferedLoad::Open {
                        per_second: percent_of(highest_throughput.per_second, percent),
                    };
                    let shown = u32::try_from(percent).expect("a percentage");
                    let name = self.scenario.scenario_at_share(shown);
                    let connections = self.run.clients.iter().copied().max().unwrap_or(1);
                    let setting = self.row_setting(&name, *value_bytes, connections, offer);
                    let window = highest_throughput.window.unwrap_or(connections);
                    self.measure_row(&bench, ceilings, &setting, window, document)?;
                }
            }
        }
        Ok(())
    }

    /// Measures a row, followed by a bare program with the same window.
    fn measure_row(
        &self,
        bench: &NodeBench,
        ceilings: &mut MeasuredCeilings,
        setting: &RowSetting,
        window: u32,
        document: &mut BenchReport,
    ) -> Result<(), Problem> {
        let mut row = bench.measure_row(setting, document)?;
        let durable = self.is_durable();
        let flush = self.options.disk_flush;
        let ceiling = ceilings.ceiling_per_second(row.value_bytes, window, durable, flush);
        if let Ok(Some(per_second)) = ceiling {
            row.set_bare_ceiling(per_second);
        }
        document.rows.push(row);
        ceiling.map(|_| ())
    }
}
