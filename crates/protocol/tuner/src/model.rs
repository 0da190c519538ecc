//! The analytical model of Paxos with batching and pipelining: predicts the performance of a batch
//! size and window.
//!
//! Santos and Schiper, "Optimizing Paxos with batching and pipelining" (§4), model how long an
//! instance keeps the leader's processor and its outgoing link busy, and how long it takes from
//! start to end. From that follows how many instances must run in parallel to keep the busiest
//! resource busy, `w = ⌈min(T/φcpu, T/φnet)⌉`. [`Model::from_paper`] is exactly that model.
//! Extensions, which the paper's form does not use, are the disk with group commit ([`Disk`]),
//! several cores ([`Cores`]), and a load that does not fill every batch
//! ([`Workload::outstanding`]).

use std::fmt;

pub use crate::quantity::{Bandwidth, Bytes, LinearCost, Micros};

/// The network between the nodes (§4.1, "Network busy time").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The leader's single outgoing link carries everything, including replies to clients.
    Lan,
    /// Each other node is reached over a separate channel.
    Wan,
}

/// Processors available to the leader. The paper has a single one ([`Cores::ONE`]).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cores {
    /// Maximum number of processors that the leader's process keeps busy.
    pub usable_cores: f64,
    /// Fraction of an instance's work that may run in parallel with the protocol, from 0 to 1. This
    /// is the work of reading from clients, replying to them, and executing on a separate thread.
    pub parallel_fraction: f64,
}

impl Cores {
    /// One processor, which does everything in sequence (§4: "execution within each process is
    /// sequential").
    pub const ONE: Self = Self { usable_cores: 1.0, parallel_fraction: 0.0 };

    /// Returns the fraction of the work that the busiest processor does: the sequential part, or an
    /// equal share of everything if that is more.
    fn busiest(self) -> f64 {
        let parallel = self.parallel_fraction.clamp(0.0, 1.0);
        (1.0 - parallel).max(1.0 / self.usable_cores.max(1.0))
    }
}

/// Stable storage at each node. The paper has none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Disk {
    /// Time from the start of a write until it is on stable storage, without the time for its
    /// bytes.
    pub flush: Micros,
    pub bandwidth: Bandwidth,
    /// Maximum number of writes in flight. If it is more than one, the next write is ready when a
    /// flush ends.
    pub writes_in_flight_max: f64,
    /// Maximum number of bytes in one write.
    pub write_max: Bytes,
}

/// Parameters of the system (Table 1 of the paper, upper half).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// n: number of nodes, including the leader.
    pub nodes: f64,
    pub network: Network,
    /// B: bandwidth of the leader's link (LAN), or of its channel to each other node (WAN).
    pub bandwidth: Bandwidth,
    /// L: one-way delay between nodes, half a round trip.
    pub one_way_delay: Micros,
    /// φcli: the leader's processor time to receive one request and reply to it. The argument is
    /// the size of both together.
    pub client_cost: LinearCost,
    /// φrep: the leader's processor time per batch for one other node. The argument is the size of
    /// 2A and 2B together.
    pub replica_cost: LinearCost,
    /// The disk of each node; `None` in the paper's form, where votes count as soon as they are in
    /// memory.
    pub disk: Option<Disk>,
    /// Processors of the leader; [`Cores::ONE`] in the paper's form.
    pub cores: Cores,
}

/// Parameters of the load (Table 1, middle).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Workload {
    /// `S_req`: size of a request in a batch, including its own header.
    pub request: Bytes,
    /// `S_ans`: size of a reply.
    pub answer: Bytes,
    /// c: size of a batch without its requests.
    pub batch_header: Bytes,
    /// `S_2b`: size of a vote.
    pub vote: Bytes,
    /// φexec: processor time to execute one request.
    pub execute: Micros,
    /// Total number of requests that clients have outstanding; `None`, as in the paper, if there
    /// are always enough to fill every batch.
    pub outstanding: Option<f64>,
}

/// The resource that limits the throughput of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bottleneck {
    /// The leader's processor is busy all the time.
    Processor,
    /// The leader's outgoing link is busy all the time.
    Link,
    /// The disks are busy all the time.
    Disk,
    /// The window is full, so no more instances may start until one completes.
    Window,
    /// The load is too small, because clients have no more requests outstanding.
    ClientLoad,
}

impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Processor => "the leader's processor",
            Self::Link => "the leader's link",
            Self::Disk => "the disk",
            Self::Window => "the window",
            Self::ClientLoad => "the load",
        })
    }
}

/// Predicted duration of one instance, and the time for which it keeps each resource busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InstancePrediction {
    /// `S_2a`: size of the proposal.
    pub proposal_bytes: Bytes,
    /// `T_inst`: time from forming the batch to the replies, if no other instance runs.
    pub duration: Micros,
    /// φcpu: time on the leader's busiest processor.
    pub processor: Micros,
    /// φlan or φwan: time on the leader's link.
    pub link: Micros,
    /// Time on the disk, as this instance's share of a group commit; 0 without a disk.
    pub disk: Micros,
}

impl InstancePrediction {
    /// Returns the number of instances that keep the processor busy, `w_cpu = T_inst / φcpu`
    /// (§4.2).
    pub fn window_cpu(&self) -> f64 {
        self.duration.0 / self.processor.0
    }

    /// Returns the number of instances that keep the link busy, `w_net = T_inst / φnet` (§4.2).
    pub fn window_net(&self) -> f64 {
        self.duration.0 / self.link.0
    }

    /// Returns the window that keeps the busiest resource busy, `⌈min(w_cpu, w_net, …)⌉`, at least
    /// 1.
    pub fn window(&self) -> f64 {
        (self.duration.0 / self.busiest_resource_time().0).ceil().max(1.0)
    }

    fn busiest_resource_time(&self) -> Micros {
        self.processor.max(self.link).max(self.disk)
    }
}

/// Predicted performance of a configuration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Throughput in requests per second.
    pub throughput: f64,
    /// Time from forming a batch to the replies, with the other batches of the window in flight.
    pub latency: Micros,
    pub bottleneck: Bottleneck,
}

impl Model {
    /// Creates a model in the paper's form: no disk, one processor.
    pub const fn from_paper(
        nodes: f64,
        network: Network,
        bandwidth: Bandwidth,
        one_way: Micros,
        client: LinearCost,
        replica: LinearCost,
    ) -> Self {
        Self {
            nodes,
            network,
            bandwidth,
            one_way_delay: one_way,
            client_cost: client,
            replica_cost: replica,
            disk: None,
            cores: Cores::ONE,
        }
    }

    /// Returns the prediction for one instance with `k` requests, while `window` instances run in
    /// parallel. The window matters only to the disk, because parallel instances share its flushes.
    pub fn predict_instance(&self, load: &Workload, k: f64, window: f64) -> InstancePrediction {
        let proposal = load.request * k + load.batch_header;
        let answers = load.answer * k;
        let execute = load.execute * k;
        let processor = self.processor(load, k, proposal);
        let link = self.link(proposal, answers);
        let (disk, written) = self.disk(load, proposal, window);
        let wall = match self.network {
            Network::Lan => {
                let majority = (self.nodes / 2.0).floor();
                let send = self.bandwidth.transfer_time(proposal * majority);
                // (1), (2), (3)
                let by_processor = processor + send * 0.5 + written;
                let by_latency = send
                    + self.one_way_delay * 2.0
                    + written
                    + execute
                    + self.bandwidth.transfer_time(answers);
                by_processor.max(link).max(by_latency)
            }
            Network::Wan => {
                let send = self.bandwidth.transfer_time(proposal);
                // (4), (5), (6)
                let by_processor = processor + send + written;
                let by_latency = send + self.one_way_delay * 2.0 + written + execute;
                by_processor.max(link).max(by_latency)
            }
        };
        InstancePrediction {
            proposal_bytes: proposal,
            duration: wall,
            processor: processor * self.cores.busiest(),
            link,
            disk,
        }
    }

    /// `k·φcli(S_req + S_ans) + (n−1)·φrep(S_2a + S_2b) + k·φexec`
    fn processor(&self, load: &Workload, k: f64, proposal: Bytes) -> Micros {
        self.client_cost.at(load.request + load.answer) * k
            + self.replica_cost.at(proposal + load.vote) * (self.nodes - 1.0)
            + load.execute * k
    }

    fn link(&self, proposal: Bytes, answers: Bytes) -> Micros {
        match self.network {
            Network::Lan => self.bandwidth.transfer_time(proposal * (self.nodes - 1.0) + answers),
            Network::Wan if self.nodes < 2.0 => Micros(0.0),
            Network::Wan => self.bandwidth.transfer_time(proposal),
        }
    }

    /// Returns the time for which an instance keeps the disk busy, and the time for which it waits
    /// for the disk.
    ///
    /// Group commit: records that arrive during a flush share the next one, up to `write_max`.
    /// Alone, an instance waits for its own flush. Among others, it arrives during a flush that it
    /// cannot share, and waits for the rest of that flush. The rest is half a flush on average if
    /// the instance arrives at any time. It is a complete flush if clients wait for their replies,
    /// because these come when a flush ends and the next one begins.
    fn disk(&self, load: &Workload, proposal: Bytes, window: f64) -> (Micros, Micros) {
        let Some(disk) = self.disk else {
            return (Micros(0.0), Micros(0.0));
        };
        let fits = (disk.write_max.0 / proposal.0.max(1.0)).floor().max(1.0);
        let shared = window.clamp(1.0, fits);
        let bytes = disk.bandwidth.transfer_time(proposal);
        let rest = match load.outstanding {
            _ if window <= 1.0 => 0.0,
            Some(_) => 1.0,
            None => 0.5,
        };
        // With one write at a time, the next one is not ready when a flush ends.
        let gap = if disk.writes_in_flight_max > 1.0 { 1.0 } else { 1.25 };
        let busy = disk.flush * (gap / shared) + bytes;
        let waited = disk.flush * (1.0 + rest) + bytes;
        (busy, waited)
    }

    /// Predicts the performance of batches of up to `k` requests with `window` instances in
    /// parallel.
    pub fn predict(&self, load: &Workload, k: f64, window: f64) -> Prediction {
        let window = window.max(1.0);
        // Pull batching: outstanding requests spread over the window.
        let k = match load.outstanding {
            Some(outstanding) => k.min(outstanding / window).max(1.0),
            None => k.max(1.0),
        };
        let parallel = match load.outstanding {
            Some(outstanding) => window.min((outstanding / k).max(1.0)),
            None => window,
        };
        let instance = self.predict_instance(load, k, parallel);
        let per_second = |busy: Micros| match busy.0 {
            us if us > 0.0 => k * 1e6 / us,
            _ => f64::INFINITY,
        };
        let starved = match load.outstanding {
            Some(outstanding) if outstanding <= window * k => Bottleneck::ClientLoad,
            _ => Bottleneck::Window,
        };
        // With a closed load, replies arrive in groups and meet a window that has just become full.
        // The first request takes the free place, and the others wait for the next place, `wall /
        // window` later.
        let place = match load.outstanding {
            Some(_) => 1.0 + 1.0 / window,
            None => 1.0,
        };
        let limits = [
            (per_second(instance.processor), Bottleneck::Processor),
            (per_second(instance.link), Bottleneck::Link),
            (per_second(instance.disk), Bottleneck::Disk),
            (per_second(instance.duration * place) * parallel, starved),
        ];
        let mut least = limits[0];
        for limit in limits {
            if limit.0 < least.0 {
                least = limit;
            }
        }
        let (throughput, bottleneck) = least;
        Prediction {
            throughput,
            // Little's law: the number of requests in flight, divided by the throughput.
            latency: instance.duration.max(Micros(parallel * k / throughput * 1e6)),
            bottleneck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the parameters of §5: three nodes, 10 Mbit/s, 50 ms one way, the fit of Figure 4.
    fn emulab() -> Model {
        Model::from_paper(
            3.0,
            Network::Wan,
            Bandwidth::from_mbit(10.0),
            Micros::from_ms(50.0),
            LinearCost::from_paper(0.28, 0.2),
            LinearCost::from_paper(0.002, 1.5),
        )
    }

    /// Returns the load of §5: 16 bytes of header per request, 4 per batch, 8 per answer.
    fn jpaxos(request: f64) -> Workload {
        Workload {
            request: Bytes(request + 16.0),
            answer: Bytes(8.0),
            batch_header: Bytes(4.0),
            vote: Bytes(8.0),
            execute: Micros(0.0),
            outstanding: None,
        }
    }

    /// Table 2: request and batch in bytes, `w_cpu`, `w_net`, requests per second.
    const TABLE_2: [(f64, f64, f64, f64, f64); 15] = [
        (128.0, 128.0, 30.88, 833.48, 308.0),
        (128.0, 256.0, 28.77, 422.94, 574.0),
        (128.0, 1024.0, 20.45, 107.58, 1620.0),
        (128.0, 16384.0, 3.38, 7.68, 3765.0),
        (128.0, 32768.0, 1.47, 3.12, 4032.0),
        (1024.0, 1024.0, 28.89, 119.01, 286.0),
        (1024.0, 2048.0, 25.54, 60.12, 502.0),
        (1024.0, 8192.0, 15.42, 15.8, 1155.0),
        (1024.0, 131_072.0, 3.16, 1.93, 1184.0),
        (1024.0, 262_144.0, 2.68, 1.6, 1184.0),
        (8192.0, 8192.0, 19.47, 16.0, 150.0),
        (8192.0, 16384.0, 14.24, 8.5, 150.0),
        (8192.0, 65536.0, 6.72, 2.88, 150.0),
        (8192.0, 131_072.0, 4.84, 1.94, 150.0),
        (8192.0, 262_144.0, 3.8, 1.47, 150.0),
    ];

    /// Returns, in table order, the model's `w_cpu`, `w_net` and throughput divided by the printed
    /// ones.
    fn ratios() -> Vec<[f64; 3]> {
        let model = emulab();
        let of = |(request, batch, cpu, net, throughput)| {
            let (load, k) = (jpaxos(request), batch / request);
            let instance = model.predict_instance(&load, k, 1.0);
            let best = model.predict(&load, k, instance.window());
            [instance.window_cpu() / cpu, instance.window_net() / net, best.throughput / throughput]
        };
        TABLE_2.into_iter().map(of).collect()
    }

    #[test]
    fn table_2_of_the_paper_is_met_within_three_percent_in_14_rows() {
        let near = |ratio: &f64| (ratio - 1.0).abs() <= 0.03;
        for (row, ratios) in ratios().iter().enumerate() {
            assert_eq!(ratios.iter().all(near), row != 4, "row {row}: {ratios:?}");
        }
    }

    /// For 128 bytes in batches of 32 KB, the paper prints w of 1.47 and 3.12, while its own
    /// formulas yield 2.0 and 4.4: both columns are off by the same factor, as if `T_inst` had been
    /// 30 % shorter than (6) says. Only the throughput of that row follows from the formulas, which
    /// the model keeps.
    #[test]
    fn row_of_table_2_that_contradicts_the_formulas_is_excepted() {
        let [cpu, net, throughput] = ratios()[4];
        assert!((1.30..1.45).contains(&cpu), "{cpu}");
        assert!((1.35..1.45).contains(&net), "{net}");
        assert!((throughput - 1.0).abs() <= 0.03, "{throughput}");
    }

    /// Checks the bottlenecks that §5 states for Table 2.
    #[test]
    fn bottlenecks_are_those_of_table_2() {
        let model = emulab();
        let bottleneck =
            |request: f64, k: f64, window| model.predict(&jpaxos(request), k, window).bottleneck;
        assert_eq!(bottleneck(128.0, 8.0, 25.0), Bottleneck::Processor);
        assert_eq!(bottleneck(1024.0, 128.0, 3.0), Bottleneck::Link);
        assert_eq!(bottleneck(8192.0, 8.0, 5.0), Bottleneck::Link);
        assert_eq!(bottleneck(8192.0, 8.0, 1.0), Bottleneck::Window);
    }

    /// (1) to (3) by hand: n = 3, 1 byte per microsecond, 100 µs one way.
    #[test]
    fn lan_link_carries_all_copies_and_the_replies() {
        let mut model = Model::from_paper(
            3.0,
            Network::Lan,
            Bandwidth(1e6),
            Micros(100.0),
            LinearCost::default(),
            LinearCost::default(),
        );
        let load = Workload {
            request: Bytes(100.0),
            answer: Bytes(10.0),
            batch_header: Bytes(0.0),
            vote: Bytes(0.0),
            execute: Micros(2.0),
            outstanding: None,
        };
        let instance = model.predict_instance(&load, 10.0, 1.0);
        assert_eq!(instance.link, Micros(2.0 * 1000.0 + 100.0));
        // By bandwidth: 2100; by latency: 1000 + 200 + 20 + 100.
        assert_eq!(instance.duration, Micros(2100.0));
        model.one_way_delay = Micros(2_000.0);
        let instance = model.predict_instance(&load, 10.0, 1.0);
        assert_eq!(instance.duration, Micros(1000.0 + 4000.0 + 20.0 + 100.0));
        model.client_cost.fixed = Micros(1_000.0);
        let instance = model.predict_instance(&load, 10.0, 1.0);
        assert_eq!(instance.processor, Micros(10.0 * 1002.0));
        assert_eq!(instance.duration, Micros(10_020.0 + 500.0));
    }

    #[test]
    fn parallel_batches_share_a_flush() {
        let mut model = emulab();
        let load = jpaxos(128.0);
        let without = model.predict_instance(&load, 8.0, 4.0);
        model.disk = Some(Disk {
            flush: Micros(8_000.0),
            bandwidth: Bandwidth::UNLIMITED,
            writes_in_flight_max: 2.0,
            write_max: Bytes(1048576.0),
        });
        let alone = model.predict_instance(&load, 8.0, 1.0);
        let four = model.predict_instance(&load, 8.0, 4.0);
        assert_eq!(alone.duration, without.duration + Micros(8_000.0));
        assert_eq!(four.duration, without.duration + Micros(12_000.0));
        assert_eq!(
            (alone.disk, four.disk),
            (Micros(8_000.0), Micros(2_000.0)),
            "one flush for four"
        );
    }

    #[test]
    fn more_cores_speed_up_only_the_parallel_part() {
        let mut model = emulab();
        let load = jpaxos(128.0);
        let one = model.predict_instance(&load, 8.0, 1.0).processor;
        model.cores = Cores { usable_cores: 2.0, parallel_fraction: 0.9 };
        assert_eq!(model.predict_instance(&load, 8.0, 1.0).processor, one * 0.5);
        model.cores.usable_cores = 64.0;
        let many = model.predict_instance(&load, 8.0, 1.0).processor;
        assert!((many.0 / one.0 - 0.1).abs() < 1e-9);
    }

    #[test]
    fn few_outstanding_requests_limit_the_throughput() {
        let model = emulab();
        let mut load = jpaxos(128.0);
        load.outstanding = Some(4.0);
        let few = model.predict(&load, 1000.0, 64.0);
        assert_eq!(few.bottleneck, Bottleneck::ClientLoad);
        // Four instances per round trip of slightly more than 100 ms.
        assert!((few.throughput - 40.0).abs() < 2.0, "{few:?}");
        let one_place = model.predict(&load, 1000.0, 1.0);
        assert!((one_place.throughput - 20.0).abs() < 1.0, "{one_place:?}");
    }
}
