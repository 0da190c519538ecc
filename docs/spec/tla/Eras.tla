-------------------------------- MODULE Eras --------------------------------
(***************************************************************************)
(* Members, weights and eras. A reconfiguration is a value; the            *)
(* configuration of a slot follows from the values below it. A leader      *)
(* keeps leading in its ballot while it prepares a ballot of the new era,  *)
(* and gives its own promise last (the casting vote).                      *)
(*                                                                         *)
(* As in Ranges, messages are what the variables retain of them. Votes     *)
(* cast can be counted by any node, so deciding by votes, following a      *)
(* leader and catching up are one action here (Ranges separates them).     *)
(* [ballot-5] is liveness and [era-8] durability (module Holders);         *)
(* agreement is shown without them: leaders propose the next change at any *)
(* time, even after others that are undecided.                             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Nodes,    \* numbers below 10
          Light,    \* weight 1 in era 0
          Heavy,    \* weight 2; all other nodes 0
          Up, Down, \* nodes whose weight may rise, or fall, by one ([era-4])
          Factors,  \* factors by which all weights may be multiplied or divided
          Ballots,  \* some of era * 100 + round * 10 + node
          MaxSlot,
          MaxEra,   \* no changes from this era on
          Founded,  \* number of raises of the weight of node Third
                    \* that are decided everywhere initially
          Third,
          Mutant

VARIABLES promised, votes, from, answered, prop, start, log
vars == <<promised, votes, from, answered, prop, start, log>>

Slots == 1..MaxSlot
Keeps(rule) == Mutant # rule
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Min(S) == CHOOSE x \in S : \A y \in S : y >= x

Owner(b) == b % 10
Round(b) == (b % 100) \div 10
Era(b) == b \div 100
(* [ballot-1] The era counts first; ballots are numbers with this order. *)
Order(b) == IF Keeps("ballot-1") THEN b ELSE Round(b) * 100 + Era(b) * 10 + Owner(b)
Highest(B) == CHOOSE b \in B : \A c \in B : Order(c) <= Order(b)

-----------------------------------------------------------------------------
(* Values and configurations *)

NoOp == [kind |-> "noop"]
New(b) == [kind |-> "new", by |-> b]
Change(e, how, what) == [kind |-> how, era |-> e, what |-> what]

Founding == [n \in Nodes |-> IF n \in Heavy THEN 2 ELSE IF n \in Light THEN 1 ELSE 0]
RECURSIVE Weight(_, _)
Weight(C, S) == IF S = {} THEN 0
                ELSE LET n == CHOOSE n \in S : TRUE IN C[n] + Weight(C, S \ {n})
IsQuorum(C, S) == 2 * Weight(C, S) > Weight(C, Nodes)

(* [era-4] One member by one, or all members by a factor. *)
Step == IF Keeps("era-4") THEN 1 ELSE 3
IsValid(C, v) ==
  CASE v.kind = "up" -> TRUE
    [] v.kind = "down" -> C[v.what] > 0 /\ Weight(C, Nodes) > 1
    [] v.kind = "times" -> TRUE
    [] v.kind = "by" -> \A n \in Nodes : C[n] % v.what = 0
    [] OTHER -> FALSE
Apply(C, v) ==
  CASE v.kind = "up" -> [C EXCEPT ![v.what] = @ + Step]
    [] v.kind = "down" -> [C EXCEPT ![v.what] = @ - 1]
    [] v.kind = "times" -> [n \in Nodes |-> C[n] * v.what]
    [] v.kind = "by" -> [n \in Nodes |-> C[n] \div v.what]

(* [era-2] Configurations that follow from the founding configuration and  *)
(* a decided prefix: one for each era. A change that names another era     *)
(* than the one it would change is a no-op.                                *)
RECURSIVE Eras(_)
Eras(prefix) ==
  IF prefix = <<>> THEN <<Founding>>
  ELSE LET before == Eras(SubSeq(prefix, 1, Len(prefix) - 1))
           v == prefix[Len(prefix)]
           last == before[Len(before)]
       IN  IF /\ v.kind \in {"up", "down", "times", "by"}
              /\ v.era = Len(before) - 1 /\ IsValid(last, v)
           THEN Append(before, Apply(last, v)) ELSE before
(* [era-3] *)
EraOf(prefix) == Len(Eras(prefix)) - 1
Configuration(prefix, e) == Eras(prefix)[e + 1]

-----------------------------------------------------------------------------
ValueIn(b, i) == prop[b][i - start[b] + 1]
Next_(b) == start[b] + Len(prop[b])
Proposed(b, i) == start[b] # 0 /\ i \in start[b]..(Next_(b) - 1)
DecidedTo(n) == Len(log[n]) + 1
(* Longest decided prefix; a node that campaigns in an era knows at least  *)
(* how the era began.                                                      *)
Longest == LET n == CHOOSE n \in Nodes : \A m \in Nodes : Len(log[m]) <= Len(log[n])
           IN  log[n]

Init == /\ promised = [a \in Nodes |-> 0]
        /\ votes = [a \in Nodes |-> {}]
        /\ from = [b \in Ballots |-> 0]
        /\ answered = [b \in Ballots |-> {}]
        /\ prop = [b \in Ballots |-> <<>>]
        /\ start = [b \in Ballots |-> 0]
        /\ log = [n \in Nodes |-> [i \in 1..Founded |-> Change(i - 1, "up", Third)]]

(* [ballot-3] In the newest era whose beginning the node has decided       *)
(* itself. Meanwhile it may still lead in a lower ballot ([cast-2]). A run *)
(* that begins in a later era may have begun older ballots earlier.        *)
Campaign(b) ==
  LET n == Owner(b) IN
  /\ from[b] = 0
  /\ Order(promised[n]) < Order(b)
  /\ IF ~Keeps("ballot-3") THEN Era(b) <= EraOf(Longest)
     ELSE Era(b) = EraOf(log[n]) \/ (Era(b) < EraOf(log[n]) /\ Era(b) < Founded)
  /\ from' = [from EXCEPT ![b] = DecidedTo(n)]
  /\ UNCHANGED <<promised, votes, answered, prop, start, log>>

(* [p1-2] [ballot-4] For members and other nodes alike. A 1B reports the   *)
(* acceptor's votes in lower ballots, which can no longer change.          *)
Promise(a, b) ==
  /\ from[b] # 0
  /\ Order(promised[a]) <= Order(b)
  /\ a \notin answered[b]
  /\ answered' = [answered EXCEPT ![b] = @ \cup {a}]
  /\ promised' = [promised EXCEPT ![a] = b]
  /\ UNCHANGED <<votes, from, prop, start, log>>

(* [p1-6] The value of the highest ballot voted for by a node that         *)
(* answered; else the leader's own proposal in an earlier ballot           *)
(* ([cast-4]); else a no-op.                                               *)
Seen(b, i, Q) ==
  {v[1] : v \in {w \in UNION {votes[a] : a \in Q} : w[2] = i /\ Order(w[1]) < Order(b)}}
Own(b, i) == {c \in Ballots : Owner(c) = Owner(b) /\ Order(c) < Order(b) /\ Proposed(c, i)}
Inherited(b, i, Q) ==
  LET seen == Seen(b, i, Q) IN
  IF seen # {} THEN ValueIn(Highest(seen), i)
  ELSE IF Own(b, i) # {} THEN ValueIn(Highest(Own(b, i)), i)
  ELSE NoOp

(* [era-5] Phase 1 of b is judged by C(era(b)). [cast-3] The leader's own  *)
(* promise counts like any other: once it is kept.                         *)
Begin(b) ==
  LET n == Owner(b)
      Q == IF Keeps("cast-3") THEN answered[b] ELSE answered[b] \cup {n}
      e == IF Keeps("era-5 phase 1") \/ Era(b) = 0 THEN Era(b) ELSE Era(b) - 1
      s == EraOf(log[n])
      first == DecidedTo(n)
      used == {i \in Slots : i >= first /\ (Seen(b, i, Q) # {} \/ Own(b, i) # {})}
  IN  /\ start[b] = 0 /\ from[b] # 0
      /\ Keeps("cast-3") => promised[n] = b /\ n \in answered[b]
      /\ s <= Era(b) + 1 \/ Era(b) < Founded
      /\ IsQuorum(Configuration(Longest, e), Q)
      /\ start' = [start EXCEPT ![b] = first]
      /\ prop' = [prop EXCEPT ![b] = IF used = {} THEN <<>> ELSE
                    [k \in 1..(Max(used) + 1 - first) |-> Inherited(b, first + k - 1, Q)]]
      /\ UNCHANGED <<promised, votes, from, answered, log>>

(* [era-8] The leader may propose after a reconfiguration at once, in the   *)
(* same ballot.                                                             *)
Leads(b) ==
  /\ start[b] # 0
  /\ Order(promised[Owner(b)]) <= Order(b)
  /\ \A i \in start[b]..Len(log[Owner(b)]) :
       Proposed(b, i) /\ log[Owner(b)][i] = ValueIn(b, i)
(* Prefix below the next proposal, assuming that all of it is decided. *)
Prospect(b) == SubSeq(log[Owner(b)], 1, start[b] - 1) \o prop[b]
Offers(b) ==
  LET e == EraOf(Prospect(b)) IN
  {New(b)} \cup
  IF e >= MaxEra THEN {} ELSE
    {Change(e, "up", n) : n \in Up} \cup {Change(e, "down", n) : n \in Down}
    \cup {Change(e, "times", k) : k \in Factors} \cup {Change(e, "by", k) : k \in Factors}
Propose(b) ==
  /\ Leads(b)
  /\ Next_(b) <= MaxSlot
  /\ \E v \in Offers(b) : prop' = [prop EXCEPT ![b] = Append(@, v)]
  /\ UNCHANGED <<promised, votes, from, answered, start, log>>

(* [p2-1] [cast-4] An acceptor accepts a 2A without an earlier 1A. *)
VoteFor(a, b) ==
  LET cast == {v[2] : v \in {w \in votes[a] : w[1] = b}}
      next == Max({start[b], DecidedTo(a)} \cup {i + 1 : i \in cast})
  IN  /\ start[b] # 0
      /\ Order(promised[a]) <= Order(b)
      /\ next < Next_(b)
      /\ votes' = [votes EXCEPT ![a] = @ \cup {<<b, next>>}]
      /\ promised' = [promised EXCEPT ![a] = b]
      /\ UNCHANGED <<from, answered, prop, start, log>>

(* [era-5] In a slot of era s, votes of ballots of eras s - 1 and s count, *)
(* and C(s) judges them, whatever their ballot.                            *)
Counts(b, s) ==
  IF Keeps("era-5 older") THEN Era(b) <= s /\ s <= Era(b) + 1
  ELSE Era(b) <= s
Voters(b, i) == {a \in Nodes : <<b, i>> \in votes[a]}
ChosenIn(b, i, prefix) ==
  LET s == EraOf(prefix) IN
  /\ Proposed(b, i)
  /\ Counts(b, s)
  /\ IsQuorum(Configuration(prefix, s), Voters(b, i))

(* [decide-1] In slot order, because only then is it known which           *)
(* configuration judges a slot.                                            *)
Decide(n) ==
  \E b \in Ballots, k \in 1..(MaxSlot + 1 - DecidedTo(n)) :
    LET i == DecidedTo(n)
        all == [j \in 1..k |-> ValueIn(b, i + j - 1)]
        prefix(j) == IF Keeps("decide-1") THEN log[n] \o SubSeq(all, 1, j - 1) ELSE log[n]
    IN  /\ \A j \in 1..k : Proposed(b, i + j - 1)
        /\ Keeps("decide-1") => k = 1
        /\ \A j \in 1..k : ChosenIn(b, i + j - 1, prefix(j))
        /\ log' = [log EXCEPT ![n] = @ \o all]
        /\ UNCHANGED <<promised, votes, from, answered, prop, start>>

Next == \/ \E b \in Ballots : Campaign(b) \/ Begin(b) \/ Propose(b)
        \/ \E a \in Nodes, b \in Ballots : Promise(a, b) \/ VoteFor(a, b)
        \/ \E n \in Nodes : Decide(n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants *)

Agreement ==
  \A n, m \in Nodes : \A i \in 1..Min({Len(log[n]), Len(log[m])}) : log[n][i] = log[m][i]

(* [decide-1] [era-5] A decided value was chosen by the configuration of   *)
(* its slot.                                                               *)
DecidedIsChosen ==
  \A n \in Nodes : \A i \in (Founded + 1)..Len(log[n]) :
    \E b \in Ballots : /\ ChosenIn(b, i, SubSeq(log[n], 1, i - 1))
                       /\ ValueIn(b, i) = log[n][i]

(* [era-6] A ballot proposes only after the slot that began its era. *)
BehindItsEra ==
  \A b \in Ballots, n \in Nodes :
    start[b] # 0 /\ DecidedTo(n) >= start[b] =>
      EraOf(SubSeq(log[n], 1, start[b] - 1)) >= Era(b)

(* [ballot-1] No node returns to an earlier era. *)
ErasRise == \A a \in Nodes : \A v \in votes[a] : Era(v[1]) <= Era(promised[a])

(* [era-4] Every quorum of an era intersects every quorum of the next. *)
QuorumsMeet ==
  \A n \in Nodes : LET E == Eras(log[n]) IN
    \A k \in 1..(Len(E) - 1) : \A S \in SUBSET Nodes :
      ~(IsQuorum(E[k], S) /\ IsQuorum(E[k + 1], Nodes \ S))
=============================================================================
