//! Tests of the page's own script that joins the nodes' histories, run in Node.js.

use std::{
    io::Write as _,
    process::{Command, Stdio},
};

const SCRIPT: &str = include_str!("../../../../operate/admin/src/server/dashboard/seconds.js");
/// Prints the number of seconds in some histories, and the changes of leader among them.
const STATEMENTS: &str = r"
    const history = (node, leads, spans) => {
      let at_ms = 1_000_400;
      return { node, samples: spans.map(span_ms => ({ at_ms: at_ms += span_ms, span_ms, leader: leads(at_ms) })) };
    };
    const show = histories => {
      const seconds = align(histories);
      const changes = seconds.map(([second, , leader]) => [second, leader]).filter(([, leader], at) => at === 0 || leader !== seconds[at - 1][2]);
      console.log(seconds.length, JSON.stringify(changes));
    };
    const steady = Array.from({ length: 60 }, () => 1003);
    const late = Array.from({ length: 60 }, (_, at) => at % 2 ? 500 : 1500);
    show([history(2, () => 1, steady), history(1, () => 1, late)]);
    const at = 1_020_000; // Node 2 is elected, and knows no leader for two seconds.
    show([
      history(1, ms => ms < at ? 1 : 2, steady),
      history(2, ms => ms < at ? 1 : ms < at + 2000 ? null : 2, late),
    ]);
    show([history(1, ms => ms < at ? 1 : null, steady)]);
";

/// Samples are taken a little later each time, and some much later.
#[test]
fn late_samples_of_a_steady_leader_show_no_changes() {
    let mut node = Command::new("node");
    node.arg("--input-type=module").stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut node) = node.spawn() else {
        println!("skipped: Node.js is not installed");
        return;
    };
    let mut stdin = node.stdin.take().unwrap();
    stdin.write_all(format!("{SCRIPT}\n{STATEMENTS}").as_bytes()).unwrap();
    drop(stdin);
    let output = node.wait_with_output().unwrap();
    let expected = "60 [[1001,1]]\n60 [[1001,1],[1022,2]]\n60 [[1001,1],[1020,null]]\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}
