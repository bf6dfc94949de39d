/* tests/large/zero-cow-many.kdl on 6.12, written by hand for Spin: a store replaces the zero page,
   which other CPUs have cached. docs/checker.md compares it with Needless; ZeroCow.tla is its twin.
   -DREADERS=N: so many CPUs load, each twice. -DUNFLUSHED: 6.12,mutant=copy-unflushed. */
#ifndef READERS
#define READERS 3
#endif
#define CPUS (READERS + 1)

/* The PTE, and bits of what a TLB may hold. */
#define NONE 0
#define ZERO 1 /* read-only */
#define COPY 2 /* read and write */

byte pte = ZERO;
byte tlb[CPUS] = ZERO; /* closed after each change of the PTE */
bit value;             /* what the frame of the copy holds */
bit last;              /* what was stored last */
bit locked;            /* the page-table lock */
byte asked;            /* the CPUs that have not answered the flush yet, a bit each */
byte i;                /* of a loop in one step */

active proctype writer() {
    atomic { assert(!(tlb[0] & COPY)) } /* the store faults */
    skip; /* exc_page_fault */
    skip; /* lock_vma_under_rcu */
    skip; /* mmap_read_trylock */
    skip; /* wp_page_copy: a page is allocated */
    d_step { !locked -> locked = 1; pte = NONE }
#ifndef UNFLUSHED
    d_step { tlb[0] = NONE; asked = ((1 << READERS) - 1) << 1 }
    asked == 0;
#endif
    d_step {
        pte = COPY;
        i = 0;
        do
        :: i < CPUS -> tlb[i] = tlb[i] | COPY; i++
        :: else -> break
        od;
        i = 0;
        locked = 0
    }
    skip; /* folio_put */
    d_step { assert(tlb[0] & COPY); value = 1; last = 1 }
}

/* A CPU answers the flush at any time. */
proctype answer(byte cpu) {
end:
    d_step { asked & (1 << cpu) -> tlb[cpu] = NONE; asked = asked & ~(1 << cpu) }
}

proctype reader(byte cpu) {
    byte left = 2;
load:
    if
    :: d_step { tlb[cpu] & ZERO -> assert(last == 0); left-- }
    :: d_step { tlb[cpu] & COPY -> assert(value == last); left-- }
    :: pte == NONE -> /* the walk finds nothing: a fault */
        skip; /* exc_page_fault */
        skip; /* lock_vma_under_rcu */
        !locked; /* under the lock the PTE is there again */
        goto load
    fi;
    if
    :: left > 0 -> goto load
    :: else -> skip
    fi
}

init {
    byte cpu = 1;
    atomic {
        do
        :: cpu < CPUS -> run answer(cpu); run reader(cpu); cpu++
        :: else -> break
        od
    }
}
