//! Kills one process with SIGKILL during a replacement, which must complete after its restart.

use std::{fmt, fs, io, path::Path, process::Child, time::Instant};

use quorate_admin::members::MembersView;

use super::{
    CommandOutput, check_id, fetch_members, join_node, replace_command, wait_until_caught_up,
};
use crate::{
    nodes::{NodeCluster, START_TIMEOUT},
    process::NodeSpec,
    wait,
};

/// Process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KilledProcess {
    /// The leader, which remains in the cluster.
    Leader,
    /// The node to be replaced, as a follower.
    Old,
    /// The node to be replaced, which leads at the start.
    OldLeader,
    Newcomer,
    /// A follower that remains in the cluster.
    Other,
    /// The command `quorate member replace`. It is run again afterwards.
    Command,
}

impl KilledProcess {
    pub const ALL: [Self; 6] =
        [Self::Leader, Self::Old, Self::OldLeader, Self::Newcomer, Self::Other, Self::Command];
}

/// Moment at which the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillMoment {
    /// The new node is requesting an id.
    IdRequested,
    /// The member list contains the new node.
    InMemberList,
    /// The new node is running and catching up.
    CatchingUp,
    /// The new node has caught up.
    CaughtUp,
    /// This many eras of the plan are in force, or all of them if the plan has fewer.
    ErasInForce(u64),
    /// The old node has been removed.
    OldRemoved,
}

impl KillMoment {
    /// Moments before `quorate member replace` is run.
    pub const WHILE_JOINING: [Self; 4] =
        [Self::IdRequested, Self::InMemberList, Self::CatchingUp, Self::CaughtUp];
}

/// Outcome of a replacement during which a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KillOutcome {
    pub old_node: u32,
    pub new: u32,
    /// Number of eras in the plan.
    pub era_count: u64,
    /// Number of eras in force when the process was killed.
    pub eras_at_kill: u64,
    /// Set if the first run of the command completed.
    pub command_outlived: bool,
}

impl fmt::Display for KillOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old_node: old, new, era_count: eras, eras_at_kill: seen, .. } = self;
        write!(f, "{old} by {new}, after {seen} of {eras} eras")?;
        if !self.command_outlived {
            f.write_str(", command repeated")?;
        }
        Ok(())
    }
}

/// A cluster of three nodes, and the node that replaces one of them.
struct ReplacementTrial<'a> {
    nodes: &'a mut NodeCluster,
    program: &'a Path,
    leader: u32,
    old_node: u32,
    other_node: u32,
    new: u32,
    killed_process: KilledProcess,
    /// Era before the replacement.
    from: u64,
}

/// Replaces a node of a three-node cluster while one process is killed and restarted. Checks that
/// the replaced node is excluded afterwards: it has applied its own removal and refuses to start,
/// or it returned too late and its peers refuse it.
pub fn replace_with_kill(
    nodes: &mut NodeCluster,
    program: &Path,
    spec: NodeSpec,
    role: KilledProcess,
    at: KillMoment,
) -> io::Result<KillOutcome> {
    let leader = nodes.agreed_leader()?;
    let followers: Vec<u32> = nodes.ids().into_iter().filter(|id| *id != leader).collect();
    let &[first, second] = &followers[..] else {
        return Err(io::Error::other("a cluster of three is needed"));
    };
    let (old, other) = match role {
        KilledProcess::OldLeader => (leader, first),
        _ => (first, second),
    };
    let new = join_node(nodes, spec)?;
    let mut trial = ReplacementTrial {
        nodes,
        program,
        leader,
        old_node: old,
        other_node: other,
        new,
        killed_process: role,
        from: 0,
    };
    trial.from = trial.fetch_members().map_or(0, |members| members.era);
    let mut seen = 0;
    let joining = KillMoment::WHILE_JOINING.contains(&at);
    if joining {
        trial.wait_for_moment(at)?;
        let victim = trial.node_to_kill().into_iter().collect::<Vec<u32>>();
        trial.nodes.kill(&victim)?;
        trial.nodes.restart(&victim)?;
    }
    if !(joining && role == KilledProcess::Newcomer) {
        trial.nodes.node(new)?.wait_ready()?;
    }
    check_id(trial.nodes, new)?;
    wait_until_caught_up(trial.nodes, new)?;
    let eras = trial.planned_eras()?;
    let mut asked = trial.start_command()?;
    if !joining {
        seen = trial.wait_for_moment(match at {
            KillMoment::ErasInForce(era) => KillMoment::ErasInForce(era.min(eras)),
            at => at,
        })?;
        match trial.node_to_kill() {
            None => {
                asked.kill()?;
                trial.wait_until_reached()?;
            }
            // The node may have been removed in the meantime. In that case it does not listen.
            Some(victim) if victim == old => {
                trial.nodes.kill(&[old])?;
                trial.nodes.respawn(old)?;
            }
            Some(victim) => {
                trial.nodes.kill(&[victim])?;
                trial.nodes.restart(&[victim])?;
            }
        }
    }
    let ended = CommandOutput::parse(&asked.wait_with_output()?.stdout)
        .and_then(|ended| ended.reached_eras());
    if ended.is_err() {
        trial.repeat_command()?;
    }
    trial.check_members()?;
    trial.check_old_is_out()?;
    trial.nodes.mark_departed(old);
    Ok(KillOutcome {
        old_node: old,
        new,
        era_count: eras,
        eras_at_kill: seen,
        command_outlived: ended.is_ok(),
    })
}

impl ReplacementTrial<'_> {
    /// Returns the members as reported by a node that remains, preferably the leader.
    fn fetch_members(&self) -> Option<MembersView> {
        let who = match self.killed_process {
            KilledProcess::OldLeader => self.other_node,
            _ => self.leader,
        };
        fetch_members(&self.nodes.all()[who as usize - 1].ready.admin)
    }

    /// Polls without pauses until the given moment, because some steps last only milliseconds.
    /// Returns the number of eras in force.
    fn wait_for_moment(&self, at: KillMoment) -> io::Result<u64> {
        let until = Instant::now() + START_TIMEOUT;
        let said = |what: &str| self.nodes.log_path(self.new).contains(what).then_some(0);
        let listed = |is: &dyn Fn(&MembersView) -> bool| {
            let members = self.fetch_members().filter(is)?;
            Some(members.era.saturating_sub(self.from))
        };
        loop {
            let seen = match at {
                KillMoment::IdRequested => said("asking for an id"),
                KillMoment::InMemberList => {
                    listed(&|members| members.find_node(self.new).is_some())
                }
                KillMoment::CatchingUp => said("node started"),
                KillMoment::CaughtUp => said("is caught up"),
                KillMoment::ErasInForce(eras) => listed(&|members| members.era >= self.from + eras),
                KillMoment::OldRemoved => {
                    listed(&|members| members.removed.contains(&self.old_node))
                }
            };
            match seen {
                Some(seen) => return Ok(seen),
                None if Instant::now() > until => {
                    return Err(io::Error::other(format!("it never came to {at:?}")));
                }
                None => {}
            }
        }
    }

    /// Returns the id of the node to kill; `None` if the process is not a node.
    fn node_to_kill(&self) -> Option<u32> {
        match self.killed_process {
            KilledProcess::Leader => Some(self.leader),
            KilledProcess::Old | KilledProcess::OldLeader => Some(self.old_node),
            KilledProcess::Newcomer => Some(self.new),
            KilledProcess::Other => Some(self.other_node),
            KilledProcess::Command => None,
        }
    }

    /// Waits until the cluster would accept the replacement. Returns the plan's eras.
    fn planned_eras(&self) -> io::Result<u64> {
        let mut refused = String::new();
        let steps = wait::wait_at_most(START_TIMEOUT, "a replacement that is not refused", || {
            let mut asked = replace_command(self.nodes, self.program, self.old_node, self.new);
            let ended = CommandOutput::parse(&asked.arg("--dry-run").output().ok()?.stdout).ok()?;
            refused = ended.error.to_string();
            (ended.result == "planned").then_some(ended.steps.len() as u64)
        });
        steps.map_err(|error| io::Error::other(format!("{error}: {refused}")))
    }

    fn start_command(&self) -> io::Result<Child> {
        replace_command(self.nodes, self.program, self.old_node, self.new).spawn()
    }

    /// Waits until the plan has ended, without running the command again.
    fn wait_until_reached(&self) -> io::Result<()> {
        wait::wait_at_most(START_TIMEOUT, "the end of the plan", || {
            let members = self.fetch_members()?;
            let gone = members.removed.contains(&self.old_node) && members.plan.is_none();
            gone.then_some(())
        })
    }

    fn repeat_command(&self) -> io::Result<()> {
        let ended = self.start_command()?.wait_with_output()?;
        CommandOutput::parse(&ended.stdout)?.reached_eras().map(|_| ())
    }

    /// Checks that the remaining nodes have equal votes, and that every id was or is a node's.
    fn check_members(&self) -> io::Result<()> {
        let mut staying = self.nodes.ids();
        staying.retain(|id| *id != self.old_node);
        let all = self.nodes.all().len() as u32;
        let right = |members: &MembersView| {
            let weights = members.nodes.iter().map(|listed| (listed.node, listed.weight));
            let mut ids: Vec<u32> = members.removed.clone();
            ids.extend(members.nodes.iter().map(|listed| listed.node));
            ids.sort_unstable();
            weights.eq(staying.iter().map(|id| (*id, 1))) && ids.into_iter().eq(1..=all)
        };
        let mut last = None;
        let found = wait::wait_at_most(START_TIMEOUT, "the members that were wanted", || {
            last = self.fetch_members();
            last.as_ref().filter(|members| right(members)).map(|_| ())
        });
        found.map_err(|error| io::Error::other(format!("{error}: {last:?}")))
    }

    /// Checks that the old node is notified of its removal, and then refuses to start again.
    fn check_old_is_out(&mut self) -> io::Result<()> {
        let old = self.old_node;
        let identity = self.nodes.node(old)?.spec.data_folder.join("identity");
        let what = format!("node {old} to write down that it was removed");
        wait::wait_at_most(START_TIMEOUT, &what, || {
            let text = fs::read_to_string(&identity).unwrap_or_default();
            text.lines().any(|line| line == "removed").then_some(())
        })?;
        self.nodes.kill(&[old])?;
        self.nodes.respawn(old)?;
        let node = self.nodes.node(old)?;
        let status = node.wait_for_exit()?;
        let said = node.log_tail();
        let refuses = status.code() == Some(1) && said.contains("was removed from its cluster");
        match refuses {
            true => Ok(()),
            false => Err(io::Error::other(format!("node {old}: {status}: {said}"))),
        }
    }
}
