//! Traffic of this node's clients: totals, and rates over the last 1.6 seconds, as in Redis.

/// Time in milliseconds between two samples.
const SAMPLE_MS: u64 = 100;
/// Number of samples averaged for a rate.
const SAMPLES: usize = 16;

/// Number of requests, bytes received and bytes sent.
type Counts = [u64; 3];

#[derive(Debug, Default)]
pub(super) struct Traffic {
    /// Totals since the start, or since CONFIG RESETSTAT.
    totals: Counts,
    /// Totals at the last sample.
    totals_at_sample: Counts,
    sampled_ms: u64,
    /// Rates per second, each for one interval of [`SAMPLE_MS`].
    rates: [Counts; SAMPLES],
    /// Index of the oldest sample.
    oldest_index: usize,
}

impl Traffic {
    pub(super) const fn add_request(&mut self) {
        self.totals[0] += 1;
    }

    pub(super) const fn add_received(&mut self, bytes: usize) {
        self.totals[1] += bytes as u64;
    }

    pub(super) const fn add_sent(&mut self, bytes: usize) {
        self.totals[2] += bytes as u64;
    }

    pub(super) fn reset(&mut self) {
        *self = Self { sampled_ms: self.sampled_ms, ..Self::default() };
    }

    /// Takes a sample if it is due. While clients are idle, no request triggers a sample, so a
    /// sample represents the whole time since the previous one.
    pub(super) fn sample(&mut self, now_ms: u64) {
        let elapsed_ms = now_ms.wrapping_sub(self.sampled_ms);
        if elapsed_ms < SAMPLE_MS {
            return;
        }
        let now = self.totals;
        let before = std::mem::replace(&mut self.totals_at_sample, now);
        self.sampled_ms = now_ms;
        let rate = std::array::from_fn(|at| {
            let count = u128::from(now[at] - before[at]);
            u64::try_from(count * 1000 / u128::from(elapsed_ms)).unwrap_or(u64::MAX)
        });
        let stands_for = usize::try_from(elapsed_ms / SAMPLE_MS).unwrap_or(SAMPLES);
        for _ in 0..stands_for.min(SAMPLES) {
            self.rates[self.oldest_index] = rate;
            self.oldest_index = (self.oldest_index + 1) % SAMPLES;
        }
    }

    /// Writes the lines for the `stats` section of INFO.
    pub(super) fn write(&self, text: &mut impl std::fmt::Write) -> std::fmt::Result {
        let [requests, received, sent] = self.totals;
        let [requests_rate, received_rate, sent_rate]: Counts = std::array::from_fn(|at| {
            self.rates.iter().map(|rates| rates[at]).sum::<u64>() / SAMPLES as u64
        });
        write!(text, "total_commands_processed:{requests}\r\n")?;
        write!(text, "instantaneous_ops_per_sec:{requests_rate}\r\n")?;
        write!(text, "total_net_input_bytes:{received}\r\ntotal_net_output_bytes:{sent}\r\n")?;
        for (name, rate) in [("input", received_rate), ("output", sent_rate)] {
            let hundredths = u128::from(rate) * 100 / 1024;
            let (whole, rest) = (hundredths / 100, hundredths % 100);
            write!(text, "instantaneous_{name}_kbps:{whole}.{rest:02}\r\n")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Traffic;

    fn rates(traffic: &Traffic) -> Vec<String> {
        let mut text = String::new();
        traffic.write(&mut text).unwrap();
        let lines = text.lines().filter(|line| line.starts_with("instantaneous_"));
        lines.map(|line| line.split_once(':').unwrap().1.to_owned()).collect()
    }

    #[test]
    fn rates_are_averages_of_the_last_samples() {
        let mut traffic = Traffic::default();
        traffic.sample(1_000_000);
        for at in 1..=16 {
            for _ in 0..50 {
                traffic.add_request();
            }
            traffic.add_received(1024);
            traffic.sample(1_000_000 + at * 100);
        }
        assert_eq!(rates(&traffic), ["500", "10.00", "0.00"]);
        // Half of the samples are from idle time.
        traffic.sample(1_000_000 + 2400);
        assert_eq!(rates(&traffic), ["250", "5.00", "0.00"]);
        // Too early for another sample.
        traffic.add_sent(1 << 20);
        traffic.sample(1_000_000 + 2499);
        assert_eq!(rates(&traffic), ["250", "5.00", "0.00"]);
        traffic.sample(1_000_000 + 1_000_000);
        assert_eq!(rates(&traffic), ["0", "0.00", "1.02"]);
    }

    #[test]
    fn clock_set_back_does_not_stop_sampling() {
        let mut traffic = Traffic::default();
        traffic.sample(5000);
        traffic.sample(1000);
        for _ in 0..16 {
            traffic.add_request();
        }
        traffic.sample(1100);
        assert_eq!(rates(&traffic)[0], "10");
    }
}
