------------------------------ MODULE ZeroCow ------------------------------
(* tests/large/zero-cow-many.kdl on 6.12, written by hand for TLC: a store replaces the zero      *)
(* page, which other CPUs have cached. What a TLB may hold is a set, closed after each change of  *)
(* the PTE, as in Needless. docs/checker.md compares both.                                        *)
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS Readers,  \* the CPUs that load, each twice
          Writer,   \* the CPU that stores
          Flushed   \* whether wp_page_copy flushes; 6.12,mutant=copy-unflushed does not

VARIABLES pte,      \* "none", "zero" (read-only) or "copy" (read and write)
          tlb,      \* by CPU: the frames of the translations that it may hold
          value,    \* what the frame of the copy holds
          last,     \* what was stored last
          holder,   \* who holds the page-table lock, or "nobody"
          asked,    \* the CPUs that have not answered the flush yet
          pc,       \* by CPU: what it does next
          left,     \* by reader: the loads that it still has to do
          stale     \* a load has returned what was not stored last

vars == <<pte, tlb, value, last, holder, asked, pc, left, stale>>
CPUs == Readers \cup {Writer}
Alike == Permutations(Readers)

Init == /\ pte = "zero"
        /\ tlb = [c \in CPUs |-> {"zero"}]
        /\ value = 0 /\ last = 0
        /\ holder = "nobody" /\ asked = {}
        /\ pc = [c \in CPUs |-> IF c = Writer THEN "store" ELSE "load"]
        /\ left = [r \in Readers |-> 2]
        /\ stale = FALSE

Goes(c, from, to) == pc[c] = from /\ pc' = [pc EXCEPT ![c] = to]

(* The writer. *)
Store == /\ IF "copy" \in tlb[Writer]
            THEN Goes(Writer, "store", "done") /\ value' = 1 /\ last' = 1
            ELSE Goes(Writer, "store", "exc_page_fault") /\ UNCHANGED <<value, last>>
         /\ UNCHANGED <<pte, tlb, holder, asked, left, stale>>
Exception == Goes(Writer, "exc_page_fault", "lock_vma_under_rcu")
             /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
LockVma == Goes(Writer, "lock_vma_under_rcu", "mmap_read_trylock")
           /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
LockMm == Goes(Writer, "mmap_read_trylock", "allocate")
          /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
Allocate == Goes(Writer, "allocate", "clear")
            /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
Clear == /\ holder = "nobody" /\ holder' = Writer
         /\ Goes(Writer, "clear", IF Flushed THEN "flush" ELSE "set")
         /\ pte' = "none"
         /\ UNCHANGED <<tlb, value, last, asked, left, stale>>
Flush == /\ Goes(Writer, "flush", "wait")
         /\ tlb' = [tlb EXCEPT ![Writer] = {}]
         /\ asked' = Readers
         /\ UNCHANGED <<pte, value, last, holder, left, stale>>
Answer(r) == /\ r \in asked
             /\ asked' = asked \ {r}
             /\ tlb' = [tlb EXCEPT ![r] = {}]
             /\ UNCHANGED <<pte, value, last, holder, pc, left, stale>>
Wait == /\ asked = {}
        /\ Goes(Writer, "wait", "set")
        /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
Set == /\ Goes(Writer, "set", "folio_put")
       /\ pte' = "copy" /\ holder' = "nobody"
       /\ tlb' = [c \in CPUs |-> tlb[c] \cup {"copy"}]
       /\ UNCHANGED <<value, last, asked, left, stale>>
Put == Goes(Writer, "folio_put", "store")
       /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>

(* A reader: it loads by a translation that its TLB may hold, or faults if its walk finds none. *)
Load(r) == \E frame \in tlb[r] :
    /\ Goes(r, "load", IF left[r] = 1 THEN "done" ELSE "load")
    /\ left' = [left EXCEPT ![r] = @ - 1]
    /\ stale' = (stale \/ (IF frame = "copy" THEN value ELSE 0) # last)
    /\ UNCHANGED <<pte, tlb, value, last, holder, asked>>
Fault(r) == /\ pte = "none" /\ Goes(r, "load", "exc_page_fault")
            /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
LockVmaOf(r) == Goes(r, "exc_page_fault", "lock_vma_under_rcu")
                /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
Look(r) == Goes(r, "lock_vma_under_rcu", "lock")
           /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>
(* Under the lock the PTE is there again: nothing is left to do. *)
Lock(r) == /\ holder = "nobody" /\ Goes(r, "lock", "load")
           /\ UNCHANGED <<pte, tlb, value, last, holder, asked, left, stale>>

Next == \/ Store \/ Exception \/ LockVma \/ LockMm \/ Allocate \/ Clear \/ Flush \/ Wait
        \/ Set \/ Put
        \/ \E r \in Readers : Answer(r) \/ Load(r) \/ Fault(r) \/ LockVmaOf(r) \/ Look(r) \/ Lock(r)

Spec == Init /\ [][Next]_vars

(* P2: a load returns the last store. *)
Coherent == ~stale
=============================================================================
