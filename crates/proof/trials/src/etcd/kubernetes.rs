//! Storage tests of Kubernetes' API server. Each starts an etcd, which is replaced by a Quorate
//! node here, with both stores.

use std::{fs, process::Command};

use crate::{
    go::{GoToolchain, NO_GO_MESSAGE},
    shell::{self, Failed, read_output, report_skip, workspace_root},
};

/// The module under test. Its own `go.sum` lists its dependencies.
const TESTED_MODULE: &str = "k8s.io/apiserver@v0.35.3";
const TESTED_PACKAGE: &str = "pkg/storage/etcd3";
/// Excluded test. It configures progress notifications every second; ours come every ten minutes,
/// etcd's default.
const EXCLUDED_TEST: &str = "^TestProgressNotify$";

pub(crate) fn run() -> Result<(), Failed> {
    let Some(go) = GoToolchain::find() else {
        return report_skip("etcd kubernetes", NO_GO_MESSAGE);
    };
    let folder = shell::build_folder().join("kubernetes");
    let source = match super::copy_module(&go, TESTED_MODULE, &folder) {
        Ok(source) => source,
        Err(Failed(why)) => {
            let why = format!("{TESTED_MODULE} cannot be fetched: {why}");
            return report_skip("etcd kubernetes", &why);
        }
    };
    let theirs = source.join(TESTED_PACKAGE).join("testserver/test_server.go");
    fs::copy(workspace_root().join("tools/kubernetes/test_server.go"), theirs)?;
    let tests = folder.join("tests");
    let mut command = go.go_command_in(&source);
    command.args(["test", "-c", "-o"]).arg(&tests);
    read_output(command.arg(format!("./{TESTED_PACKAGE}")))?;
    shell::build_programs()?;
    for store in ["memory", "lsm"] {
        let mut command = Command::new(&tests);
        command
            .current_dir(source.join(TESTED_PACKAGE))
            .env("QUORATE", shell::program_path("quorate"))
            .env("QUORATE_STORE", store)
            .args(["-test.v", "-test.parallel", "1", "-test.timeout", "30m"])
            .args(["-test.skip", EXCLUDED_TEST]);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let count = |outcome: &str| text.lines().filter(|line| line.contains(outcome)).count();
        let (passed, failed) = (count("--- PASS"), count("--- FAIL"));
        println!("--store {store}: {passed} tests of Kubernetes' storage pass, {failed} fail");
        if !output.status.success() {
            let place = folder.join(format!("{store}.log"));
            fs::write(&place, &*output.stdout)?;
            return Err(Failed(format!("they are in {}", place.display())));
        }
    }
    Ok(())
}
