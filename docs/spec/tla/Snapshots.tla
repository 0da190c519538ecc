------------------------------ MODULE Snapshots ------------------------------
(***************************************************************************)
(* Snapshots and trim, on top of Ranges: a node discards slots below a     *)
(* snapshot, installs another node's snapshot, and restarts from stable    *)
(* storage. In a durable group promises and votes survive (Classes), but   *)
(* knowledge of decisions may be lost. A real snapshot contains the effect *)
(* of the values below it; here it contains the values.                    *)
(***************************************************************************)
EXTENDS Ranges

CONSTANTS Trims,    \* nodes that take snapshots and trim
          Installs, \* nodes that install snapshots of other nodes
          Crashes   \* maximum number of crashes

VARIABLES snapshot, \* snapshot[n]: values below the last durable snapshot
          ended,    \* ballots whose node no longer leads or campaigns in them
          crashes
all == <<vars, snapshot, ended, crashes>>

InitAll == Init /\ snapshot = [n \in Nodes |-> <<>>] /\ ended = {} /\ crashes = 0

Own(n) == {b \in Ballots : Owner(b) = n /\ from[b] # 0}

(* [trim-1] A node's own snapshot of decided slots becomes durable. *)
Snapshot(n) ==
  /\ Len(snapshot[n]) < Len(log[n])
  /\ snapshot' = [snapshot EXCEPT ![n] = log[n]]
  /\ UNCHANGED <<vars, ended, crashes>>

(* [trim-3] Then log_start becomes durable, and the floor with it, with the *)
(* decisions known at this moment ([decide-2]: a leader that must step down *)
(* has done so).                                                            *)
Trim(n) ==
  /\ begins[n] < Len(snapshot[n]) + 1
  /\ Len(snapshot[n]) <= Len(log[n])
  /\ ended' = ended \cup {b \in Own(n) : ~Agrees(b)}
  /\ begins' = [begins EXCEPT ![n] = Len(snapshot[n]) + 1]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, log, gone,
                 snapshot, crashes>>

(* Only then are its places overwritten: now, later or never. *)
Overwrite(n, i) ==
  /\ i < IF Keeps("trim-3") THEN begins[n] ELSE DecidedTo(n)
  /\ i \notin gone[n]
  /\ gone' = [gone EXCEPT ![n] = @ \cup {i}]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, log, begins,
                 snapshot, ended, crashes>>

(* [snap-2] Only if the snapshot is ahead of the local decisions. A leader *)
(* or candidate steps down first: in that ballot it no longer proposes,    *)
(* counts or announces anything.                                           *)
Install(n, c) ==
  /\ Len(snapshot[c]) >= DecidedTo(n)
  /\ ended' = IF Keeps("snap-2") THEN ended \cup Own(n) ELSE ended
  /\ log' = [log EXCEPT ![n] = snapshot[c]]
  /\ snapshot' = [snapshot EXCEPT ![n] = snapshot[c]]
  /\ begins' = [begins EXCEPT ![n] = Len(snapshot[c]) + 1]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, crashes>>

(* [decide-3] After a restart decided_to is a lower bound, at least the    *)
(* start of the log. [snap-3] Recovery begins with the snapshot there. The *)
(* node no longer leads or campaigns.                                      *)
Crash(n) ==
  /\ crashes < Crashes
  /\ crashes' = crashes + 1
  /\ \E known \in (begins[n] - 1)..Len(log[n]) :
       log' = [log EXCEPT ![n] = SubSeq(@, 1, known)]
  /\ ended' = ended \cup Own(n)
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, begins, snapshot>>

NextAll ==
  \/ /\ \/ \E b \in Ballots \ ended : \/ Campaign(b) \/ Begin(b) \/ Propose(b)
                                      \/ Count(b) \/ Tell(b)
        \/ \E a \in Nodes, b \in Ballots : Promise(a, b) \/ VoteFor(a, b) \/ Follow(a, b)
        \/ \E a, c \in Nodes : CatchUp(a, c)
     /\ UNCHANGED <<snapshot, ended, crashes>>
  \/ \E n \in Trims : Snapshot(n) \/ Trim(n) \/ \E i \in Slots : Overwrite(n, i)
  \/ \E n \in Trims \cup Installs : Crash(n)
  \/ \E n \in Installs, c \in Nodes : Install(n, c)

SpecAll == InitAll /\ [][NextAll]_all

(* Every value in a snapshot was chosen. *)
SnapshotIsChosen ==
  \A n \in Nodes : \A i \in 1..Len(snapshot[n]) :
    \E b \in Ballots : /\ Proposed(b, i) /\ IsQuorum(Voters(b, i))
                       /\ ValueIn(b, i) = snapshot[n][i]
=============================================================================
