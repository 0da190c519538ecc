//! The rules and the dashboard of packaging/prometheus and the table of metrics in docs/operate.md
//! agree with what nodes export.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{Cluster, http, quorate_json, wait_for};
use saphyr::{LoadableYamlNode as _, Yaml};
use serde_json::Value;

/// Labels that Prometheus adds by itself.
const GIVEN: [&str; 2] = ["instance", "job"];
/// Words, other than metrics, that an expression may contain.
const WORDS: [&str; 16] = [
    "absent",
    "and",
    "by",
    "count",
    "delta",
    "histogram_quantile",
    "increase",
    "max",
    "min_over_time",
    "on",
    "or",
    "predict_linear",
    "rate",
    "sum",
    "time",
    "unless",
];

/// Exported metrics with their labels and the observed values of each label.
type Exported = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Adds the metrics in a node's response to `/metrics`.
fn take(exported: &mut Exported, text: &str) {
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, matchers) = series.split_once('{').unwrap_or((series, "}"));
        let labels = exported.entry(name.to_owned()).or_default();
        for (label, value) in matchers_of(matchers.strip_suffix('}').unwrap()) {
            labels.entry(label).or_default().insert(value);
        }
    }
}

/// Parses label matchers such as `a="b",c=~"d"`.
fn matchers_of(text: &str) -> Vec<(String, String)> {
    let matchers = text.split(',').filter(|matcher| !matcher.is_empty());
    let pair = |matcher: &str| {
        let (label, rest) = matcher.split_once('=').unwrap();
        let value = rest.trim_start_matches('~').trim_matches('"');
        (label.trim().to_owned(), value.to_owned())
    };
    matchers.map(pair).collect()
}

/// Parts of a PromQL expression.
#[derive(Default)]
struct Parts {
    /// Metrics, each with the label matchers in its braces.
    metrics: Vec<(String, Vec<(String, String)>)>,
    /// Labels in parentheses after `by` and `on`.
    labels: Vec<String>,
    /// Set if the result has only the labels given by `by`.
    aggregated: bool,
}

fn parts(expression: &str) -> Parts {
    let mut parts = Parts::default();
    let mut rest = expression;
    let mut depth = 0_i32;
    while let Some(first) = rest.chars().next() {
        let end = |text: &str| {
            let mut chars = text.char_indices();
            let end = chars.find(|(_, c)| !c.is_ascii_alphanumeric() && *c != '_');
            end.map_or(text.len(), |(at, _)| at)
        };
        if first.is_ascii_digit() || first == '[' {
            // A number or a duration.
            let at = rest.find([' ', ')', ']']).unwrap_or(rest.len());
            rest = rest[at..].trim_start_matches(']');
            continue;
        }
        if !first.is_ascii_alphabetic() {
            depth += i32::from(first == '(') - i32::from(first == ')');
            assert!(depth >= 0 && " ()<>=!*/+-,".contains(first), "{expression}");
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, behind) = rest.split_at(end(rest));
        rest = behind;
        if word == "by" || word == "on" {
            let (labels, behind) = rest.trim_start()[1..].split_once(')').unwrap();
            let labels = labels.split(',').map(|label| label.trim().to_owned());
            parts.labels.extend(labels);
            parts.aggregated |= word == "by";
            rest = behind;
        } else if !WORDS.contains(&word) {
            let (matchers, behind) = match rest.strip_prefix('{') {
                Some(inside) => inside.split_once('}').unwrap(),
                None => ("", rest),
            };
            parts.metrics.push((word.to_owned(), matchers_of(matchers)));
            rest = behind;
        }
    }
    assert_eq!(depth, 0, "{expression}");
    parts
}

/// Returns a string field of a rule.
fn text<'a>(rule: &'a Yaml<'_>, key: &str) -> &'a str {
    let value = rule.as_mapping_get(key);
    let value = value.and_then(|value| value.as_str());
    value.unwrap_or_else(|| panic!("no {key} in {rule:?}"))
}

fn keys(mapping: &Yaml<'_>) -> Vec<String> {
    let mapping = mapping.as_mapping().unwrap().iter();
    mapping.map(|(key, _)| key.as_str().unwrap().to_owned()).collect()
}

/// Checks the metrics and labels of an expression. Returns the labels of its result.
fn labels_of(name: &str, expression: &str, exported: &Exported) -> BTreeSet<String> {
    let parts = parts(expression);
    let mut left: BTreeSet<String> = GIVEN.map(str::to_owned).into();
    for (metric, matchers) in &parts.metrics {
        if metric == "up" {
            continue;
        }
        let labels = exported.get(metric);
        let labels = labels.unwrap_or_else(|| panic!("{name}: no node says {metric}"));
        // Variables of the dashboard begin with a dollar.
        for (label, values) in matchers.iter().filter(|(_, values)| !values.starts_with('$')) {
            for value in values.split('|') {
                let said = labels.get(label).is_some_and(|said| said.contains(value));
                assert!(said, "{name}: {metric} with {label} {value}");
            }
        }
        left.extend(labels.keys().cloned());
    }
    for label in &parts.labels {
        assert!(left.contains(label), "{name}: by {label}");
    }
    if parts.aggregated {
        left = parts.labels.into_iter().collect();
    }
    left
}

/// Checks the queries of the panels, and the labels in their legends.
fn check_dashboard(dashboard: &Value, exported: &Exported) {
    let panels = dashboard["panels"].as_array().unwrap();
    assert!(panels.len() > 15, "{}", panels.len());
    for panel in panels {
        let name = panel["title"].as_str().unwrap();
        for target in panel["targets"].as_array().unwrap() {
            let left = labels_of(name, target["expr"].as_str().unwrap(), exported);
            for label in target["legendFormat"].as_str().unwrap().split("{{").skip(1) {
                let (label, _) = label.split_once("}}").unwrap();
                assert!(left.contains(label), "{name}: {label}");
            }
        }
    }
}

fn check_rule(rule: &Yaml<'_>, exported: &Exported) {
    let name = text(rule, "alert");
    let known = ["alert", "expr", "for", "labels", "annotations"];
    for key in keys(rule) {
        assert!(known.contains(&&*key), "{name}: {key}");
    }
    if let Some(span) = rule.as_mapping_get("for") {
        let span = span.as_str().unwrap();
        let (number, unit) = span.split_at(span.len() - 1);
        assert!(number.parse::<u32>().is_ok() && "smhd".contains(unit));
    }
    let severity = text(&rule["labels"], "severity");
    assert!(["page", "ticket"].contains(&severity), "{name}: {severity}");
    let left = labels_of(name, text(rule, "expr"), exported);
    let annotations = &rule["annotations"];
    assert_eq!(keys(annotations), ["summary", "action"], "{name}");
    for key in ["summary", "action"] {
        let said = text(annotations, key);
        for inserted in said.split("{{").skip(1) {
            let (inserted, _) = inserted.split_once("}}").unwrap();
            match inserted.trim().strip_prefix("$labels.") {
                Some(label) => assert!(left.contains(label), "{name}: {label} in {said}"),
                None => assert_eq!(inserted.trim(), "$value", "{name}"),
            }
        }
    }
}

/// Returns the metrics in the table with their labels, such as `a` or `b{c}`.
fn in_table(page: &str) -> Vec<(String, Vec<&str>)> {
    let (_, table) = page.split_once("\n## Metrics\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let names = cells.filter(|name| !name.ends_with('…'));
    let name = |name| match str::split_once(name, '{') {
        Some((name, labels)) => {
            (name.to_owned(), labels.trim_end_matches('}').split(", ").collect())
        }
        None => (name.to_owned(), Vec::new()),
    };
    names.map(name).collect()
}

/// Returns the metrics exported by all nodes of a cluster that has used every feature.
fn exported() -> Exported {
    let cluster = Cluster::start(3, &[]);
    let leader = cluster.leader();
    let admins = cluster.nodes.admin_addresses();
    let admin = &admins[leader as usize - 1];
    let auxiliary = (1 + leader % 3).to_string();
    let made = quorate_json(&["member", "auxiliary", &auxiliary, "--json", "--admin", admin]);
    assert_eq!(made.0, 0, "{made:?}");
    let snapshot = quorate_json(&["snapshot", "--json", "--admin", admin]);
    assert_eq!(snapshot.0, 0, "{snapshot:?}");
    wait_for("how fast the log grows", || {
        let (_, text) = http(admin, "/metrics")?;
        text.contains("quorate_log_growth_bytes_per_second ").then_some(())
    });
    let mut exported = Exported::new();
    // Only nodes with certificates have it, which `tests/tls` starts.
    take(&mut exported, "quorate_certificate_ends_unix_seconds{what=\"node\",number=\"0\"} 1");
    for admin in &admins {
        take(&mut exported, &http(admin, "/metrics").unwrap().1);
    }
    exported
}

#[test]
fn rules_dashboard_and_table_name_metrics_and_labels_that_nodes_have() {
    let exported = exported();
    let page = include_str!("../../../../../docs/operate/alerts.md");
    let (_, scraped) = page.split_once("```yaml\n").unwrap();
    let (scraped, _) = scraped.split_once("\n```").unwrap();
    let rules = include_str!("../../../../../packaging/prometheus/rules.yaml");
    let dashboard = include_str!("../../../../../packaging/prometheus/grafana.json");
    check_dashboard(&serde_json::from_str(dashboard).unwrap(), &exported);
    let yaml = |text: &'static str| {
        let mut documents = Yaml::load_from_str(text).unwrap();
        assert_eq!(documents.len(), 1);
        documents.remove(0)
    };
    let job = &yaml(scraped)["scrape_configs"][0];
    assert_eq!(text(job, "job_name"), "quorate");
    let rules = yaml(rules);
    assert_eq!(keys(&rules), ["groups"]);
    let mut names = BTreeSet::new();
    for group in rules["groups"].as_sequence().unwrap() {
        assert_eq!(keys(group), ["name", "rules"]);
        for rule in group["rules"].as_sequence().unwrap() {
            check_rule(rule, &exported);
            let name = text(rule, "alert").to_owned();
            assert!(names.insert(name), "twice: {rule:?}");
        }
    }
    assert!(names.len() > 20, "{names:?}");

    let listed = in_table(include_str!("../../../../../docs/operate.md"));
    assert!(listed.len() > 30, "{listed:?}");
    for (name, mut listed) in listed {
        listed.sort_unstable();
        let labels = exported.get(&format!("quorate_{name}"));
        let labels = labels.unwrap_or_else(|| panic!("no node says {name}"));
        assert_eq!(labels.keys().collect::<Vec<_>>(), listed, "{name}");
    }
}

/// The rule about removed nodes can fire, because a removed node reports its removal until it is
/// switched off.
#[test]
fn a_removed_node_says_so_in_its_metrics() {
    let cluster = Cluster::start(3, &[]);
    let gone = 1 + cluster.leader() % 3;
    let admin = cluster.nodes.admin_addresses().swap_remove(gone as usize - 1);
    let says = |line: &str| {
        let (_, text) = http(&admin, "/metrics")?;
        text.lines().any(|other| other == line).then_some(())
    };
    wait_for("a member", || says("quorate_removed 0"));
    let others = cluster.nodes.admin_addresses().join(",");
    let node = gone.to_string();
    let removed = quorate_json(&["member", "remove", &node, "--json", "--admin", &others]);
    assert_eq!(removed.0, 0, "{removed:?}");
    wait_for("its own word", || says("quorate_removed 1"));
}

#[test]
fn an_expression_is_taken_apart() {
    let parts =
        parts("sum by (job) (rate(a{b=~\"c|d\",e=\"f\"}[5m])) > 0.8 * g unless on (job) h == 1");
    let of = |name: &str, matchers: &[(&str, &str)]| {
        let matchers = matchers.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned()));
        (name.to_owned(), matchers.collect())
    };
    let expected = [of("a", &[("b", "c|d"), ("e", "f")]), of("g", &[]), of("h", &[])];
    assert_eq!(parts.metrics, expected);
    assert_eq!((parts.labels, parts.aggregated), (vec!["job".to_owned(); 2], true));
}
