//! Kills one process with SIGKILL during a replacement, which must complete after its restart.

use std::{fmt, fs, io, path::Path, process::Child, time::Instant};

use quorate_admin::members::MembersView;

use super::{Ended, check_id, command, join, members, wait_level};
use crate::{
    nodes::{Nodes, PATIENCE},
    process::Spec,
    wait,
};

/// Process to kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
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

impl Role {
    pub const ALL: [Self; 6] =
        [Self::Leader, Self::Old, Self::OldLeader, Self::Newcomer, Self::Other, Self::Command];
}

/// Moment at which the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The new node is requesting an id.
    Asked,
    /// The member list contains the new node.
    Listed,
    /// The new node is running and catching up.
    CatchingUp,
    /// The new node has caught up.
    Level,
    /// This many eras of the plan are in force, or all of them if the plan has fewer.
    Era(u64),
    /// The old node has been removed.
    Removed,
}

impl Moment {
    /// Moments before `quorate member replace` is run.
    pub const JOINING: [Self; 4] = [Self::Asked, Self::Listed, Self::CatchingUp, Self::Level];
}

/// Outcome of a replacement during which a process was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    pub old: u32,
    pub new: u32,
    /// Number of eras in the plan.
    pub eras: u64,
    /// Number of eras in force when the process was killed.
    pub seen: u64,
    /// Set if the first run of the command completed.
    pub outlived: bool,
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old, new, eras, seen, .. } = self;
        write!(f, "{old} by {new}, after {seen} of {eras} eras")?;
        if !self.outlived {
            f.write_str(", command repeated")?;
        }
        Ok(())
    }
}

/// A cluster of three nodes, and the node that replaces one of them.
struct Trial<'a> {
    nodes: &'a mut Nodes,
    program: &'a Path,
    leader: u32,
    old: u32,
    other: u32,
    new: u32,
    role: Role,
    /// Era before the replacement.
    from: u64,
}

/// Replaces a node of a three-node cluster while one process is killed and restarted. Checks that
/// the replaced node is excluded afterwards: it has applied its own removal and refuses to start,
/// or it returned too late and its peers refuse it.
pub fn one(
    nodes: &mut Nodes,
    program: &Path,
    spec: Spec,
    role: Role,
    at: Moment,
) -> io::Result<Killed> {
    let leader = nodes.agreed_leader()?;
    let followers: Vec<u32> = nodes.ids().into_iter().filter(|id| *id != leader).collect();
    let &[first, second] = &followers[..] else {
        return Err(io::Error::other("a cluster of three is needed"));
    };
    let (old, other) = match role {
        Role::OldLeader => (leader, first),
        _ => (first, second),
    };
    let new = join(nodes, spec)?;
    let mut trial = Trial { nodes, program, leader, old, other, new, role, from: 0 };
    trial.from = trial.members().map_or(0, |members| members.era);
    let mut seen = 0;
    let joining = Moment::JOINING.contains(&at);
    if joining {
        trial.watch(at)?;
        let victim = trial.victim().into_iter().collect::<Vec<u32>>();
        trial.nodes.kill(&victim)?;
        trial.nodes.restart(&victim)?;
    }
    if !(joining && role == Role::Newcomer) {
        trial.nodes.node(new)?.wait_ready()?;
    }
    check_id(trial.nodes, new)?;
    wait_level(trial.nodes, new)?;
    let eras = trial.planned()?;
    let mut asked = trial.ask()?;
    if !joining {
        seen = trial.watch(match at {
            Moment::Era(era) => Moment::Era(era.min(eras)),
            at => at,
        })?;
        match trial.victim() {
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
    let ended = Ended::of(&asked.wait_with_output()?.stdout).and_then(|ended| ended.reached());
    if ended.is_err() {
        trial.repeat()?;
    }
    trial.check_members()?;
    trial.check_old_is_out()?;
    trial.nodes.leave(old);
    Ok(Killed { old, new, eras, seen, outlived: ended.is_ok() })
}

impl Trial<'_> {
    /// Returns the members as reported by a node that remains, preferably the leader.
    fn members(&self) -> Option<MembersView> {
        let who = match self.role {
            Role::OldLeader => self.other,
            _ => self.leader,
        };
        members(&self.nodes.all()[who as usize - 1].ready.admin)
    }

    /// Polls without pauses until the given moment, because some steps last only milliseconds.
    /// Returns the number of eras in force.
    fn watch(&self, at: Moment) -> io::Result<u64> {
        let until = Instant::now() + PATIENCE;
        let said = |what: &str| self.nodes.log(self.new).contains(what).then_some(0);
        let listed = |is: &dyn Fn(&MembersView) -> bool| {
            let members = self.members().filter(is)?;
            Some(members.era.saturating_sub(self.from))
        };
        loop {
            let seen = match at {
                Moment::Asked => said("asking for an id"),
                Moment::Listed => listed(&|members| members.listed(self.new).is_some()),
                Moment::CatchingUp => said("node started"),
                Moment::Level => said("is caught up"),
                Moment::Era(eras) => listed(&|members| members.era >= self.from + eras),
                Moment::Removed => listed(&|members| members.removed.contains(&self.old)),
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
    fn victim(&self) -> Option<u32> {
        match self.role {
            Role::Leader => Some(self.leader),
            Role::Old | Role::OldLeader => Some(self.old),
            Role::Newcomer => Some(self.new),
            Role::Other => Some(self.other),
            Role::Command => None,
        }
    }

    /// Waits until the cluster would accept the replacement. Returns the plan's eras.
    fn planned(&self) -> io::Result<u64> {
        let mut refused = String::new();
        let steps = wait::at_most(PATIENCE, "a replacement that is not refused", || {
            let mut asked = command(self.nodes, self.program, self.old, self.new);
            let ended = Ended::of(&asked.arg("--dry-run").output().ok()?.stdout).ok()?;
            refused = ended.error.to_string();
            (ended.result == "planned").then_some(ended.steps.len() as u64)
        });
        steps.map_err(|error| io::Error::other(format!("{error}: {refused}")))
    }

    fn ask(&self) -> io::Result<Child> {
        command(self.nodes, self.program, self.old, self.new).spawn()
    }

    /// Waits until the plan has ended, without running the command again.
    fn wait_until_reached(&self) -> io::Result<()> {
        wait::at_most(PATIENCE, "the end of the plan", || {
            let members = self.members()?;
            let gone = members.removed.contains(&self.old) && members.plan.is_none();
            gone.then_some(())
        })
    }

    fn repeat(&self) -> io::Result<()> {
        let ended = self.ask()?.wait_with_output()?;
        Ended::of(&ended.stdout)?.reached().map(|_| ())
    }

    /// Checks that the remaining nodes have equal votes, and that every id was or is a node's.
    fn check_members(&self) -> io::Result<()> {
        let mut staying = self.nodes.ids();
        staying.retain(|id| *id != self.old);
        let all = self.nodes.all().len() as u32;
        let right = |members: &MembersView| {
            let weights = members.nodes.iter().map(|listed| (listed.node, listed.weight));
            let mut ids: Vec<u32> = members.removed.clone();
            ids.extend(members.nodes.iter().map(|listed| listed.node));
            ids.sort_unstable();
            weights.eq(staying.iter().map(|id| (*id, 1))) && ids.into_iter().eq(1..=all)
        };
        let mut last = None;
        let found = wait::at_most(PATIENCE, "the members that were wanted", || {
            last = self.members();
            last.as_ref().filter(|members| right(members)).map(|_| ())
        });
        found.map_err(|error| io::Error::other(format!("{error}: {last:?}")))
    }

    /// Checks that the old node is notified of its removal, and then refuses to start again.
    fn check_old_is_out(&mut self) -> io::Result<()> {
        let old = self.old;
        let identity = self.nodes.node(old)?.spec.data.join("identity");
        let what = format!("node {old} to write down that it was removed");
        wait::at_most(PATIENCE, &what, || {
            let text = fs::read_to_string(&identity).unwrap_or_default();
            text.lines().any(|line| line == "removed").then_some(())
        })?;
        self.nodes.kill(&[old])?;
        self.nodes.respawn(old)?;
        let node = self.nodes.node(old)?;
        let status = node.wait_end()?;
        let said = node.last_words();
        let refuses = status.code() == Some(1) && said.contains("was removed from its cluster");
        match refuses {
            true => Ok(()),
            false => Err(io::Error::other(format!("node {old}: {status}: {said}"))),
        }
    }
}
