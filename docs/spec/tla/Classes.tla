------------------------------- MODULE Classes -------------------------------
(***************************************************************************)
(* Effects of a crash, in durable and volatile groups: what must be on     *)
(* stable storage before it is announced, whose vote counts at which       *)
(* class, and which nodes return as new members. One slot and one          *)
(* configuration: founding members of weight 1, each in incarnation 0.     *)
(* Giving weight to a later incarnation is a reconfiguration (Eras).       *)
(*                                                                         *)
(* Messages are explicit here, because a node may forget what it has sent. *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS Nodes, Ballots, \* as in Ranges
          Class,          \* class of the group: "durable" or "volatile"
          Crashing,       \* nodes that may crash; others write and send in one step
          Crashes,        \* maximum number of crashes
          Mutant

VARIABLES memory, disk,   \* by node: state in memory, and state on stable storage
          boot,           \* number of processes started so far ([volatile-1])
          incarnation,
          asking,         \* the process's current ballot of its own
          oneA, oneB, twoA, twoB,
          crashes
vars == <<memory, disk, boot, incarnation, asking, oneA, oneB, twoA, twoB, crashes>>

Keeps(rule) == Mutant # rule
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Owner(b) == ((b - 1) % Cardinality(Nodes)) + 1
IsQuorum(S) == 2 * Cardinality(S) > Cardinality(Nodes)

(* A value is a ballot and the process that led in it. *)
NoVote == [ballot |-> 0, value |-> <<0, 0>>]
Blank == [spoken |-> 0, promised |-> 0, vote |-> NoVote]

Init == /\ memory = [n \in Nodes |-> Blank] /\ disk = memory
        /\ boot = [n \in Nodes |-> 0] /\ incarnation = boot /\ asking = boot
        /\ oneA = {} /\ oneB = {} /\ twoA = {} /\ twoB = {}
        /\ crashes = 0

Disk(n) == IF n \in Crashing THEN disk[n] ELSE memory[n]
(* [class-3] State that a promise must be based on: that of the group's    *)
(* class.                                                                  *)
Safe(n) == IF Class = "durable" THEN Disk(n) ELSE memory[n]

-----------------------------------------------------------------------------
(* [ballot-2] Records the round; once that is durable, in every group, the *)
(* 1A leaves.                                                              *)
Speak(n, b) ==
  /\ Owner(b) = n /\ memory[n].spoken < b /\ memory[n].promised < b
  /\ memory' = [memory EXCEPT ![n].spoken = b]
  /\ asking' = [asking EXCEPT ![n] = b]
  /\ UNCHANGED <<disk, boot, incarnation, oneA, oneB, twoA, twoB, crashes>>
Ask(n) ==
  LET b == asking[n] IN
  /\ b # 0 /\ b \notin oneA
  /\ Keeps("ballot-2") => Disk(n).spoken = b
  /\ oneA' = oneA \cup {b}
  /\ UNCHANGED <<memory, disk, boot, incarnation, asking, oneB, twoA, twoB, crashes>>

(* [p1-3] Reports votes even if they are not durable yet. *)
OneB(a, b) == [ballot |-> b, from |-> <<a, incarnation[a]>>,
               vote |-> IF Keeps("p1-3") THEN memory[a].vote ELSE disk[a].vote]
(* [p1-2] Makes the promise; the 1B is separate and waits for storage. *)
Promise(a, b) ==
  /\ b \in oneA /\ memory[a].promised < b
  /\ memory' = [memory EXCEPT ![a].promised = b]
  /\ oneB' = IF a \in Crashing THEN oneB ELSE oneB \cup {OneB(a, b)}
  /\ UNCHANGED <<disk, boot, incarnation, asking, oneA, twoA, twoB, crashes>>
TellPromise(a, b) ==
  /\ b \in oneA /\ memory[a].promised = b /\ a \in Crashing
  /\ Keeps("p1-2") => Safe(a).promised = b
  /\ oneB' = oneB \cup {OneB(a, b)}
  /\ UNCHANGED <<memory, disk, boot, incarnation, asking, oneA, twoA, twoB, crashes>>

(* [class-4] Only the incarnation that is a member counts. *)
Members == {<<n, 0>> : n \in Nodes}

Begin(n) ==
  LET b == asking[n]
      all == {m \in oneB : m.ballot = b /\ m.from \in Members}
      high == Max({m.vote.ballot : m \in all})
      old == (CHOOSE m \in all : m.vote.ballot = high).vote.value
      value == IF high = 0 THEN <<b, boot[n]>> ELSE old
  IN  /\ b # 0 /\ memory[n].promised = b
      /\ IsQuorum({m.from : m \in all})
      /\ twoA' = twoA \cup {[ballot |-> b, value |-> value]}
      /\ asking' = [asking EXCEPT ![n] = 0]
      (* [p2-4] The 2A leaves before the leader's own record is durable,   *)
      (* so it is not a durable vote.                                      *)
      /\ twoB' = IF Keeps("p2-4") THEN twoB ELSE
           twoB \cup {[ballot |-> b, value |-> value, from |-> <<n, incarnation[n]>>,
                       class |-> "durable"]}
      /\ UNCHANGED <<memory, disk, boot, incarnation, oneA, oneB, crashes>>

TwoB(a, v, class) == [ballot |-> v.ballot, value |-> v.value,
                      from |-> <<a, incarnation[a]>>, class |-> class]
(* [p2-1] [count-1] No vote for a second value in a ballot. *)
VoteFor(a, m) ==
  /\ m.ballot >= memory[a].promised
  /\ memory[a].vote.ballot # m.ballot
  /\ memory' = [memory EXCEPT ![a].promised = m.ballot, ![a].vote = m]
  /\ twoB' = IF a \in Crashing THEN twoB ELSE twoB \cup {TwoB(a, m, Class)}
  /\ UNCHANGED <<disk, boot, incarnation, asking, oneA, oneB, twoA, crashes>>

(* [p2-6] A 2B reports which votes are in memory and which are durable. *)
TellVote(a, class) ==
  LET v == IF class = "durable" /\ Keeps("p2-6") THEN disk[a].vote ELSE memory[a].vote IN
  /\ v # NoVote /\ a \in Crashing
  /\ twoB' = twoB \cup {TwoB(a, v, class)}
  /\ UNCHANGED <<memory, disk, boot, incarnation, asking, oneA, oneB, twoA, crashes>>

(* Reports below the group's class have no effect. *)
Told == IF Keeps("class-1") THEN {Class} ELSE {"durable", "volatile"}

-----------------------------------------------------------------------------
(* [disk-2] Records become durable in order: stable storage holds what     *)
(* memory held at some earlier moment.                                     *)
Persist(n) ==
  /\ n \in Crashing
  /\ disk' = [disk EXCEPT ![n] = IF Class = "durable" THEN memory[n]
                                 ELSE [@ EXCEPT !.spoken = memory[n].spoken]]
  /\ disk' # disk
  /\ UNCHANGED <<memory, boot, incarnation, asking, oneA, oneB, twoA, twoB, crashes>>

(* [model-2] [volatile-1] In a durable group a node returns with           *)
(* everything it reported as durable. In a volatile group it returns as a  *)
(* new member, with whatever its log still holds, at least its rounds.     *)
Crash(n) ==
  /\ n \in Crashing /\ crashes < Crashes
  /\ crashes' = crashes + 1
  /\ boot' = [boot EXCEPT ![n] = @ + 1]
  /\ asking' = [asking EXCEPT ![n] = 0]
  /\ IF Class = "durable"
     THEN memory' = [memory EXCEPT ![n] = disk[n]] /\ UNCHANGED <<incarnation, disk>>
     ELSE /\ \E left \in {memory[n], Blank} :
               memory' = [memory EXCEPT ![n] = [left EXCEPT !.spoken = disk[n].spoken]]
          /\ UNCHANGED disk
          /\ incarnation' = IF Keeps("volatile-1") THEN [incarnation EXCEPT ![n] = @ + 1]
                            ELSE incarnation
  /\ UNCHANGED <<oneA, oneB, twoA, twoB>>

(* A later incarnation is ignored until it has weight (Eras). *)
Next == \E n \in {m \in Nodes : <<m, incarnation[m]>> \in Members} :
          \/ Ask(n) \/ Begin(n) \/ Persist(n) \/ Crash(n)
          \/ \E b \in Ballots : Speak(n, b) \/ Promise(n, b) \/ TellPromise(n, b)
          \/ \E m \in twoA : VoteFor(n, m)
          \/ \E class \in Told : TellVote(n, class)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* [class-1] Votes of one ballot, by members, each of at least the group's *)
(* class. A durable vote is also a volatile one.                           *)
Enough(class) == class = "durable" \/ Class = "volatile" \/ ~Keeps("class-1")
Voters(b, v) == {m.from : m \in {t \in twoB : /\ t.ballot = b /\ t.value = v
                                              /\ Enough(t.class) /\ t.from \in Members}}
Chosen == {m.value : m \in {t \in twoA : IsQuorum(Voters(t.ballot, t.value))}}

Agreement == Cardinality(Chosen) <= 1

(* [ballot-2] There is one value for each ballot. *)
OneValue == \A m, o \in twoA : m.ballot = o.ballot => m.value = o.value

(* [p1-2] A member forgets nothing that it has reported. *)
WordIsKept ==
  \A m \in oneB : m.from[2] = incarnation[m.from[1]] => memory[m.from[1]].promised >= m.ballot
=============================================================================
