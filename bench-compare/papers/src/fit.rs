//! The paper's performance model, with parameters fitted to measurements and then compared with
//! them.
//!
//! Santos and Schiper, §5, "Setting model parameters": the leader's processor time per instance, at
//! several sizes of requests and batches, is fitted by the two linear laws φcli and φrep. This
//! program does so by least squares of the relative errors, with no negative parameters. Header
//! sizes are fitted in the same way from the bytes that the leader sent to its peers. Bandwidth and
//! delay are measured by a bare program on the same links.

use quorate_bench::{
    figure::{median, round_to_four_digits},
    report::ModelComparison,
    row::Row,
    wan::MeasuredLink,
};
use quorate_tuner::model::{
    Bandwidth, Bytes, InstancePrediction, LinearCost, Micros, Model, Network, Prediction, Workload,
};

/// Size of a reply to a client in bytes: a length, a status, and eight bytes of payload.
const REPLY_BYTES: f64 = 13.0;
/// Size of a vote in bytes. A vote is a frame header.
const VOTE_BYTES: f64 = 160.0;
const NODE_COUNT: f64 = 3.0;
/// Number of iterations of the fit, each of which reduces the error.
const ITERATION_COUNT: usize = 20_000;
/// Threshold below which parameters count as zero. It is a picosecond, or a millionth of a byte,
/// per byte or message.
const ZERO_THRESHOLD: f64 = 1e-6;

/// Measured costs for one value size and batch size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredPoint {
    pub value_bytes: f64,
    /// Mean number of commands per batch.
    pub commands_per_batch: f64,
    /// Leader's processor time per command, in microseconds.
    pub leader_cpu_us: f64,
    /// Bytes sent to one peer per command.
    pub bytes_per_peer: f64,
}

impl MeasuredPoint {
    /// Returns the point for a row; `None` if the row is invalid or lacks a counter.
    pub fn from_row(row: &Row) -> Option<Self> {
        let leader = row.roles.iter().find(|role| role.role == "leader")?;
        #[expect(clippy::cast_precision_loss, reason = "a size")]
        let point = Self {
            value_bytes: row.value_bytes as f64,
            commands_per_batch: row.commands_per_batch?,
            leader_cpu_us: leader.user_us_per_op + leader.system_us_per_op,
            bytes_per_peer: row.peer_bytes_per_op? / (NODE_COUNT - 1.0),
        };
        let all = [point.commands_per_batch, point.leader_cpu_us, point.bytes_per_peer];
        let known = all.iter().all(|figure| figure.is_finite() && *figure > 0.0);
        (row.valid && known).then_some(point)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedParameters {
    model: Model,
    /// Bytes that a request occupies in a batch in addition to its value.
    request_header_bytes: f64,
    /// Bytes that a batch occupies in addition to its requests.
    batch_header_bytes: f64,
}

/// Compares a predicted rate with a measured one.
pub fn compare_rates(
    what: String,
    predicted: f64,
    measured: f64,
    instance: &InstancePrediction,
) -> ModelComparison {
    ModelComparison {
        what,
        predicted: round_to_four_digits(predicted),
        measured: round_to_four_digits(measured),
        error: round_to_four_digits(predicted / measured - 1.0),
        window_cpu: round_to_four_digits(instance.window_cpu()),
        window_net: round_to_four_digits(instance.window_net()),
    }
}

/// Returns the median and maximum of the absolute errors; `None` if `all` is empty.
pub fn absolute_errors(all: &[ModelComparison]) -> Option<(f64, f64)> {
    let errors = || all.iter().map(|one| one.error.abs());
    let worst = errors().reduce(f64::max)?;
    Some((median(errors()), worst))
}

impl FittedParameters {
    /// Fits the parameters to all points. Returns `None` if there are no points.
    pub fn fit(link: MeasuredLink, points: &[MeasuredPoint]) -> Option<Self> {
        if points.is_empty() {
            return None;
        }
        // bytes per command = value + request header + batch header / commands
        let headers = points.iter().map(|point| {
            let over = point.bytes_per_peer - point.value_bytes;
            ([1.0, 1.0 / point.commands_per_batch], over, point.bytes_per_peer)
        });
        let [request_header, batch_header] = least_squares(headers);
        // φ per command = φcli(request + answer) + (n − 1) · φrep(batch + vote) / commands
        let processor = points.iter().map(|point| {
            let request = point.value_bytes + request_header;
            let batch = request * point.commands_per_batch + batch_header;
            let share = (NODE_COUNT - 1.0) / point.commands_per_batch;
            let features = [1.0, request + REPLY_BYTES, share, share * (batch + VOTE_BYTES)];
            (features, point.leader_cpu_us, point.leader_cpu_us)
        });
        let [client, client_byte, replica, replica_byte] = least_squares(processor);
        let law = |fixed, per_byte| LinearCost { fixed: Micros(fixed), per_byte: Micros(per_byte) };
        let model = Model::from_paper(
            NODE_COUNT,
            Network::Wan,
            Bandwidth(link.bytes_per_s),
            Micros(link.round_trip_us / 2.0),
            law(client, client_byte),
            law(replica, replica_byte),
        );
        Some(Self { model, request_header_bytes: request_header, batch_header_bytes: batch_header })
    }

    fn workload(&self, value_bytes: f64) -> Workload {
        Workload {
            request: Bytes(value_bytes + self.request_header_bytes),
            answer: Bytes(REPLY_BYTES),
            batch_header: Bytes(self.batch_header_bytes),
            vote: Bytes(VOTE_BYTES),
            // The time to execute a command is part of the client cost.
            execute: Micros(0.0),
            outstanding: None,
        }
    }

    /// Predicts the rate with batches of up to `commands` commands and `window` batches in
    /// parallel, using the paper's formula. One rule is added: batches cannot contain more commands
    /// than all clients have outstanding.
    pub fn predict(
        &self,
        value_bytes: f64,
        commands: f64,
        window: f64,
        clients: f64,
    ) -> Prediction {
        let commands = commands.min(clients / window).max(1.0);
        self.model.predict(&self.workload(value_bytes), commands, window)
    }

    pub fn instance(&self, value_bytes: f64, commands: f64) -> InstancePrediction {
        self.model.predict_instance(&self.workload(value_bytes), commands, 1.0)
    }

    /// Formats the parameters in the paper's units: milliseconds, with x in thousands of bytes.
    pub fn describe(&self) -> String {
        let Model { bandwidth, one_way_delay, client_cost, replica_cost, .. } = self.model;
        let law = |law: LinearCost| {
            format!(
                "{}x + {} ms",
                round_to_four_digits(law.per_byte.0),
                round_to_four_digits(law.fixed.0 / 1000.0)
            )
        };
        format!(
            "B = {} Mbit/s without headers of TCP, L = {} ms, φcli(x) = {}, φrep(x) = {} (x in \
             thousands of bytes), {} bytes of header per request, {} per batch",
            round_to_four_digits(bandwidth.0 * 8e-6),
            round_to_four_digits(one_way_delay.0 / 1000.0),
            law(client_cost),
            law(replica_cost),
            round_to_four_digits(self.request_header_bytes),
            round_to_four_digits(self.batch_header_bytes)
        )
    }
}

/// Returns the non-negative factors that minimize the squared errors of the targets, each error
/// relative to its scale. Points are (features, target, scale).
fn least_squares<const N: usize>(points: impl Iterator<Item = ([f64; N], f64, f64)>) -> [f64; N] {
    let rows: Vec<([f64; N], f64)> = points
        .map(|(features, target, scale)| (features.map(|x| x / scale), target / scale))
        .collect();
    let mut factors = [0.0; N];
    for _ in 0..ITERATION_COUNT {
        for n in 0..N {
            // Optimizes one factor while the others remain fixed.
            let (mut up, mut down) = (0.0, 0.0);
            for (features, target) in &rows {
                let others = (0..N)
                    .filter(|other| *other != n)
                    .map(|other| features[other] * factors[other]);
                up += features[n] * (target - others.sum::<f64>());
                down += features[n] * features[n];
            }
            factors[n] = if down > 0.0 { (up / down).max(0.0) } else { 0.0 };
        }
    }
    // Values that only approach zero are set to zero.
    factors.map(|factor| if factor < ZERO_THRESHOLD { 0.0 } else { factor })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: MeasuredLink = MeasuredLink { round_trip_us: 100_000.0, bytes_per_s: 1.2e6 };

    /// Returns the point of a system with 5 bytes per request, 177 per batch, φcli = 2 + 0.001x µs,
    /// φrep = 20 µs.
    fn point(value_bytes: f64, commands: f64) -> MeasuredPoint {
        let request = value_bytes + 5.0;
        MeasuredPoint {
            value_bytes,
            commands_per_batch: commands,
            leader_cpu_us: 2.0 + 0.001 * (request + REPLY_BYTES) + 2.0 * 20.0 / commands,
            bytes_per_peer: request + 177.0 / commands,
        }
    }

    fn points() -> Vec<MeasuredPoint> {
        let sizes = [128.0, 1024.0, 8192.0];
        let all = sizes.map(|size| [1.0, 2.0, 8.0, 32.0].map(|k| point(size, k)));
        all.concat()
    }

    #[test]
    fn parameters_are_found_again() {
        let found = FittedParameters::fit(LINK, &points()).unwrap();
        assert!((found.request_header_bytes - 5.0).abs() < 0.01, "{found:?}");
        assert!((found.batch_header_bytes - 177.0).abs() < 0.01, "{found:?}");
        for point in points() {
            let instance = found.instance(point.value_bytes, point.commands_per_batch);
            let each = instance.processor.0 / point.commands_per_batch;
            assert!((each / point.leader_cpu_us - 1.0).abs() < 0.01, "{found:?}");
        }
        assert_eq!(FittedParameters::fit(LINK, &[]), None);
    }

    #[test]
    fn a_full_link_is_the_limit_and_a_small_window_is_one() {
        let found = FittedParameters::fit(LINK, &points()).unwrap();
        let full = found.predict(1024.0, 32.0, 8.0, 1200.0).throughput;
        let bytes = 1029.0 + 177.0 / 32.0;
        assert!((full / (1.2e6 / bytes) - 1.0).abs() < 0.01, "{full}");
        let one = found.predict(1024.0, 1.0, 64.0, 1200.0).throughput;
        assert!((600.0..640.0).contains(&one), "64 in 101 ms: {one}");
    }

    #[test]
    fn errors_are_shares_of_what_was_measured() {
        let found = FittedParameters::fit(LINK, &points()).unwrap();
        let instance = found.instance(128.0, 1.0);
        let of = |rate, measured| compare_rates("x".to_owned(), rate, measured, &instance);
        let all = [of(110.0, 100.0), of(80.0, 100.0), of(100.0, 100.0)];
        assert_eq!(absolute_errors(&all), Some((0.1, 0.2)));
        assert_eq!(absolute_errors(&[]), None);
    }
}
