------------------------------- MODULE Devices -------------------------------
(***************************************************************************)
(* Phase 2 in devices, in a volatile group, whose votes count at once. One *)
(* ballot is armed, its coordinator allocates slots, and devices vote;     *)
(* owners fence their devices before they promise another ballot, and the  *)
(* leader recovers the allocated slots. Initially, phase 1 of ballot 1 is  *)
(* complete and every node has promised it; another node may start ballot  *)
(* 2 at any moment.                                                        *)
(*                                                                         *)
(* A device's step has a beginning and an end, between which it may be     *)
(* fenced. Frames and orders arrive late, repeatedly or never.             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets

CONSTANTS Nodes,    \* node 1 leads in ballot 1; node 2 may lead in ballot 2
          With,     \* nodes with devices
          MaxSlot,
          Cells,    \* [offload-14] cells of each device
          Resets,   \* maximum number of power losses
          Mutant

VARIABLES promised, votes,    \* of the owner: ballot; map from slots to votes
          decided,            \* decided[n]: n has decided the slots below it
          armed, cell, steps, \* of the device: ballot; cells; steps in progress
          lastOrder, orders, counter, \* [offload-17]
          boot, armedBoot,    \* of the device; as known to the owner that armed it
          floor,              \* of the device
          next, stored, giving, \* of the coordinator: next slot, stored values
          drive,              \* allocator of ballot 1's slots
          twoA, twoB, oneB, begun, resets
device == <<armed, cell, steps, lastOrder, boot, floor>>
owner == <<promised, votes, decided, orders, counter, armedBoot>>
coordinator == <<next, stored, giving, drive>>
vars == <<device, owner, coordinator, twoA, twoB, oneB, begun, resets>>

Slots == 1..MaxSlot
Keeps(rule) == Mutant # rule
Max(S) == CHOOSE x \in S : \A y \in S : y <= x
IsQuorum(S) == 2 * Cardinality(S) > Cardinality(Nodes)

(* Values: 0 is a no-op, 1 the first proposal in ballot 1, 2 the proposal   *)
(* of another client or of ballot 2.                                        *)
None == [ballot |-> 0, value |-> 0]
Empty == [slot |-> 0, value |-> 0]

Init == /\ promised = [n \in Nodes |-> 1] /\ votes = [n \in Nodes |-> [i \in Slots |-> None]]
        /\ decided = [n \in Nodes |-> 1]
        /\ armed = [n \in Nodes |-> 0] /\ cell = [n \in Nodes |-> [k \in 0..(Cells - 1) |-> Empty]]
        /\ steps = [n \in Nodes |-> {}] /\ lastOrder = [n \in Nodes |-> 0]
        /\ orders = [n \in Nodes |-> {}] /\ counter = [n \in Nodes |-> 0]
        /\ boot = [n \in Nodes |-> 0] /\ armedBoot = [n \in Nodes |-> 0]
        /\ floor = [n \in Nodes |-> 1]
        /\ next = 1 /\ stored = [i \in Slots |-> 0] /\ giving = 0 /\ drive = "device"
        /\ twoA = {} /\ twoB = {} /\ oneB = {} /\ begun = FALSE /\ resets = 0

-----------------------------------------------------------------------------
(* The coordinator of ballot 1 *)

(* [offload-14] Claims a slot, then stores its value; then the 2A leaves    *)
(* ([offload-12]).                                                          *)
Give == /\ drive = "device" /\ giving = 0 /\ next \in Slots
        /\ giving' = next /\ next' = next + 1
        /\ UNCHANGED <<device, owner, stored, drive, twoA, twoB, oneB, begun, resets>>
GiveEnds ==
  /\ giving # 0
  /\ \/ /\ stored' = [stored EXCEPT ![giving] = 1]
        /\ twoA' = twoA \cup {[ballot |-> 1, slot |-> giving, value |-> 1]}
     \/ UNCHANGED <<stored, twoA>>    \* its value was unusable
  /\ giving' = 0
  /\ UNCHANGED <<device, owner, next, drive, twoB, oneB, begun, resets>>

(* [offload-12] Recovers the slots: allocation stops and steps in progress  *)
(* end. Stored values are proposed in the same ballot over connections;     *)
(* slots without a value were never announced.                              *)
TakeBack ==
  /\ drive = "device"
  /\ Keeps("offload-12 drain") => giving = 0
  /\ drive' = "leader"
  /\ twoA' = twoA \cup {[ballot |-> 1, slot |-> i,
                         value |-> stored[i]] : i \in 1..(next - 1)}
  /\ UNCHANGED <<device, owner, next, stored, giving, twoB, oneB, begun, resets>>

(* The coordinator loses its memory, and with it the slots that it          *)
(* allocated. The leader steps down.                                        *)
Forgets ==
  /\ drive = "device" /\ resets < Resets
  /\ resets' = resets + 1
  /\ giving' = 0
  /\ stored' = [i \in Slots |-> 0]
  /\ IF Keeps("offload-12 lost") THEN drive' = "nobody" /\ next' = next
     ELSE drive' = "leader" /\ next' = 1
  /\ UNCHANGED <<device, owner, twoA, twoB, oneB, begun>>

(* The leader continues over connections after the allocated slots. *)
Propose ==
  /\ drive = "leader" /\ next \in Slots /\ promised[1] = 1
  /\ twoA' = twoA \cup {[ballot |-> 1, slot |-> next, value |-> 2]}
  /\ next' = next + 1
  /\ UNCHANGED <<device, owner, stored, giving, drive, twoB, oneB, begun, resets>>

-----------------------------------------------------------------------------
(* The acceptor of a device *)

(* [offload-6] Votes if armed with exactly this ballot, for a slot from the *)
(* floor on that the cells have space for. The step checks this at its      *)
(* beginning;                                                               *)
VoteBegins(n, m) ==
  /\ armed[n] = m.ballot
  /\ m.slot >= floor[n] /\ m.slot < floor[n] + Cells
  /\ m \notin steps[n]
  /\ steps' = [steps EXCEPT ![n] = @ \cup {m}]
  /\ UNCHANGED <<armed, cell, lastOrder, boot, floor, owner, coordinator, twoA, twoB, oneB,
                 begun, resets>>

(* its access to the cell is atomic: an existing vote is reported           *)
(* unchanged, and a cell is reused if its slot is below the floor.          *)
VoteEnds(n, m) ==
  LET k == m.slot % Cells
      held == cell[n][k]
      says(v) == twoB' = twoB \cup {[ballot |-> m.ballot, slot |-> m.slot, value |-> v, from |-> n]}
  IN  /\ m \in steps[n]
      /\ steps' = [steps EXCEPT ![n] = @ \ {m}]
      /\ CASE held.slot = m.slot -> says(held.value) /\ UNCHANGED cell
           [] held.slot = 0 \/ held.slot < floor[n] ->
                /\ cell' = [cell EXCEPT ![n][k] = [slot |-> m.slot, value |-> m.value]]
                /\ says(m.value)
           [] OTHER -> UNCHANGED <<cell, twoB>>
      /\ UNCHANGED <<armed, lastOrder, boot, floor, owner, coordinator, twoA, oneB, begun, resets>>

(* [offload-9] *)
Reset(n) ==
  /\ resets < Resets
  /\ resets' = resets + 1
  /\ boot' = [boot EXCEPT ![n] = @ + 1]
  /\ armed' = [armed EXCEPT ![n] = 0] /\ steps' = [steps EXCEPT ![n] = {}]
  /\ cell' = [cell EXCEPT ![n] = [k \in 0..(Cells - 1) |-> Empty]]
  /\ UNCHANGED <<lastOrder, floor, owner, coordinator, twoA, twoB, oneB, begun>>

-----------------------------------------------------------------------------
(* Owners *)

(* [offload-5] An owner arms its device for the ballot that it has          *)
(* promised. The order is in flight ([offload-17] by number, to this boot)  *)
(* and counts as obeyed from now on.                                        *)
Arm(n) ==
  /\ promised[n] = 1 \/ ~Keeps("offload-5 promise")
  /\ counter[n] = 0 \/ (~Keeps("offload-5 promise") /\ counter[n] < 3)
  /\ counter' = [counter EXCEPT ![n] = @ + 1]
  /\ orders' = [orders EXCEPT ![n] = @ \cup {counter'[n]}]
  /\ armedBoot' = [armedBoot EXCEPT ![n] = boot[n]]
  /\ UNCHANGED <<promised, votes, decided, device, coordinator, twoA, twoB, oneB, begun, resets>>
Obey(n, k) ==
  /\ k \in orders[n]
  /\ Keeps("offload-17") => k > lastOrder[n]
  /\ armedBoot[n] = boot[n]
  /\ lastOrder' = [lastOrder EXCEPT ![n] = IF k > @ THEN k ELSE @]
  /\ armed' = [armed EXCEPT ![n] = 1]
  /\ UNCHANGED <<cell, steps, boot, floor, owner, coordinator, twoA, twoB, oneB, begun, resets>>

(* [offload-8] Before the promise rises: disarm, with a separate order, *)
Disarm(n) ==
  /\ counter[n] = 1
  /\ counter' = [counter EXCEPT ![n] = 2]
  /\ lastOrder' = [lastOrder EXCEPT ![n] = 2]
  /\ armed' = [armed EXCEPT ![n] = 0]
  /\ UNCHANGED <<promised, votes, decided, orders, armedBoot, cell, steps, boot, floor,
                 coordinator, twoA, twoB, oneB, begun, resets>>
IsFenced(n) ==
  \/ counter[n] = 0
  \/ ~Keeps("offload-8 fence")
  \/ /\ counter[n] >= 2
     /\ Keeps("offload-8 drain") => steps[n] = {}   \* drain,
     /\ Keeps("offload-9") => boot[n] = armedBoot[n] \* check the boot again,
(* read out every vote from the floor on, holes included, and import it.   *)
ReadOut(n) ==
  [i \in Slots |-> LET c == cell[n][i % Cells] IN
     IF Keeps("offload-8 read") /\ c.slot = i /\ i >= floor[n] /\ votes[n][i].ballot <= 1
     THEN [ballot |-> 1, value |-> c.value] ELSE votes[n][i]]

(* [p1-2] Promise only then; the 1B reports all votes and the floor. *)
Promise(n) ==
  /\ promised[n] = 1 /\ IsFenced(n)
  /\ promised' = [promised EXCEPT ![n] = 2]
  /\ votes' = [votes EXCEPT ![n] = ReadOut(n)]
  /\ oneB' = oneB \cup {[from |-> n, floor |-> decided[n], votes |-> ReadOut(n)]}
  /\ UNCHANGED <<decided, orders, counter, armedBoot, device, coordinator, twoA, twoB, begun,
                 resets>>

(* An owner also votes itself, for proposals that arrive over connections, *)
(* but not in another ballot while its device is armed. [count-1] Nor      *)
(* against a vote.                                                         *)
VoteFor(n, m) ==
  /\ m.ballot >= promised[n] /\ m.slot >= decided[n]
  /\ m.ballot = 1 => drive = "leader" \/ n \notin With
  /\ m.ballot = 2 => promised[n] = 2 \/ IsFenced(n)
  /\ LET v == ReadOut(n)[m.slot] IN
     /\ v.ballot <= m.ballot
     /\ v.ballot = m.ballot => v.value = m.value
     /\ promised' = [promised EXCEPT ![n] = m.ballot]
     /\ votes' = [votes EXCEPT ![n] = [(IF m.ballot > promised[n] THEN ReadOut(n) ELSE votes[n]) EXCEPT
                    ![m.slot] = [ballot |-> m.ballot, value |-> m.value]]]
  /\ twoB' = twoB \cup {[ballot |-> m.ballot, slot |-> m.slot, value |-> m.value, from |-> n]}
  /\ UNCHANGED <<decided, orders, counter, armedBoot, device, coordinator, twoA, oneB, begun, resets>>

Voters(b, i, v) == {m.from : m \in {t \in twoB : t.ballot = b /\ t.slot = i /\ t.value = v}}
IsChosen(b, i, v) == IsQuorum(Voters(b, i, v))

(* [offload-11] Decides in slot order. [offload-14] Raises the device's     *)
(* floor to the owner's decided prefix.                                     *)
Decide(n) ==
  /\ Cells < MaxSlot    \* otherwise no cell is ever reused
  /\ decided[n] \in Slots
  /\ \E b \in {1, 2}, v \in 0..2 : IsChosen(b, decided[n], v)
  /\ decided' = [decided EXCEPT ![n] = @ + 1]
  /\ UNCHANGED <<promised, votes, orders, counter, armedBoot, device, coordinator, twoA, twoB,
                 oneB, begun, resets>>
Raise(n) ==
  /\ floor[n] < IF Keeps("offload-14") THEN decided[n] ELSE MaxSlot + 1
  /\ floor' = [floor EXCEPT ![n] = @ + 1]
  /\ UNCHANGED <<armed, cell, steps, lastOrder, boot, owner, coordinator, twoA, twoB, oneB,
                 begun, resets>>

-----------------------------------------------------------------------------
(* Ballot 2: phase 1 as in Ranges, and one proposal for each slot. *)
Begin ==
  LET floors == {m.floor : m \in oneB}
      Highest(i) == CHOOSE v \in {m.votes[i] : m \in oneB} :
                      \A m \in oneB : m.votes[i].ballot <= v.ballot
  IN  /\ ~begun /\ promised[2] = 2
      /\ IsQuorum({m.from : m \in oneB}) /\ \E m \in oneB : m.from = 2
      /\ decided[2] >= Max(floors)
      /\ begun' = TRUE
      /\ twoA' = twoA \cup {[ballot |-> 2, slot |-> i,
                             value |-> IF Highest(i).ballot = 0 THEN 2 ELSE Highest(i).value]
                            : i \in {j \in Slots : j >= decided[2]}}
      /\ UNCHANGED <<device, owner, coordinator, twoB, oneB, resets>>

Next == \/ Give \/ GiveEnds \/ TakeBack \/ Forgets \/ Propose \/ Begin
        \/ \E n \in Nodes :
             \/ n \in With /\ (Reset(n) \/ Arm(n))
             \/ Disarm(n) \/ Promise(n) \/ Decide(n) \/ Raise(n)
             \/ \E k \in orders[n] : Obey(n, k)
             \/ \E m \in twoA : VoteBegins(n, m) \/ VoteEnds(n, m) \/ VoteFor(n, m)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
ChosenOnce ==
  \A i \in Slots : \A m, o \in {t \in twoB : t.slot = i} :
    IsChosen(m.ballot, i, m.value) /\ IsChosen(o.ballot, i, o.value) => m.value = o.value

(* [ballot-2] [count-1] *)
OneValue == \A m, o \in twoA : m.ballot = o.ballot /\ m.slot = o.slot => m.value = o.value

(* [offload-8] No device votes in ballot 1 for an owner that promised      *)
(* ballot 2.                                                               *)
FenceHolds == \A n \in Nodes : promised[n] = 2 => armed[n] = 0 /\ steps[n] = {}
=============================================================================
