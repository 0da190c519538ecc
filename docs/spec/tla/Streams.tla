------------------------------- MODULE Streams -------------------------------
(***************************************************************************)
(* Byte streams: which decided bytes are part of a stream, what its client *)
(* may be told, and how another writer takes over.                         *)
(*                                                                         *)
(* There is one log (Ranges, Eras). What leaders, their ballots and        *)
(* recovered runs may put into it is anything that an owner was given, in  *)
(* any order and any number of times: the append rule must hold whatever   *)
(* they do, byte by byte, wherever runs are cut ([stream-1] is more        *)
(* orderly). One named stream; each writer has an inner stream of its own. *)
(***************************************************************************)
EXTENDS Naturals, FiniteSets, Sequences

CONSTANTS Writers,  \* inner streams, 1..W; the first is open at the beginning
          Nodes,    \* that fold what is decided, each at its own pace; owners too
          MaxGiven, \* bytes of each inner stream
          MaxSlot,
          Mutant

VARIABLES given,    \* given[s]: what the owner of s took from its client, byte by byte
          sent,     \* bytes as they travel: <<inner stream, position, byte>>
          log,      \* decided: content, close, open
          applied,  \* applied[n]: how many of these n has folded
          content,  \* content[n]: the named stream at n, a sequence of bytes as in sent
          table,    \* table[n][s]: what n knows of an inner stream
          told      \* told[s]: what its client was told, by its owner
vars == <<given, sent, log, applied, content, table, told>>

Keeps(rule) == Mutant # rule
Owner(s) == ((s - 1) % Cardinality(Nodes)) + 1

(* next: the position that may be appended; state: new, open, closed.      *)
Fresh == [next |-> 0, state |-> "new"]
Init == /\ given = [s \in Writers |-> <<>>]
        /\ sent = {} /\ log = <<>>
        /\ applied = [n \in Nodes |-> 0] /\ content = [n \in Nodes |-> <<>>]
        /\ table = [n \in Nodes |-> [s \in Writers |->
             IF s = 1 THEN [Fresh EXCEPT !.state = "open"] ELSE Fresh]]
        /\ told = [s \in Writers |-> [durable |-> 0, final |-> FALSE]]

(* [stream-5] The owner takes a byte for a position once. A client that    *)
(* comes again goes on behind what was received.                           *)
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

(* What is decided, by whatever leader: [stream-4] content; [stream-6] the *)
(* close for an owner that is lost, or that its client asked for;          *)
(* [stream-10] a takeover, which is one value.                             *)
Decide(v) == /\ Len(log) < MaxSlot
             /\ log' = Append(log, v)
             /\ UNCHANGED <<given, sent, applied, content, table, told>>
DecideSomething ==
  \E s \in Writers :
    \/ \E p \in 0..(Len(given[s]) - 1) : Decide([kind |-> "content", of |-> s, at |-> p])
    \/ Decide([kind |-> "close", of |-> s, at |-> 0])
    \/ s # 1 /\ Decide([kind |-> "open", of |-> s, at |-> 0])

(* [stream-4] The append rule: the next position of a stream that is open; *)
(* all else is a no-op. A gap closes nothing.                              *)
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
                (* [value-2] Which bytes these are, the descriptor says.   *)
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

(* [stream-7] Acknowledged is what is applied at the owner. *)
Acknowledge(s) ==
  LET n == Owner(s)
      upto == IF Keeps("stream-7") THEN table[n][s].next ELSE Len(given[s])
  IN  /\ ~told[s].final /\ told[s].durable < upto
      /\ told' = [told EXCEPT ![s].durable = upto]
      /\ UNCHANGED <<given, sent, log, applied, content, table>>

(* [stream-6] Only the position at a decided close is final: so many bytes *)
(* are kept. Any node may say so.                                          *)
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
(* What must hold *)

(* Of each inner stream the bytes from 0 on, each once, in order; a piece  *)
(* is one run of the named stream, and a later one follows it.             *)
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

(* [value-2] The same bytes on every node, behind equal slots. *)
SameEverywhere ==
  \A n, m \in Nodes : \A k \in 1..Len(content[n]) :
    k <= Len(content[m]) => content[n][k] = content[m][k]

(* What a client was told is so on every node that is that far. *)
Foremost == CHOOSE n \in Nodes : \A m \in Nodes : applied[m] <= applied[n]
AcknowledgedIsKept == \A s \in Writers : told[s].durable <= table[Foremost][s].next
FinalIsFinal ==
  \A s \in Writers : told[s].final => table[Foremost][s].next = told[s].durable
=============================================================================
