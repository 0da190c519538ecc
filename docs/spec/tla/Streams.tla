------------------------------- MODULE Streams -------------------------------
(***************************************************************************)
(* Byte streams: which decided bytes belong to a stream, what its client   *)
(* may be told, and how another writer takes over.                         *)
(*                                                                         *)
(* There is one log (Ranges, Eras). Leaders, their ballots and recovered   *)
(* runs may add any bytes to it that an owner received, in any order and   *)
(* any number of times. The append rule must hold regardless, byte by      *)
(* byte, wherever runs are cut ([stream-1] is stricter). One named stream; *)
(* each writer has an inner stream of its own.                             *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Writers,  \* inner streams, 1..W; the first is open initially
          Nodes,    \* nodes that apply the log, each at its own pace; also owners
          MaxGiven, \* bytes of each inner stream
          MaxSlot,
          Mutant

VARIABLES given,    \* given[s]: bytes that the owner of s received from its client
          sent,     \* bytes in flight: <<inner stream, position, byte>>
          log,      \* decided: content, close, open
          applied,  \* applied[n]: number of log entries that n has applied
          content,  \* content[n]: the named stream at n, a sequence of bytes as in sent
          table,    \* table[n][s]: state of an inner stream at n
          told      \* told[s]: what the owner has told its client
vars == <<given, sent, log, applied, content, table, told>>

Keeps(rule) == Mutant # rule
Owner(s) == ((s - 1) % Cardinality(Nodes)) + 1

(* next: position that may be appended; state: new, open or closed. *)
Fresh == [next |-> 0, state |-> "new"]
Init == /\ given = [s \in Writers |-> <<>>]
        /\ sent = {} /\ log = <<>>
        /\ applied = [n \in Nodes |-> 0] /\ content = [n \in Nodes |-> <<>>]
        /\ table = [n \in Nodes |-> [s \in Writers |->
             IF s = 1 THEN [Fresh EXCEPT !.state = "open"] ELSE Fresh]]
        /\ told = [s \in Writers |-> [durable |-> 0, final |-> FALSE]]

(* [stream-5] The owner accepts one byte for a position. A client that     *)
(* reconnects continues after the bytes received.                          *)
Give(s) ==
  /\ Len(given[s]) < MaxGiven
  /\ given' = [given EXCEPT ![s] = Append(@, 1)]
  /\ sent' = sent \cup {<<s, Len(given[s]), 1>>}
  /\ UNCHANGED <<log, applied, content, table, told>>
GiveAgain(s) ==
  /\ ~Keeps("stream-5") /\ given[s] # <<>> /\ given[s][Len(given[s])] = 1
  /\ given' = [given EXCEPT ![s][Len(given[s])] = 2]
  /\ sent' = sent \cup {<<s, Len(given[s]) - 1, 2>>}
  /\ UNCHANGED <<log, applied, content, table, told>>

(* Values decided, by any leader: [stream-4] content; [stream-6] the close *)
(* for a lost owner, or at the client's request; [stream-10] a takeover,   *)
(* which is one value.                                                     *)
Decide(v) == /\ Len(log) < MaxSlot
             /\ log' = Append(log, v)
             /\ UNCHANGED <<given, sent, applied, content, table, told>>
DecideSomething ==
  \E s \in Writers :
    \/ \E p \in 0..(Len(given[s]) - 1) : Decide([kind |-> "content", of |-> s, at |-> p])
    \/ Decide([kind |-> "close", of |-> s, at |-> 0])
    \/ s # 1 /\ Decide([kind |-> "open", of |-> s, at |-> 0])

(* [stream-4] The append rule: the next position of an open stream;        *)
(* everything else is a no-op. A gap does not close a stream.              *)
IsAppended(row, p) ==
  /\ row.state = "open" \/ (row.state = "closed" /\ ~Keeps("stream-6"))
  /\ \/ p = row.next
     \/ p > row.next /\ ~Keeps("stream-4 gap")
     \/ p < row.next /\ ~Keeps("stream-4 repeat")

Close(T, s) == IF T[s].state = "open" THEN [T EXCEPT ![s].state = "closed"] ELSE T
CloseAll(T) == [s \in Writers |-> IF T[s].state = "open"
                                  THEN [T[s] EXCEPT !.state = "closed"] ELSE T[s]]
Apply(n) ==
  LET v == log[applied[n] + 1]
      T == table[n]
  IN  /\ applied[n] < Len(log)
      /\ applied' = [applied EXCEPT ![n] = @ + 1]
      /\ CASE v.kind = "content" /\ IsAppended(T[v.of], v.at) ->
                (* [value-2] The descriptor identifies the bytes. *)
                /\ \E byte \in {b \in sent : b[1] = v.of /\ b[2] = v.at} :
                     content' = [content EXCEPT ![n] = Append(@, byte)]
                /\ table' = [table EXCEPT ![n][v.of].next = v.at + 1]
           [] v.kind = "close" ->
                table' = [table EXCEPT ![n] = Close(T, v.of)] /\ UNCHANGED content
           (* An inner stream is opened at most once. *)
           [] v.kind = "open" /\ T[v.of].state = "new" ->
                /\ table' = [table EXCEPT ![n] =
                     [(IF Keeps("stream-10") THEN CloseAll(T) ELSE T) EXCEPT ![v.of].state = "open"]]
                /\ UNCHANGED content
           [] OTHER -> UNCHANGED <<table, content>>
      /\ UNCHANGED <<given, sent, log, told>>

(* [stream-7] Bytes applied at the owner are acknowledged. *)
Acknowledge(s) ==
  LET n == Owner(s)
      upto == IF Keeps("stream-7") THEN table[n][s].next ELSE Len(given[s])
  IN  /\ ~told[s].final /\ told[s].durable < upto
      /\ told' = [told EXCEPT ![s].durable = upto]
      /\ UNCHANGED <<given, sent, log, applied, content, table>>

(* [stream-6] Only the position at a decided close is final: the number of *)
(* bytes retained. Any node may report it.                                 *)
TellFinal(s, n) ==
  /\ ~told[s].final
  /\ IF Keeps("stream-6 told") THEN table[n][s].state = "closed"
     ELSE table[n][s].state = "open"
  /\ told' = [told EXCEPT ![s] = [durable |-> table[n][s].next, final |-> TRUE]]
  /\ UNCHANGED <<given, sent, log, applied, content, table>>

Next == \/ DecideSomething
        \/ \E s \in Writers : Give(s) \/ GiveAgain(s) \/ Acknowledge(s)
        \/ \E n \in Nodes : Apply(n) \/ \E s \in Writers : TellFinal(s, n)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
(* Invariants *)

(* Each inner stream contributes its bytes from 0 on, each once and in     *)
(* order; a piece is one run of the named stream, and later pieces follow  *)
(* it.                                                                     *)
Count(n, s, k) == Cardinality({j \in 1..k : content[n][j][1] = s})
EachByteOnce ==
  \A n \in Nodes : \A k \in 1..Len(content[n]) :
    content[n][k][2] = Count(n, content[n][k][1], k) - 1
PiecesFollow ==
  \A n \in Nodes : \A j, k \in 1..Len(content[n]) :
    j < k /\ content[n][j][1] = content[n][k][1] =>
      \A m \in j..k : content[n][m][1] = content[n][j][1]
OneIsOpen ==
  \A n \in Nodes : Cardinality({s \in Writers : table[n][s].state = "open"}) <= 1

(* [value-2] Nodes have the same bytes after the same slots. *)
SameEverywhere ==
  \A n, m \in Nodes : \A k \in 1..Len(content[n]) :
    k <= Len(content[m]) => content[n][k] = content[m][k]

(* What a client was told is true at every node that has applied as much. *)
Foremost == CHOOSE n \in Nodes : \A m \in Nodes : applied[m] <= applied[n]
AcknowledgedIsKept == \A s \in Writers : told[s].durable <= table[Foremost][s].next
FinalIsFinal ==
  \A s \in Writers : told[s].final => table[Foremost][s].next = told[s].durable
=============================================================================
