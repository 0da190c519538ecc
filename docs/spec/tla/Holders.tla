------------------------------- MODULE Holders -------------------------------
(***************************************************************************)
(* Durability of decided values with their bytes: losing members of less   *)
(* weight than a quorum loses no decided value, whatever changes are made  *)
(* and whatever auxiliaries forget. Ranges and Eras show that one value is *)
(* decided in a slot; here a decision is one step, taken by members that   *)
(* form a phase-2 quorum and hold the value.                               *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Nodes,
          Light,      \* founding members of weight 1; all other nodes have 0
          Up, Down,   \* nodes whose weight may rise, or fall, by one
          Auxiliaries,\* members that receive nothing in normal operation ([aux-1])
          MaxSlot,
          Mutant

VARIABLES log,     \* values decided so far
          holds    \* holds[n]: slots that n has on stable storage, bytes included
vars == <<log, holds>>

Keeps(rule) == Mutant # rule
RECURSIVE Weight(_, _)
Weight(C, S) == IF S = {} THEN 0
                ELSE LET n == CHOOSE n \in S : TRUE IN C[n] + Weight(C, S \ {n})
IsQuorum(C, S) == 2 * Weight(C, S) > Weight(C, Nodes)
Meets(C, S) == ~IsQuorum(C, Nodes \ S)      \* S meets every quorum of C
Full == Nodes \ Auxiliaries

Plain == <<"plain", 0>>
Founding == [n \in Nodes |-> IF n \in Light THEN 1 ELSE 0]
After(C, v) == CASE v[1] = "up" -> [C EXCEPT ![v[2]] = @ + 1]
                 [] v[1] = "down" -> [C EXCEPT ![v[2]] = @ - 1]
                 [] OTHER -> C
RECURSIVE In_(_)
In_(prefix) == IF prefix = <<>> THEN Founding
               ELSE After(In_(SubSeq(prefix, 1, Len(prefix) - 1)), prefix[Len(prefix)])
Current == In_(log)

(* Slots that began the eras so far; slot 0 began the first. *)
Began == {0} \cup {i \in 1..Len(log) : log[i] # Plain}
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Since == Max(Began)

Init == log = <<>> /\ holds = [n \in Nodes |-> {}]

(* [era-4] The full replicas alone form a phase-2 quorum. *)
IsValid(C) == /\ \A n \in Nodes : C[n] >= 0
              /\ Weight(C, Nodes) > 0 /\ IsQuorum(C, Full)

(* [era-12] Full replicas that intersect every phase-1 quorum of the next  *)
(* configuration hold everything up to the change that began the current   *)
(* era. [era-8] This is checked while no other change is in flight;        *)
(* otherwise the earlier change began the current era.                     *)
MayPropose(C) ==
  LET since == IF Keeps("era-8") \/ Since = 0 THEN Since ELSE Max(Began \ {Since})
  IN  Keeps("era-12") => Meets(C, {n \in Full : 1..since \subseteq holds[n]})

Changes == {<<"up", n>> : n \in Up} \cup
           {<<"down", n>> : n \in {m \in Down : Current[m] > 0}}

(* [class-1] [value-3] Every voter has the bytes. *)
Decide(v, Q) ==
  LET i == Len(log) + 1 IN
  /\ i <= MaxSlot
  /\ Q \subseteq {n \in Nodes : Current[n] > 0} /\ IsQuorum(Current, Q)
  /\ v # Plain => IsValid(After(Current, v)) /\ MayPropose(After(Current, v))
  /\ log' = Append(log, v)
  /\ \E hollow \in IF Keeps("value-3") THEN {{}} ELSE {{n} : n \in Q} :
       holds' = [n \in Nodes |-> IF n \in Q \ hollow THEN holds[n] \cup {i} ELSE holds[n]]

(* [catch-1] [aux-1] A full replica learns a value from a node that holds  *)
(* it; an auxiliary learns nothing.                                        *)
CatchUp(n, i) ==
  /\ n \in Full /\ i \notin holds[n] /\ \E m \in Nodes : i \in holds[m]
  /\ holds' = [holds EXCEPT ![n] = @ \cup {i}]
  /\ UNCHANGED log

(* [trim-1] [aux-3] An auxiliary forgets a value once full replicas that   *)
(* form a phase-2 quorum of the current era hold it. Full replicas retain  *)
(* theirs in a snapshot.                                                   *)
Forget(n, i) ==
  LET who == IF Keeps("trim-1 self") THEN Full ELSE Full \cup {n}
      held == {m \in who : i \in holds[m]}
  IN  /\ n \in Auxiliaries /\ i \in holds[n]
      /\ Keeps("trim-1") => IsQuorum(Current, held)
      /\ holds' = [holds EXCEPT ![n] = @ \ {i}]
      /\ UNCHANGED log

Next == \/ \E v \in {Plain} \cup Changes, Q \in SUBSET Nodes : Decide(v, Q)
        \/ \E n \in Nodes, i \in 1..MaxSlot : CatchUp(n, i) \/ Forget(n, i)

Spec == Init /\ [][Next]_vars

(* Every node that can lead by the newest configuration finds every        *)
(* decided value.                                                          *)
NothingIsGone ==
  \A i \in 1..Len(log) : Meets(Current, {n \in Nodes : i \in holds[n]})
=============================================================================
