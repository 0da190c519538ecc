//! `quorate bench paper`: experiments of others on our TCP plane, their figures beside ours.

use quorate_bench::{
    environment::Environment,
    load::Offer,
    papers::{self, Kind, Paper, Run, Scenario, Service as Asked},
    report::Document,
    row::Setting,
    wan::Profile,
};

use super::{
    args::{Durability, PaperArgs, Wan},
    ceilings::Ceilings,
    failure,
    finish::finish,
    grid,
    measure::{Bench, Service},
    publish,
    series::{SHARES_PERCENT, greatest, share},
    session::Session,
    wan,
};
use crate::output::{Exit, Problem, print, table};

/// Runs the command.
pub(super) fn run(args: &PaperArgs) -> Result<Exit, Problem> {
    let papers = papers::all().map_err(|error| Problem::new(Exit::Failed, "bad_data", error))?;
    let Some(name) = args.name.as_ref().filter(|_| !args.list) else {
        print(list(&papers).trim_end());
        return Ok(Exit::Done);
    };
    let mut all = papers
        .iter()
        .flat_map(|paper| paper.scenario.iter().map(move |scenario| (paper, scenario)));
    let Some((paper, scenario)) = all.find(|(_, scenario)| scenario.name == *name) else {
        return Err(
            Problem::usage(format_args!("no experiment is called {name}"))
                .hint("quorate bench paper --list"),
        );
    };
    let Some(run) = &scenario.run else {
        let what = format_args!("{name} waits for {}", scenario.waits_for);
        return Err(Problem::new(Exit::Failed, "not_ready", what)
            .hint("quorate bench paper --list tells which are ready"));
    };
    let profile = profile(args.wan, run)?;
    if profile.is_some()
        && let Some(why) = wan::enter()?
    {
        return publish::skip(&why, &args.files);
    }
    if run.kind == Kind::Failure {
        failure::check(&args.time.usual())?;
    }
    publish::check(&args.files)?;
    let mut session = Session::over(profile)?;
    let mut document = publish::document();
    let experiment = Experiment {
        args,
        scenario,
        run,
    };
    if let Err(problem) = experiment.measure(&mut session, &mut document) {
        let problem = session.with_last_words(problem);
        return finish(document, &args.files, Err(problem));
    }
    document.published = scenario.beside(paper, &document.rows);
    document
        .notes
        .push(format!("{}: {}", paper.name, scenario.about));
    document.notes.push(format!("theirs: {}", paper.setup));
    document.notes.push(
        if profile.is_some() {
            "ours: all processes on this one machine, and clients on the leader's fast link"
        } else {
            "ours: all processes and the clients on this one machine, over loopback TCP"
        }
        .to_owned(),
    );
    finish(document, &args.files, Ok(()))
}

/// The experiment's network, or the one that was asked for instead.
fn profile(asked: Option<Wan>, run: &Run) -> Result<Option<Profile>, Problem> {
    match (asked, Profile::named(&run.wan)) {
        (Some(_), None) => Err(Problem::usage(
            "--wan: this experiment runs without an emulated network",
        )),
        (asked, own) => Ok(asked.map(Wan::profile).or(own)),
    }
}

fn list(papers: &[Paper]) -> String {
    let mut lines = vec![
        ["name", "source", "state", "what"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for paper in papers {
        for scenario in &paper.scenario {
            let state = if scenario.run.is_some() {
                "ready".to_owned()
            } else {
                format!("waits for {}", scenario.waits_for)
            };
            lines.push(vec![
                scenario.name.clone(),
                format!("{}, {}", paper.name, scenario.source),
                state,
                scenario.about.clone(),
            ]);
        }
    }
    table(&lines)
}

/// A scenario that can run.
pub(super) struct Experiment<'a> {
    pub(super) args: &'a PaperArgs,
    pub(super) scenario: &'a Scenario,
    pub(super) run: &'a Run,
}

impl Experiment<'_> {
    fn measure(&self, session: &mut Session, document: &mut Document) -> Result<(), Problem> {
        if self.run.kind == Kind::Failure {
            return failure::run(self, session, document);
        }
        if self.run.kind.fixes_batches() {
            return grid::run(self, session, document);
        }
        let environment = document.environment.clone();
        let mut ceilings = Ceilings::new(session, &self.args.time.usual(), environment)?;
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
        let durable = self.run.durability == Durability::Durable.name();
        let flush = self.args.disk_flush_ms;
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
            time: self.args.time.usual(),
            environment: Environment::now(),
            network: session.network(),
        })
    }

    fn flush_ms(&self) -> f64 {
        self.args.disk_flush_ms.as_secs_f64() * 1000.0
    }

    const fn store(&self) -> &'static str {
        match self.run.service {
            Asked::Log => quorate_bench::log_service::STORE,
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
            wan: profile(self.args.wan, self.run)
                .ok()
                .flatten()
                .map(|profile| profile.name.to_owned()),
        }
    }
}
