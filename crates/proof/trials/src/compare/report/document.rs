//! The comparison's JSON report, for programs.

use serde_json::{Value, json};

use super::{
    super::{
        CompareOptions, OUTSTANDING, VALUE_BYTES,
        figures::{ComparisonResults, MeasuredLoad, Spread, SystemTurn},
        systems::{SYSTEMS, System},
    },
    CAVEATS, FigureOrigin, format_flags,
    targets::target_verdicts,
};

pub(super) fn render_json(
    wish: &CompareOptions,
    origin: &FigureOrigin,
    systems: &[&System],
    results: &ComparisonResults,
) -> String {
    let known = |id: &str| SYSTEMS.iter().find(|system| system.id() == id);
    let about = |system: &&System| {
        let id = system.id();
        let trials = results.trials.iter().filter(|trial| trial.system == id);
        let trials: Vec<Value> = trials
            .map(|trial| json!({"connections": trial.connections, "load": load_json(&trial.measured)}))
            .collect();
        let figure =
            |figure: fn(&MeasuredLoad) -> f64| spread_json(&results.figure_at_maximum(&id, figure));
        let maxima = || results.turns_of(&id).filter_map(|turn| turn.maximum.as_ref());
        json!({
            "scenario": "full load, closed loop",
            "system": system.name,
            "durability": system.class,
            "store": system.store(),
            "version": origin.system_version(system),
            "transport": system.transport,
            "storage": system.storage,
            "by_us": system.own_parts,
            "settings": system.settings,
            "value_bytes": VALUE_BYTES,
            "outstanding": OUTSTANDING,
            "connections": results.best_trial(&id).map(|trial| trial.connections),
            "trials": trials,
            "offered_per_s": Value::Null,
            "achieved_per_s": figure(|measured| measured.per_second),
            "cpu_us_per_op": figure(|measured| measured.cpu_us),
            "load_cpu_us_per_op": figure(|measured| measured.load_cpu_us),
            "p50_us": figure(|measured| measured.p50_us),
            "p95_us": figure(|measured| measured.p95_us),
            "p99_us": figure(|measured| measured.p99_us),
            "p999_us": figure(|measured| measured.p999_us),
            "max_us": figure(|measured| measured.max_us),
            "errors": maxima().map(|measured| measured.errors + measured.lost).sum::<u64>(),
            "repeats": maxima().filter(|measured| measured.invalid_reason().is_none()).count(),
            "foreign_cpu": figure(|measured| measured.foreign_cpu),
            // No bare program takes turns here; `quorate bench log` compares with one.
            "ceiling": Value::Null,
            "ratio_to_ceiling": Value::Null,
            "rounds": results.turns_of(&id).map(turn_json).collect::<Vec<_>>(),
        })
    };
    let verdicts: Vec<Value> = target_verdicts(systems, results)
        .iter()
        .map(|verdict| {
            json!({
                "what": verdict.description,
                "wanted": verdict.wanted_value,
                "found": spread_json(&verdict.found_values),
                "reached": verdict.is_reached,
            })
        })
        .collect();
    let failures: Vec<Value> = results
        .failures
        .iter()
        .map(|(id, why)| json!({"system": id, "what": known(id).map(|system| system.description), "why": why}))
        .collect();
    let document = json!({
        "command": format!("cargo xtask compare{}", format_flags(wish)),
        "unix_time": origin.unix_time,
        "seconds": results.seconds,
        "environment": {
            "commit": origin.commit,
            "kernel": origin.machine.kernel_release,
            "cpus": origin.machine.cpu_count,
            "cpu_model": origin.machine.cpu_model,
        },
        "systems": systems.iter().map(about).collect::<Vec<_>>(),
        "targets": verdicts,
        "failures": failures,
        "notes": results.notes,
        "cautions": CAVEATS,
    });
    // Omit spaces, which would be half of the document.
    format!("{document}\n")
}

fn turn_json(turn: &SystemTurn) -> Value {
    let latencies: Vec<Value> = turn
        .latencies
        .iter()
        .map(|(peer, rate, one)| json!({"half_of": peer, "offered_per_s": rate, "load": load_json(one)}))
        .collect();
    json!({
        "round": turn.round + 1,
        "maximum": turn.maximum.as_ref().map(load_json),
        "latencies": latencies,
        "acknowledged": turn.applied.map(|applied| applied.acknowledged),
        "applied_by_most": turn.applied.map(|applied| applied.applied_by_most),
        "trouble": turn.early_end_reason,
    })
}

fn load_json(one: &MeasuredLoad) -> Value {
    json!({
        "achieved_per_s": one.per_second,
        "p50_us": one.p50_us,
        "p95_us": one.p95_us,
        "p99_us": one.p99_us,
        "p999_us": one.p999_us,
        "max_us": one.max_us,
        "errors": one.errors,
        "lost": one.lost,
        "late_share": one.late_share,
        "first_error": one.first_error,
        "cpu_us_per_op": one.cpu_us,
        "load_cpu_us_per_op": one.load_cpu_us,
        "foreign_cpu": one.foreign_cpu,
    })
}

fn spread_json(spread: &Spread) -> Value {
    json!({
        "median": spread.median(),
        "low": spread.minimum(),
        "high": spread.maximum(),
        "count": spread.count(),
    })
}
