//! Experiment from a paper that can run here, with its durations and nodes.

use std::time::Duration;

use quorate_bench::{
    emulated::EmulatedNetwork,
    lan::Lan,
    load::OfferedLoad,
    problem::{Kind as Why, Problem},
    row::RowSetting,
    run::{
        RunTime,
        measure::{NodeBench, Service},
        session::NodeSession,
    },
    wan::LinkProfile,
};
use quorate_core::record::Class;

use crate::published::{PublishedPaper, Run, Scenario, Service as Asked};

/// Durations requested for an experiment. Each kind of experiment has its own defaults.
#[derive(Clone, Debug, Default)]
pub struct PaperTime {
    pub duration: Option<Duration>,
    pub warmup: Option<Duration>,
    pub repetition_count: Option<u32>,
}

impl PaperTime {
    /// Returns the requested durations, with defaults that suit most kinds.
    pub fn with_usual_defaults(&self) -> RunTime {
        RunTime {
            duration: self.duration.unwrap_or(Duration::from_secs(10)),
            warmup: self.warmup.unwrap_or(Duration::from_secs(2)),
            repetition_count: self.repetition_count.unwrap_or(5),
        }
    }
}

/// Options that the user sets in addition to the experiment.
#[derive(Clone, Debug)]
pub struct ExperimentOptions {
    pub disk_flush: Duration,
    /// Network to use instead of the one in the paper.
    pub other_network: Option<LinkProfile>,
    /// Set to measure only the ends of each list: clients, batches, windows, or groups of bare
    /// programs.
    pub ends_only: bool,
    /// Set to measure all rates and sizes for as long as in the paper. Otherwise some experiments
    /// use a short form.
    pub as_in_paper: bool,
    pub time: PaperTime,
}

#[derive(Debug)]
pub struct Experiment<'a> {
    pub(crate) options: &'a ExperimentOptions,
    pub(crate) paper: &'a PublishedPaper,
    pub(crate) scenario: &'a Scenario,
    pub(crate) run: &'a Run,
    pub(crate) network: Option<EmulatedNetwork>,
}

impl<'a> Experiment<'a> {
    /// Finds the experiment named `name`. Fails if its prerequisites are missing or the options do
    /// not suit it.
    pub fn find(
        papers: &'a [PublishedPaper],
        name: &str,
        wish: &'a ExperimentOptions,
    ) -> Result<Self, Problem> {
        let mut all = papers
            .iter()
            .flat_map(|paper| paper.scenario.iter().map(move |scenario| (paper, scenario)));
        let Some((paper, scenario)) = all.find(|(_, scenario)| scenario.is_called(name)) else {
            let what = format_args!("there is no experiment {name}");
            return Err(Problem::usage_error(what).with_hint("cargo xtask papers --list"));
        };
        let Some(run) = &scenario.run else {
            let what = format_args!("{name} waits for {}", scenario.waits_for);
            return Err(Problem::new(Why::Failed, "not_ready", what)
                .with_hint("'cargo xtask papers --list' shows which are ready"));
        };
        let own = LinkProfile::from_name(&run.wan);
        if wish.other_network.is_some() && own.is_none() {
            let what = "--wan: this experiment runs without an emulated network";
            return Err(Problem::usage_error(what));
        }
        Ok(Self {
            options: wish,
            paper,
            scenario,
            run,
            network: match Lan::parse_speed(&run.lan) {
                Some(lan) => Some(EmulatedNetwork::Lan(lan)),
                None => wish.other_network.or(own).map(EmulatedNetwork::Wan),
            },
        })
    }

    /// Returns the network that must be entered before the run
    /// ([`quorate_bench::run::network::enter_namespaces`]).
    pub const fn network(&self) -> Option<EmulatedNetwork> {
        self.network
    }

    /// Starts three new nodes for the experiment.
    pub(crate) fn start_nodes(&self, session: &mut NodeSession) -> Result<NodeBench, Problem> {
        self.start_nodes_with(session, &[])
    }

    /// Starts three new nodes for the experiment with additional flags.
    pub(crate) fn start_nodes_with(
        &self,
        session: &mut NodeSession,
        more: &[&str],
    ) -> Result<NodeBench, Problem> {
        let flush = format!("{}", self.disk_flush_ms());
        let flags = [
            "--durability",
            &self.run.durability,
            "--store",
            self.store_name(),
            "--disk-flush-ms",
            &flush,
        ];
        let cluster = session.boot(&[&flags, more].concat())?;
        let service = match self.run.service {
            Asked::Log => Service::Log,
            Asked::KvMemory | Asked::KvLsm | Asked::Streams | Asked::Bare => Service::Kv,
        };
        Ok(NodeBench::with_own_nodes(
            service,
            cluster,
            self.options.time.with_usual_defaults(),
            session,
        ))
    }

    /// Returns whether commands are acknowledged only once they are on disk.
    pub(crate) fn is_durable(&self) -> bool {
        self.run.durability == Class::Durable.name()
    }

    fn disk_flush_ms(&self) -> f64 {
        self.options.disk_flush.as_secs_f64() * 1000.0
    }

    pub(crate) const fn store_name(&self) -> &'static str {
        match self.run.service {
            Asked::Log | Asked::Bare => quorate_node::log_service::STORE_NAME,
            Asked::KvMemory | Asked::Streams => "memory",
            Asked::KvLsm => "lsm",
        }
    }

    /// Returns the parameters of a row in which each client has its own connection.
    pub(crate) fn row_setting(
        &self,
        name: &str,
        value_bytes: usize,
        connections: u32,
        offer: OfferedLoad,
    ) -> RowSetting {
        RowSetting {
            reads_percent: self.run.reads_percent,
            connections,
            disk_flush_ms: self.disk_flush_ms(),
            wan: self.network.map(|network| network.name()),
            ..RowSetting::new(name, &self.run.durability, self.store_name(), value_bytes, offer)
        }
    }
}
