-------------------------------- MODULE Trace --------------------------------
(***************************************************************************)
(* Checks that the specification allows the observed behaviour of nodes:   *)
(* each step of a trace is an action of Ranges, Eras and Classes together, *)
(* and must be enabled where it occurs. Each state has exactly one         *)
(* successor, so an allowed trace of k steps has k + 1 states; if TLC      *)
(* finds fewer, the next step is the first that was not allowed.           *)
(*                                                                         *)
(* Module Recorded contains the traces. `cargo xtask tla --trace`          *)
(* generates it from the simulator's output, with slots numbered so that   *)
(* all slots between two neighbours were always voted for together: a run  *)
(* of a stream is one slot here. Durable groups only, whose writes to      *)
(* stable storage are visible, as is each message when it is sent.         *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences, Recorded

VARIABLES run,      \* index of the trace
          at,       \* index of its next step
          spoken,   \* by node: last round on stable storage
          promised, \* promises, by member
          answered, \* by ballot: members that promised it
          held,     \* by slot: records [ballot, value, by]: proposals and their voters
          ends,     \* by <<member, ballot>>: end of the last slot voted for
          log,      \* decided values, as far as they are needed
          eras      \* configurations that follow from them
vars == <<run, at, spoken, promised, answered, held, ends, log, eras>>

Max(S) == CHOOSE x \in S : \A y \in S : y <= x
Get(f, x, else) == IF x \in DOMAIN f THEN f[x] ELSE else
Put(f, x, y) == [z \in DOMAIN f \cup {x} |-> IF z = x THEN y ELSE f[z]]
Step == Traces[run].steps[at]
Slots == 1..Traces[run].slots

(* [ballot-1] *)
Era(b) == b[1]
Owner(b) == b[3]
Less(b, c) == \/ b[1] < c[1]
              \/ b[1] = c[1] /\ (b[2] < c[2] \/ (b[2] = c[2] /\ b[3] < c[3]))
Zero == <<0, 0, 0>>
Highest(B) == CHOOSE b \in B : \A c \in B : ~Less(b, c)

-----------------------------------------------------------------------------
(* Configurations: [weight, auxiliary, rule, spent, past]. Members are <<node, incarnation>>; a rule is *)
(* <<>> for majorities, or two thresholds; past: incarnations that had weight.                          *)
RECURSIVE Sum(_, _)
Sum(W, S) == IF S = {} THEN 0 ELSE LET m == CHOOSE m \in S : TRUE IN W[m] + Sum(W, S \ {m})
Members(C) == DOMAIN C.weight
IsQuorum(C, phase, S) ==
  LET w == Sum(C.weight, S \cap Members(C)) IN
  IF C.rule = <<>> THEN 2 * w > Sum(C.weight, Members(C)) ELSE w >= C.rule[phase]
Meet(C, p, D, q) ==
  \A S \in SUBSET (Members(C) \cup Members(D)) :
    ~(IsQuorum(C, p, S) /\ IsQuorum(D, q, (Members(C) \cup Members(D)) \ S))

(* [era-4] [member-1] Configuration after a change, and whether the change is     *)
(* allowed.                                                                       *)
NodesOf(C) == {m[1] : m \in Members(C)}
Weights(C, m, w) == IF w = 0 THEN [n \in Members(C) \ {m} |-> C.weight[n]] ELSE Put(C.weight, m, w)
Scaled(rule, Op(_)) == [k \in DOMAIN rule |-> Op(rule[k])]
After(C, v) ==
  CASE v.change = "up" ->
         [C EXCEPT !.weight = Weights(C, v.who, Get(C.weight, v.who, 0) + 1),
                   !.past = Put(@, v.who[1], Max({v.who[2], Get(@, v.who[1], 0)}))]
    [] v.change = "down" -> [C EXCEPT !.weight = Weights(C, v.who, @[v.who] - 1),
                                      !.auxiliary = IF C.weight[v.who] = 1 THEN @ \ {v.who} ELSE @]
    [] v.change = "times" -> LET Op(x) == x * v.factor IN
         [C EXCEPT !.weight = [m \in DOMAIN @ |-> Op(@[m])], !.rule = Scaled(@, Op)]
    [] v.change = "by" -> LET Op(x) == x \div v.factor IN
         [C EXCEPT !.weight = [m \in DOMAIN @ |-> Op(@[m])], !.rule = Scaled(@, Op)]
    [] v.change = "remove" -> [C EXCEPT !.spent = @ \cup {v.node}]
    [] v.change = "role" -> [C EXCEPT !.auxiliary = IF v.auxiliary THEN @ \cup {v.who} ELSE @ \ {v.who}]
    [] v.change = "rule" -> [C EXCEPT !.rule = v.rule]
IsPossible(C, v) ==
  CASE v.change = "up" -> v.who \in Members(C) \/
         (/\ v.who[1] \notin NodesOf(C) \cup C.spent
          /\ Get(C.past, v.who[1], 0) <= v.who[2])
    [] v.change = "down" -> v.who \in Members(C)
    [] v.change = "times" -> v.factor > 0
    [] v.change = "by" -> v.factor > 0 /\ \A m \in Members(C) : C.weight[m] % v.factor = 0
                          /\ \A k \in DOMAIN C.rule : C.rule[k] % v.factor = 0
    [] v.change = "remove" -> v.node \notin NodesOf(C) \cup C.spent
    [] v.change = "role" -> v.who \in Members(C) /\ (v.who \in C.auxiliary) # v.auxiliary
    [] v.change = "rule" -> v.rule # C.rule
IsSound(C, D) ==
  /\ Members(D) # {}
  /\ IsQuorum(D, 2, Members(D) \ D.auxiliary) /\ IsQuorum(D, 1, Members(D))
  /\ Meet(D, 1, D, 2)
  /\ \/ C.rule = <<>> /\ D.rule = <<>>
     \/ Meet(C, 1, D, 2) /\ Meet(C, 2, D, 1)
IsChange(v) == "change" \in DOMAIN v

(* [era-2] Adds a decided value. eras: configurations with their first slots. *)
Further(E, i, v) ==
  LET C == E[Len(E)].of IN
  IF IsChange(v) /\ (IsChange(v) => v.era = Len(E) - 1 /\ IsPossible(C, v) /\ IsSound(C, After(C, v)))
  THEN Append(E, [of |-> After(C, v), since |-> i + 1]) ELSE E

-----------------------------------------------------------------------------
(* [decide-1] [era-5] [class-1] [class-4] Value chosen in the first undecided slot, if there is one: *)
(* by durable votes of one ballot, cast by members of the slot's era.                                *)
Counts(b, s) == Era(b) = s \/ Era(b) + 1 = s
Chosen(E, i) == {p \in held[i] : Counts(p.ballot, Len(E) - 1) /\ IsQuorum(E[Len(E)].of, 2, p.by)}
RECURSIVE Decide(_, _, _)
Decide(L, E, to) ==
  LET i == Len(L) + 1 IN
  IF i >= to \/ Chosen(E, i) = {} THEN [log |-> L, eras |-> E]
  ELSE LET v == (CHOOSE p \in Chosen(E, i) : TRUE).value
       IN  Decide(Append(L, v), Further(E, i, v), to)
(* All slots below `to` are now decided. *)
Reaches(to) ==
  LET D == Decide(log, eras, to) IN
  Len(D.log) + 1 >= to /\ log' = D.log /\ eras' = D.eras

-----------------------------------------------------------------------------
(* [ballot-2] A round of the node's own is on stable storage; rounds rise. *)
Round == /\ Step.do = "round"
         /\ Owner(Step.ballot) = Step.by[1]
         /\ Less(Get(spoken, Step.by[1], Zero), Step.ballot)
         /\ spoken' = Put(spoken, Step.by[1], Step.ballot)
         /\ UNCHANGED <<promised, answered, held, ends, log, eras>>

(* [ballot-2] [ballot-3] [p1-1] Only then does the node send 1A, in the era that begins its first       *)
(* undecided slot, which the 1A names.                                                                  *)
Asks == /\ Step.do = "asks"
        /\ Get(spoken, Step.by[1], Zero) = Step.ballot
        /\ Reaches(Step.from)
        /\ Era(Step.ballot) = Max({k - 1 : k \in {k \in DOMAIN eras' : eras'[k].since <= Step.from}})
        /\ UNCHANGED <<spoken, promised, answered, held, ends>>

(* [p1-2] A promise is on stable storage. *)
Promise == /\ Step.do = "promise"
           /\ Less(Get(promised, Step.by, Zero), Step.ballot)
           /\ promised' = Put(promised, Step.by, Step.ballot)
           /\ answered' = Put(answered, Step.ballot, Get(answered, Step.ballot, {}) \cup {Step.by})
           /\ UNCHANGED <<spoken, held, ends, log, eras>>

(* [p1-2] [p1-3] Only then is it sent, with every vote from the floor on, the highest in each slot, *)
(* and with no vote that this member did not cast.                                                  *)
VotesOf(m, i) == {p \in held[i] : m \in p.by}
Tells(i, p) ==
  \E x \in DOMAIN Step.extents : LET e == Step.extents[x] IN
    i >= e.from /\ i < e.to /\ e.value = p.value /\ e.ballot = p.ballot
Answers == /\ Step.do = "answers"
           /\ Get(promised, Step.by, Zero) = Step.ballot
           /\ Reaches(Step.floor)
           /\ \A i \in {j \in Slots : j >= Step.from /\ j >= Step.floor} :
                LET V == {p \in VotesOf(Step.by, i) : Less(p.ballot, Step.ballot)} IN
                V = {} \/ (\E p \in VotesOf(Step.by, i) : Tells(i, p) /\ \A q \in V : ~Less(p.ballot, q.ballot))
           /\ \A x \in DOMAIN Step.extents : LET e == Step.extents[x] IN
                \A i \in e.from..(e.to - 1) :
                  \E p \in VotesOf(Step.by, i) : p.ballot = e.ballot /\ p.value = e.value
           /\ UNCHANGED <<spoken, promised, answered, held, ends>>

(* [p1-6] [era-5] First proposal of a ballot in a slot. Some phase-1 quorum of C(era(b)) that promised   *)
(* the ballot must allow it: the value of the highest ballot that a member of the quorum voted for; if   *)
(* there is none, a no-op, this node's own earlier proposal, or, after all slots that the quorum voted   *)
(* for, a new value.                                                                                     *)
Below(i, b, Q) == {p \in held[i] : Less(p.ballot, b) /\ p.by \cap Q # {}}
Allows(Q, b, i, v) ==
  LET V == Below(i, b, Q) IN
  IF V # {} THEN LET c == Highest({p.ballot : p \in V}) IN \E p \in V : p.ballot = c /\ p.value = v
  ELSE \/ v = [name |-> "no-op"]
       \/ \E p \in held[i] : Owner(p.ballot) = Owner(b) /\ Less(p.ballot, b) /\ p.value = v
       \/ \A k \in DOMAIN ends : k[1] \in Q /\ Less(k[2], b) => ends[k] <= i
In(p, b) == p.ballot = b
(* [ballot-2] One value in a slot; [era-6] after the slot that began the era. *)
Proposal(b, from, to, v) ==
  /\ \A i \in from..(to - 1) : \A p \in held[i] : In(p, b) => p.value = v
  /\ LET new == {i \in from..(to - 1) : \A p \in held[i] : ~In(p, b)} IN
     new = {} \/
       /\ Era(b) < Len(eras) /\ from >= eras[Era(b) + 1].since
       /\ \E Q \in SUBSET Get(answered, b, {}) :
            /\ IsQuorum(eras[Era(b) + 1].of, 1, Q)
            /\ \A i \in new : Allows(Q, b, i, v)
With(P, b, v, who) ==
  IF \E p \in P : In(p, b)
  THEN {IF In(p, b) THEN [p EXCEPT !.by = @ \cup who] ELSE p : p \in P}
  ELSE P \cup {[ballot |-> b, value |-> v, by |-> who]}
Holds(b, from, to, v, who) ==
  held' = [i \in Slots |-> IF i >= from /\ i < to THEN With(held[i], b, v, who) ELSE held[i]]
Proposes == /\ Step.do = "proposes"
            /\ Owner(Step.ballot) = Step.by[1]
            /\ Proposal(Step.ballot, Step.from, Step.to, Step.value)
            /\ Holds(Step.ballot, Step.from, Step.to, Step.value, {})
            /\ UNCHANGED <<spoken, promised, answered, ends, log, eras>>

(* [p2-1] A vote is on stable storage: not below the promise, and for a proposed value. The leader's    *)
(* own vote may be the first trace of a proposal.                                                       *)
Vote == /\ Step.do = "vote"
        /\ ~Less(Step.ballot, Get(promised, Step.by, Zero))
        /\ IF Owner(Step.ballot) = Step.by[1]
           THEN Proposal(Step.ballot, Step.from, Step.to, Step.value)
           ELSE \A i \in Step.from..(Step.to - 1) :
                  \E p \in held[i] : In(p, Step.ballot) /\ p.value = Step.value
        /\ Holds(Step.ballot, Step.from, Step.to, Step.value, {Step.by})
        /\ promised' = Put(promised, Step.by, Step.ballot)
        /\ LET k == <<Step.by, Step.ballot>> IN ends' = Put(ends, k, Max({Get(ends, k, 1), Step.to}))
        /\ UNCHANGED <<spoken, answered, log, eras>>

(* [p2-6] Reports durable votes only. *)
Votes == /\ Step.do = "votes"
         /\ \A i \in Step.from..(Step.to - 1) :
              \E p \in held[i] : In(p, Step.ballot) /\ Step.by \in p.by
         /\ UNCHANGED <<spoken, promised, answered, held, ends, log, eras>>

(* [decide-2] [catch-1] Everything that a node learns or announces was decided. *)
Decides == /\ Step.do = "decides"
           /\ Reaches(Step.to)
           /\ UNCHANGED <<spoken, promised, answered, held, ends>>
Learned == /\ Step.do = "learned"
           /\ Reaches(Step.to)
           /\ \A i \in Step.from..(Step.to - 1) : log'[i] = Step.value
           /\ UNCHANGED <<spoken, promised, answered, held, ends>>

-----------------------------------------------------------------------------
Init == /\ run \in DOMAIN Traces
        /\ at = 1
        /\ spoken = <<>> /\ promised = <<>> /\ answered = <<>> /\ ends = <<>> /\ log = <<>>
        /\ held = [i \in Slots |-> {}]
        /\ eras = <<[of |-> Traces[run].founding, since |-> 1]>>

Next == /\ at <= Len(Traces[run].steps)
        /\ \/ Round \/ Asks \/ Promise \/ Answers \/ Proposes \/ Vote \/ Votes
           \/ Decides \/ Learned
        /\ at' = at + 1 /\ UNCHANGED run

Spec == Init /\ [][Next]_vars
=============================================================================
