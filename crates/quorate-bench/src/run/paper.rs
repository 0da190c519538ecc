//! `quorate bench paper`: experiments of others on our TCP plane, their figures beside ours.

use std::time::Duration;

use quorate_core::record::Class;

use crate::{
    environment::Environment,
    load::Offer,
    papers::{Kind, Paper, Run, Scenario, Service as Asked},
    report::Document,
    row::Setting,
    wan::Profile,
};

use super::{
    Time,
    ceilings::Ceilings,
    failure, grid,
    measure::{Bench, Service},
    series::{SHARES_PERCENT, greatest, share},
    session::Session,
};
use crate::problem::{Kind as Why, Problem};

/// How long an experiment takes, as far as it was said; each kind has its own defaults.
#[derive(Clone, Debug, Default)]
pub struct PaperTime {
    /// Measured time of a repetition.
    pub duration: Option<Duration>,
    /// Thrown away before it.
    pub warmup: Option<Duration>,
    /// Repetitions of each row; their medians are shown.
    pub repeat: Option<u32>,
}

impl PaperTime {
    /// The defaults of most experiments.
    pub fn usual(&self) -> Time {
        Time {
            duration: self.duration.unwrap_or(Duration::from_secs(10)),
            warmup: self.warmup.unwrap_or(Duration::from_secs(2)),
            repeat: self.repeat.unwrap_or(5),
        }
    }
}

/// What is asked for besides the experiment itself.
#[derive(Clone, Debug)]
pub struct Wish {
    /// A flush takes at least this long.
    pub disk_flush: Duration,
    /// Another network than the paper's.
    pub wan: Option<Profile>,
    /// Only the ends of each row and column, where batch and window are fixed.
    pub quick: bool,
    /// How long.
    pub time: PaperTime,
}

/// A scenario that can run.
#[derive(Debug)]
pub struct Experiment<'a> {
    pub(super) wish: &'a Wish,
    paper: &'a Paper,
    pub(super) scenario: &'a Scenario,
    pub(super) run: &'a Run,
    network: Option<Profile>,
}

impl<'a> Experiment<'a> {
    /// The one of this name, if it is ready and can be run as it is asked for.
    pub fn find(papers: &'a [Paper], name: &str, wish: &'a Wish) -> Result<Self, Problem> {
        let mut all = papers
            .iter()
            .flat_map(|paper| paper.scenario.iter().map(move |scenario| (paper, scenario)));
        let Some((paper, scenario)) = all.find(|(_, scenario)| scenario.name == *name) else {
            let what = format_args!("no experiment is called {name}");
            return Err(Problem::usage(what).hint("quorate bench paper --list"));
        };
        let Some(run) = &scenario.run else {
            let what = format_args!("{name} waits for {}", scenario.waits_for);
            return Err(Problem::new(Why::Failed, "not_ready", what)
                .hint("quorate bench paper --list tells which are ready"));
        };
        let own = Profile::named(&run.wan);
        if wish.wan.is_some() && own.is_none() {
            let what = "--wan: this experiment runs without an emulated network";
            return Err(Problem::usage(what));
        }
        Ok(Self {
            wish,
            paper,
            scenario,
            run,
            network: wish.wan.or(own),
        })
    }

    /// The network that has to be entered before ([`super::network::enter`]).
    pub const fn network(&self) -> Option<Profile> {
        self.network
    }

    /// Whether the time is long enough for it.
    pub fn check(&self) -> Result<(), Problem> {
        match self.run.kind {
            Kind::Failure => failure::check(&self.wish.time.usual()),
            _ => Ok(()),
        }
    }

    /// Measures; rows that were measured before something failed stay in the document.
    pub fn run(&self, document: &mut Document) -> Result<(), Problem> {
        let mut session = Session::over(self.network)?;
        let measured = self.measure(&mut session, document);
        measured.map_err(|problem| session.with_last_words(problem))?;
        document.published = self.scenario.beside(self.paper, &document.rows);
        let Paper { name, setup, .. } = self.paper;
        document
            .notes
            .push(format!("{name}: {}", self.scenario.about));
        document.notes.push(format!("theirs: {setup}"));
        let ours = match self.network {
            Some(_) => {
                "ours: all processes on this one machine, and clients on the leader's fast link"
            }
            None => "ours: all processes and the clients on this one machine, over loopback TCP",
        };
        document.notes.push(ours.to_owned());
        Ok(())
    }

    fn measure(&self, session: &mut Session, document: &mut Document) -> Result<(), Problem> {
        if self.run.kind == Kind::Failure {
            return failure::run(self, session, document);
        }
        if self.run.kind.fixes_batches() {
            return grid::run(self, session, document);
        }
        let environment = document.environment.clone();
        let mut ceilings = Ceilings::new(session, &self.wish.time.usual(), environment)?;
        let measured = self.rows(session, &mut ceilings, document);
        document.rows.extend(ceilings.into_rows());
        measured?;
        session.end();
        Ok(())
    }

    fn rows(
        &self,
        session: &mut Session,
        ceilings: &mut Ceilings,
        document: &mut Document,
    ) -> Result<(), Problem> {
        for value_bytes in &self.run.value_bytes {
            // The nodes are new for each size: what is in their logs is alike.
            let bench = self.bench(session)?;
            let first = document.rows.len();
            for outstanding in &self.run.clients {
                let offer = Offer::Closed {
                    outstanding: *outstanding,
                };
                let setting = self.setting(&self.scenario.name, *value_bytes, *outstanding, offer);
                self.row(&bench, ceilings, &setting, *outstanding, document)?;
            }
            if self.run.kind == Kind::Shares
                && let Some(greatest) = greatest(&document.rows[first..])
            {
                for percent in SHARES_PERCENT {
                    let offer = Offer::Open {
                        per_second: share(greatest.per_second, percent),
                    };
                    let shown = u32::try_from(percent).expect("a percentage");
                    let name = self.scenario.at_share(shown);
                    let connections = self.run.clients.iter().copied().max().unwrap_or(1);
                    let setting = self.setting(&name, *value_bytes, connections, offer);
                    let window = greatest.window.unwrap_or(connections);
                    self.row(&bench, ceilings, &setting, window, document)?;
                }
            }
        }
        Ok(())
    }

    /// A row, and right after it what a bare program with that window reaches.
    fn row(
        &self,
        bench: &Bench,
        ceilings: &mut Ceilings,
        setting: &Setting,
        window: u32,
        document: &mut Document,
    ) -> Result<(), Problem> {
        let mut row = bench.row(setting, document)?;
        let durable = self.run.durability == Class::Durable.name();
        let flush = self.wish.disk_flush;
        let ceiling = ceilings.of(row.value_bytes, window, durable, flush);
        if let Ok(Some(per_second)) = ceiling {
            row.set_ceiling(per_second);
        }
        document.rows.push(row);
        ceiling.map(|_| ())
    }

    /// Three new nodes.
    pub(super) fn bench(&self, session: &mut Session) -> Result<Bench, Problem> {
        self.bench_with(session, &[])
    }

    /// Three new nodes with more flags.
    pub(super) fn bench_with(
        &self,
        session: &mut Session,
        more: &[&str],
    ) -> Result<Bench, Problem> {
        let flush = format!("{}", self.flush_ms());
        let flags = [
            "--durability",
            &self.run.durability,
            "--store",
            self.store(),
            "--disk-flush-ms",
            &flush,
        ];
        let cluster = session.boot(&[&flags, more].concat())?;
        Ok(Bench {
            service: match self.run.service {
                Asked::Log => Service::Log,
                Asked::KvMemory | Asked::KvLsm => Service::Kv,
            },
            cluster: Some(cluster),
            addresses: Vec::new(),
            connected: None,
            time: self.wish.time.usual(),
            environment: Environment::now(),
            network: session.network(),
        })
    }

    fn flush_ms(&self) -> f64 {
        self.wish.disk_flush.as_secs_f64() * 1000.0
    }

    const fn store(&self) -> &'static str {
        match self.run.service {
            Asked::Log => crate::log_service::STORE,
            Asked::KvMemory => "memory",
            Asked::KvLsm => "lsm",
        }
    }

    /// A client has a connection of its own.
    pub(super) fn setting(
        &self,
        name: &str,
        value_bytes: usize,
        connections: u32,
        offer: Offer,
    ) -> Setting {
        Setting {
            scenario: name.to_owned(),
            system: "quorate".to_owned(),
            durability: self.run.durability.clone(),
            store: self.store().to_owned(),
            value_bytes,
            reads_percent: self.run.reads_percent,
            connections,
            offer,
            disk_flush_ms: self.flush_ms(),
            batching: None,
            wan: self.network.map(|profile| profile.name.to_owned()),
        }
    }
}
