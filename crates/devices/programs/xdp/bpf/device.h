/* What a device is: what it was told when it was loaded, and all that it remembers. An object has one program, or both.
 *
 * [offload-17] The record that a device is armed with changes as one. Records stand in a row; `armed` is the number of
 * the newest, or 0, and is written last and read once. A handler that loaded a number uses that record to its end, and
 * looks again, inside the cell's lock, whether the number still holds. So a vote is cast either before a fence, and a
 * read of its cell finds it, or not at all; nobody has to trust that an owner drains, though owners do. */
#pragma once
#include "frame.h"

/* How many programs an object has. In one with both, all that they remember lies side by side, the acceptor's first. */
#ifndef PROGRAMS
#define PROGRAMS 1
#endif

struct address {
    u16 mac[3];
    u16 port;
    u16 ip[2];
};

/* Written by the loader, frozen, and so known to the verifier. Big-endian but for room, cells and cpus. */
struct setup {
    u32 group, room, cells, cpus;
    struct address own, owner;
    struct address votes, proposals, decisions;
    u16 heard[3];
    u16 pad;
};
const volatile struct setup setup SECTION(".rodata");

/* What it is armed with, or started. */
struct record {
    u64 ballot;
    u8 position, quorum, members, hint;
    u32 pad;
};

/* An owner fences between two armings, so one handler never meets so many. */
enum { RECORDS = 16 };

struct state {
    struct bpf_spin_lock lock;
    u32 boot;
    /* [offload-17] the last call that was heard */
    u32 owner_boot;
    u32 pad;
    u64 counter;
    /* 0: not armed */
    u64 armed, armings;
    /* highest ballot that it was armed with */
    u64 last;
    u64 floor, next, limit;
    struct record records[RECORDS];
};

/* What is known of a slot, but for the bytes. The value's fields are as they came. */
struct cell {
    struct bpf_spin_lock lock;
    /* 0: never used */
    u16 voters;
    u8 kind, pad;
    u64 ballot, slot, counter;
    u32 origin, origin_boot;
    u16 length, sum;
    u32 crc;
    u64 rest[2];
};
_Static_assert(sizeof(struct cell) == 64, "one cache line");

struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, PROGRAMS);
    TYPE(key, u32);
    TYPE(value, struct state);
} states SECTION(".maps");

/* The loader says how many: a power of two ([offload-14]) for each program. */
struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 64);
    TYPE(key, u32);
    TYPE(value, struct cell);
} cells SECTION(".maps");

/* Their bytes. Declared in the older way, whose sizes are plain words of a section: the loader writes the size of a
 * room there. Between BTF and a map's own size the kernel allows no difference. */
struct {
    u32 type, key_size, value_size, max_entries, flags;
} rooms SECTION("maps") = {MAP_ARRAY, 4, ROOM_BYTES_MAX, 64, 0};

struct counters {
    u64 of[REASONS];
    /* what the tap had no room for */
    u64 lost;
};

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    UINT(max_entries, PROGRAMS);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counted SECTION(".maps");

/* What the owner maps and reads without a system call. */
struct {
    UINT(type, MAP_RINGBUF);
    UINT(max_entries, 1 << 16);
} tap SECTION(".maps");

/* The other program of this interface, if there is one: what is not for this one is for that. One map for each kind of
 * hook, as the kernel demands. */
struct next {
    UINT(type, MAP_PROG_ARRAY);
    UINT(max_entries, 1);
    UINT(key_size, 4);
    UINT(value_size, 4);
};
struct next next_network SECTION(".maps");
struct next next_traffic SECTION(".maps");

/* [offload-8] How the owner drains. No program looks at these: an update of a map of maps returns only when every
 * program that ran at its begin has ended. */
struct nothing {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, u32);
};
struct nothing nothing SECTION(".maps");
struct {
    UINT(type, MAP_ARRAY_OF_MAPS);
    UINT(max_entries, 1);
    UINT(key_size, 4);
    UINT(value_size, 4);
    struct nothing *values[];
} drained SECTION(".maps");

enum port { NETWORK, OWNER };

/* What becomes of the frame in its packet. */
enum fate {
    /* it goes on to the other port, as it came */
    PASS,
    /* it ends here */
    TAKEN,
    /* it leaves, rewritten */
    TO_NETWORK,
    TO_OWNER,
};

/* How a device stands; what refusals and *done* say. */
struct standing {
    u64 ballot, floor, next;
    u32 boot;
    u8 position, hint;
};

/* Where a program's part begins. */
INLINE u32 half(u16 role) { return PROGRAMS == 2 && role; }

INLINE struct state *state_of(u16 role) {
    u32 at = half(role);
    return map_lookup(&states, &at);
}

INLINE struct record *record_of(struct state *state, u64 armed) { return &state->records[armed & (RECORDS - 1)]; }

INLINE void stand(struct state *state, u16 role, struct standing *to) {
    u64 armed = ONCE(state->armed);
    struct record *record = record_of(state, armed);
    to->ballot = armed ? record->ballot : 0;
    to->position = armed && !role ? record->position : 0;
    to->hint = armed ? record->hint : 0;
    to->boot = ONCE(state->boot);
    to->floor = ONCE(state->floor);
    to->next = ONCE(state->next);
}

INLINE void count(u16 role, u32 reason) {
    u32 at = half(role);
    struct counters *here = map_lookup(&counted, &at);
    if (here)
        here->of[reason & (REASONS - 1)]++;
}

/* Over all CPUs. */
INLINE u64 counted_so_far(u16 role, u32 reason) {
    u32 at = half(role), cpus = setup.cpus;
    u64 sum = 0;
    if (reason >= REASONS)
        return 0;
    for (u32 cpu = 0; cpu < cpus; cpu++) {
        struct counters *there = map_lookup_percpu(&counted, &at, cpu);
        if (there)
            sum += there->of[reason & (REASONS - 1)];
    }
    return sum;
}
