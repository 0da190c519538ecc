------------------------------- MODULE Ranges -------------------------------
(***************************************************************************)
(* Paxos over ranges of slots, in one configuration of members of equal    *)
(* weight: one promise for all slots, one phase 1 for all undecided slots, *)
(* votes in order, decisions in order.                                     *)
(*                                                                         *)
(* There is no set of messages: the variables retain the contents of every *)
(* 1A, 1B and 2A forever, so each may arrive late, repeatedly or never.    *)
(* Votes are never withdrawn here, so votes[a] also stands for the 2Bs     *)
(* sent. See Eras for eras and weights, Classes for lost memory, Snapshots *)
(* for trim.                                                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Nodes,    \* 1..N
          Ballots,  \* a subset of 1, 2, ...; the node of each is Owner(b)
          MaxSlot,  \* slots are 1..MaxSlot
          Mutant    \* rule that is left out, or "none"

VARIABLES promised, \* [ballot-4] one ballot for all slots, by acceptor
          votes,    \* votes[a]: pairs <<ballot, slot>>
          from,     \* from[b]: first slot of the 1A of b, or 0 if it was not sent
          answers,  \* answers[b]: the 1Bs of b
          prop,     \* prop[b]: proposals of b, from slot start[b] on
          start,    \* 0 until phase 1 of b is complete
          told,     \* told[b]: decided_to as sent by the leader of b
          log,      \* log[n]: decided values known to n, in slot order
          gone,     \* gone[n]: slots whose records are overwritten ([trim-3])
          begins    \* begins[n]: log_start; 1 unless module Snapshots trims

vars == <<promised, votes, from, answers, prop, start, told, log, gone, begins>>

Slots == 1..MaxSlot
Keeps(rule) == Mutant # rule
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : y >= x

(* [ballot-1] Within one era, <<round, node>> is ordered as one number. *)
Owner(b) == ((b - 1) % Cardinality(Nodes)) + 1
IsQuorum(S) == 2 * Cardinality(S) > Cardinality(Nodes)

(* Values: 0 is a no-op; any other was created by the leader of that       *)
(* ballot.                                                                 *)
NoOp == 0
NoVote == <<0, NoOp>>
ValueIn(b, i) == prop[b][i - start[b] + 1]
Next_(b) == start[b] + Len(prop[b])
Proposed(b, i) == start[b] # 0 /\ i \in start[b]..(Next_(b) - 1)

(* [decide-1] The decided prefix is one number, which is also the floor    *)
(* ([p1-5]).                                                               *)
DecidedTo(n) == Len(log[n]) + 1

Init == /\ promised = [a \in Nodes |-> 0]
        /\ votes = [a \in Nodes |-> {}]
        /\ from = [b \in Ballots |-> 0]
        /\ answers = [b \in Ballots |-> {}]
        /\ prop = [b \in Ballots |-> <<>>]
        /\ start = [b \in Ballots |-> 0]
        /\ told = [b \in Ballots |-> 1]
        /\ log = [n \in Nodes |-> <<>>]
        /\ gone = [n \in Nodes |-> {}]
        /\ begins = [n \in Nodes |-> 1]

-----------------------------------------------------------------------------
(* Phase 1 *)

(* [p1-1] A node sends 1A in a ballot of its own for all slots from its    *)
(* first undecided one on.                                                 *)
Campaign(b) ==
  /\ from[b] = 0
  /\ promised[Owner(b)] < b
  /\ from' = [from EXCEPT ![b] = DecidedTo(Owner(b))]
  /\ UNCHANGED <<promised, votes, answers, prop, start, told, log, gone, begins>>

(* [p1-3] [p2-2] The vote in the highest ballot, for each slot from the    *)
(* floor on.                                                               *)
Vote_(a, i) ==
  LET cast == {v[1] : v \in {w \in votes[a] : w[2] = i}} IN
  IF cast = {} \/ i \in gone[a] THEN NoVote
  ELSE LET b == IF Keeps("p2-2") THEN Max(cast) ELSE Min(cast)
       IN  <<b, ValueIn(b, i)>>
Report(a, b) ==
  [node |-> a, floor |-> DecidedTo(a),
   votes |-> [i \in Slots |-> IF i < from[b] \/ i < DecidedTo(a)
                              THEN NoVote ELSE Vote_(a, i)]]

(* [p1-2] The promise holds from the moment the 1B is sent. *)
Promise(a, b) ==
  /\ from[b] # 0
  /\ promised[a] <= b
  /\ \A r \in answers[b] : r.node # a
  /\ answers' = [answers EXCEPT ![b] = @ \cup {Report(a, b)}]
  /\ promised' = IF Keeps("p1-2") THEN [promised EXCEPT ![a] = b] ELSE promised
  /\ UNCHANGED <<votes, from, prop, start, told, log, gone, begins>>

(* [p1-6] Value that b must propose in slot i because of older ballots. *)
Inherited(b, i) ==
  LET all == {r.votes[i] : r \in answers[b]}
      high == Max({v[1] : v \in all})
  IN  IF Keeps("p1-6") THEN (CHOOSE v \in all : v[1] = high)[2] ELSE NoOp

(* [p1-5] Not below the greatest floor of the quorum: the candidate first  *)
(* catches up. [p1-6] Holes become no-ops.                                 *)
Begin(b) ==
  LET n == Owner(b)
      floors == {r.floor : r \in answers[b]}
      first == IF Keeps("p1-5") THEN DecidedTo(n) ELSE from[b]
      seen == {i \in Slots : \E r \in answers[b] : r.votes[i] # NoVote}
      last == IF seen = {} THEN 0 ELSE Max(seen)
  IN  /\ start[b] = 0
      /\ IF Keeps("p1-2") THEN promised[n] = b ELSE promised[n] <= b
      /\ IsQuorum({r.node : r \in answers[b]})
      /\ \E r \in answers[b] : r.node = n
      /\ Keeps("p1-5") => Max(floors) <= DecidedTo(n)
      /\ start' = [start EXCEPT ![b] = first]
      /\ prop' = [prop EXCEPT ![b] = IF last < first THEN <<>> ELSE
                    [k \in 1..(last + 1 - first) |-> Inherited(b, first + k - 1)]]
      /\ UNCHANGED <<promised, votes, from, answers, told, log, gone, begins>>

-----------------------------------------------------------------------------
(* Phase 2 *)

(* [decide-2] A leader steps down if a value that it did not propose was   *)
(* decided, even in a slot that it had not reached: it would announce that *)
(* decision in its ballot. Values replaced by a snapshot cannot be         *)
(* compared.                                                               *)
Agrees(b) ==
  \A i \in Max({start[b], begins[Owner(b)]})..Len(log[Owner(b)]) :
    Proposed(b, i) /\ log[Owner(b)][i] = ValueIn(b, i)
Leads(b) ==
  /\ start[b] # 0
  /\ promised[Owner(b)] <= b
  /\ Keeps("decide-2 leader") => Agrees(b)

(* [ballot-2] A new value, created by this leader; [p1-6] after all         *)
(* inherited values.                                                        *)
Propose(b) ==
  /\ Leads(b)
  /\ Next_(b) <= MaxSlot
  /\ prop' = [prop EXCEPT ![b] = Append(@, b)]
  /\ UNCHANGED <<promised, votes, from, answers, start, told, log, gone, begins>>

(* [p2-1] A vote is a promise. Within a ballot an acceptor votes in order, *)
(* for as much of a range as it has the bytes of ([value-3]), and never    *)
(* below its floor.                                                        *)
VoteFor(a, b) ==
  LET cast == {v[2] : v \in {w \in votes[a] : w[1] = b}}
      next == Max({start[b], DecidedTo(a)} \cup {i + 1 : i \in cast})
  IN  /\ start[b] # 0
      /\ Keeps("p2-1") => promised[a] <= b
      /\ \E to \in (next + 1)..Next_(b) :
           votes' = [votes EXCEPT ![a] = @ \cup {<<b, i>> : i \in next..(to - 1)}]
      /\ promised' = [promised EXCEPT ![a] = Max({@, b})]
      /\ UNCHANGED <<from, answers, prop, start, told, log, gone, begins>>

-----------------------------------------------------------------------------
(* Decisions *)

Voters(b, i) == {a \in Nodes : <<b, i>> \in votes[a]}
ChosenIn(b, i) ==
  /\ Proposed(b, i)
  /\ IF Keeps("class-1") THEN IsQuorum(Voters(b, i))
     ELSE IsQuorum(UNION {Voters(c, i) : c \in Ballots})

Learn(n, v) == log' = [log EXCEPT ![n] = Append(@, v)]

(* [class-1] [decide-1] The leader counts votes of its own ballot, in slot *)
(* order.                                                                  *)
Count(b) ==
  LET i == DecidedTo(Owner(b)) IN
  /\ Leads(b)
  /\ i \in Slots /\ ChosenIn(b, i)
  /\ Learn(Owner(b), ValueIn(b, i))
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, begins>>

(* [decide-2] decided_to is sent with the ballot and may arrive late. *)
Tell(b) ==
  /\ Leads(b)
  /\ told[b] < DecidedTo(Owner(b))
  /\ told' = [told EXCEPT ![b] = DecidedTo(Owner(b))]
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, log, gone, begins>>

(* [decide-2] A follower decides the values that it voted for in that      *)
(* ballot.                                                                 *)
Follow(a, b) ==
  LET i == DecidedTo(a) IN
  /\ i < told[b]
  /\ IF Keeps("decide-2 follower")
     THEN <<b, i>> \in votes[a] /\ Learn(a, ValueIn(b, i))
     ELSE Vote_(a, i) # NoVote /\ Learn(a, Vote_(a, i)[2])
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, begins>>

(* [catch-1] [snap-3] A peer serves slots that it decided, but none below   *)
(* the start of its log, where an old vote of its own may remain.           *)
CatchUp(a, c) ==
  LET i == DecidedTo(a) IN
  /\ i < DecidedTo(c)
  /\ IF Keeps("snap-3") THEN i >= begins[c] /\ Learn(a, log[c][i])
     ELSE IF i >= begins[c] THEN Learn(a, log[c][i])
     ELSE Vote_(c, i) # NoVote /\ Learn(a, Vote_(c, i)[2])
  /\ UNCHANGED <<promised, votes, from, answers, prop, start, told, gone, begins>>

Next == \/ \E b \in Ballots : \/ Campaign(b) \/ Begin(b) \/ Propose(b)
                              \/ Count(b) \/ Tell(b)
        \/ \E a \in Nodes, b \in Ballots : Promise(a, b) \/ VoteFor(a, b) \/ Follow(a, b)
        \/ \E a, c \in Nodes : CatchUp(a, c)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants *)

Agreement ==
  \A n, m \in Nodes : \A i \in 1..Min({Len(log[n]), Len(log[m])}) : log[n][i] = log[m][i]

ChosenOnce ==
  \A i \in Slots : \A b, c \in Ballots :
    Proposed(b, i) /\ IsQuorum(Voters(b, i)) /\ Proposed(c, i) /\ IsQuorum(Voters(c, i))
      => ValueIn(b, i) = ValueIn(c, i)

DecidedIsChosen ==
  \A n \in Nodes : \A i \in 1..Len(log[n]) :
    \E b \in Ballots : /\ Proposed(b, i) /\ IsQuorum(Voters(b, i))
                       /\ ValueIn(b, i) = log[n][i]

(* [decide-2] The decisions that a leader announces hold for the votes in  *)
(* its ballot.                                                             *)
TellsItsOwn ==
  \A b \in Ballots : start[b] # 0 =>
    \A i \in start[b]..(told[b] - 1) :
      /\ Proposed(b, i)
      /\ \E c \in Ballots : /\ Proposed(c, i) /\ IsQuorum(Voters(c, i))
                           /\ ValueIn(c, i) = ValueIn(b, i)

(* [p1-3] A 1B reports the highest ballot voted in. *)
ReportsTheHighest ==
  \A b \in Ballots : \A r \in answers[b], i \in Slots :
    i >= r.floor /\ i >= from[b] =>
      \A v \in votes[r.node] : v[2] = i /\ v[1] < b => v[1] <= r.votes[i][1]

(* [p1-3] [p2-1] No vote is above the promise. *)
PromiseCovers == \A a \in Nodes : \A v \in votes[a] : v[1] <= promised[a]

(* [p1-6] In a ballot, no older value follows a new one. *)
NoOvertaking ==
  \A b \in Ballots : \A k, l \in 1..Len(prop[b]) :
    k < l /\ prop[b][k] = b => prop[b][l] = b
=============================================================================
