------------------------------ MODULE Snapshots ------------------------------
(***************************************************************************)
(* Snapshots and trim, over the protocol of Ranges: a node lets go of what *)
(* is below a snapshot, installs the snapshot of another one, and starts   *)
(* again from what it has on stable storage. Durable group: promises and   *)
(* votes survive (Classes); what is decided need not be known any more.    *)
(* A snapshot has the values below it in their effect; here it has them.   *)
(***************************************************************************)
EXTENDS Ranges

CONSTANTS Trims,    \* nodes that take snapshots and trim
          Installs, \* nodes that install those of others
          Crashes   \* most crashes

VARIABLES snapshot, \* snapshot[n]: the values below the last one that is durable
          ended,    \* ballots whose node leads or campaigns in them no more
          crashes
all == <<vars, snapshot, ended, crashes>>

InitAll == Init /\ snapshot = [n \in Nodes |-> <<>>] /\ ended = {} /\ crashes = 0

Own(n) == {b \in Ballots : Owner(b) = n /\ from[b] # 0}

(* [trim-1] A snapshot of its own, of what it has decided, gets durable.   *)
Snapshot(n) ==
  /\ Len(snapshot[n]) < Len(log[n])
  /\ snapshot' = [snapshot EXCEPT ![n] = log[n]]
  /\ UNCHANGED <<vars, ended, crashes>>

(* [trim-3] Then log_start, and the floor with it, gets durable,           *)
(* of what is known to be decided now ([decide-2] and who had to step down  *)
(* has done so);                                                           *)
Trim(n) ==
  /\ begins[n] < Len(snapshot[n]) + 1
  /\ Len(snapshot[n]) <= Len(log[n])
  /\ ended' = ended \cup {b \in Own(n) : ~Agrees(b)}
  /\ begins' = [begins EXCEPT ![n] = Len(snapshot[n]) + 1]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, log, gone,
                 snapshot, crashes>>

(* and only then its place is written over: now, later, or never.          *)
Overwrite(n, i) ==
  /\ i < IF Keeps("trim-3") THEN begins[n] ELSE DecidedTo(n)
  /\ i \notin gone[n]
  /\ gone' = [gone EXCEPT ![n] = @ \cup {i}]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, log, begins,
                 snapshot, ended, crashes>>

(* [snap-2] Only if that is farther than what is decided here. Who leads   *)
(* or campaigns steps down before: in that ballot it neither proposes nor  *)
(* counts nor tells anything any more.                                     *)
Install(n, c) ==
  /\ Len(snapshot[c]) >= DecidedTo(n)
  /\ ended' = IF Keeps("snap-2") THEN ended \cup Own(n) ELSE ended
  /\ log' = [log EXCEPT ![n] = snapshot[c]]
  /\ snapshot' = [snapshot EXCEPT ![n] = snapshot[c]]
  /\ begins' = [begins EXCEPT ![n] = Len(snapshot[c]) + 1]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, crashes>>

(* [decide-3] After a restart decided_to is a lower bound, not below the   *)
(* start of the log. [snap-3] Recovery begins with the snapshot there.     *)
(* Leading and asking are over.                                            *)
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

(* What a snapshot stands for was chosen. *)
SnapshotIsChosen ==
  \A n \in Nodes : \A i \in 1..Len(snapshot[n]) :
    \E b \in Ballots : /\ Proposed(b, i) /\ IsQuorum(Voters(b, i))
                       /\ ValueIn(b, i) = snapshot[n][i]
=============================================================================
