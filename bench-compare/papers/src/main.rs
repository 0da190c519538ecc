//! `quorate bench paper`: repeats published experiments on our planes, and shows the published
//! figures next to ours.

use quorate_bench::{
    papers::{self, Paper},
    run::paper::Experiment,
};

use super::{args::PaperArgs, measure};
use quorate_cli::output::{Exit, Problem, print, table};

pub(super) fn run(args: &PaperArgs) -> Result<Exit, Problem> {
    let papers = papers::all().map_err(|error| Problem::new(Exit::Failed, "bad_data", error))?;
    let Some(name) = args.name.as_ref().filter(|_| !args.list) else {
        print(list(&papers).trim_end());
        return Ok(Exit::Done);
    };
    let wish = args.plain();
    let experiment = Experiment::find(&papers, name, &wish)?;
    measure(experiment.network(), &args.files, |document| {
        experiment.check()?;
        experiment.run(document)
    })
}

fn list(papers: &[Paper]) -> String {
    let mut lines = vec![["name", "source", "state", "what"].map(str::to_owned).to_vec()];
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
