//! go-redis: its module includes its tests, for Ginkgo.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use super::{Failed, Outcome, Report, Test, TestFile, output_of, with_time_limit, work_folder};
use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    shell::{self, read_output, workspace_root},
};

const TESTS: &str = "tests";

/// Fetches the version that `cargo xtask clients` uses, as a copy that can be built.
pub(super) fn fetch() -> Result<PathBuf, Failed> {
    let go = GoToolchain::find().ok_or_else(|| Failed(NO_GO_MESSAGE.to_owned()))?;
    let client = workspace_root().join("tools/goclient");
    read_output(go.go_command_in(&client).args(["mod", "download"]))?;
    let module = "github.com/redis/go-redis/v9";
    let source =
        read_output(go.go_command_in(&client).args(["list", "-m", "-f", "{{.Dir}}", module]))?;
    let source = Path::new(source.trim());
    let name = source.file_name().unwrap_or_default();
    let copy = work_folder("go")?.join(name);
    if !copy.join(TESTS).is_file() {
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        shell::copy_folder(source, &copy)?;
        read_output(go.go_command_in(&copy).args(["test", "-c", "-o", TESTS, "."]))?;
    }
    Ok(copy)
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Run {
    spec_reports: Option<Vec<Spec>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    message: String,
}

pub(super) fn run(task: &TestFile<'_>) -> Result<Report, Failed> {
    // Run it the way its authors test an existing server: without starting other servers, Sentinel
    // or a cluster.
    let server = task.report.with_extension("server");
    let place = serde_json::json!({
        "node": { "raw_endpoints": [{ "dns_name": "127.0.0.1", "port": task.port }] }
    });
    fs::write(&server, place.to_string())?;
    let mut command = with_time_limit(task.folder.join(TESTS));
    command
        .args(["-test.run", "^TestGinkgoSuite$", "-test.short"])
        .arg(format!("-ginkgo.focus-file=(^|/){}[.]go", task.file))
        .arg(format!("-ginkgo.json-report={}", task.report.display()))
        .current_dir(task.folder)
        .env("RE_CLUSTER", "true")
        .env("REDIS_ENDPOINTS_CONFIG_PATH", server)
        // The conditional commands of Redis 8.4 are implemented here.
        .env("REDIS_VERSION", "8.4");
    let text = output_of(&mut command)?;
    // The file is missing if the suite was killed.
    let json = fs::read_to_string(task.report).unwrap_or_default();
    let runs: Vec<Run> = serde_json::from_str(&json).unwrap_or_default();
    let complete = !runs.is_empty();
    let specs = runs.into_iter().filter_map(|run| run.spec_reports).flatten();
    Ok(Report { test_results: specs.filter_map(Spec::into_test).collect(), complete, text })
}

impl Spec {
    /// Converts a spec to a test. Yields `None` for the suite's setup, and for specs of other
    /// files, which are skipped without a reason.
    fn into_test(self) -> Option<Test> {
        let mut names = self.container_hierarchy_texts.unwrap_or_default();
        names.push(self.leaf_node_text);
        let details = self.failure.map_or_else(String::new, |failure| failure.message);
        let outcome = match self.state.as_str() {
            "passed" if names.len() == 1 => return None,
            "passed" => Outcome::Passed,
            "skipped" | "pending" if details.is_empty() => return None,
            "skipped" | "pending" => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        Some(Test { name: names.join(" "), outcome, details })
    }
}
