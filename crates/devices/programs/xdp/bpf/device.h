/* State of a device: its setup, fixed at load time, and everything that it remembers. An object contains one program or
 * both.
 *
 * [offload-17] The record that a device is armed with changes atomically. Records form a ring; `armed` is the number
 * of the newest, or 0, and is written last and read once. A handler uses the record whose number it loaded to its
 * end, and checks under the cell's lock that the number still holds. So a vote either precedes a fence, and a read
 * of its cell finds it, or is not cast. Safety does not depend on the owner's draining the device, although owners
 * do. */
#pragma once
#include "frame.h"

/* Programs in this object. With two, their states are adjacent, the acceptor's first. */
#ifndef PROGRAMS
#define PROGRAMS 1
#endif

struct address {
    u16 mac[3];
    u16 port;
    u16 ip[2];
};

/* Written and frozen by the loader, so the verifier knows its values. Big-endian except for room, cells and cpus. */
struct setup {
    u32 group, room, cells, cpus;
    struct address own, owner;
    struct address votes, proposals, decisions;
    u16 heard[3];
    u16 pad;
};
const volatile struct setup setup SECTION(".rodata");

/* Parameters of an arm or start call. */
struct record {
    u64 ballot;
    u8 position, quorum, members, hint;
    u32 pad;
};

/* The owner fences the device between two arms, so no handler sees this many records pass. */
enum { RECORDS = 16 };

struct state {
    struct bpf_spin_lock lock;
    u32 boot;
    /* [offload-17] last call accepted */
    u32 owner_boot;
    u32 pad;
    u64 counter;
    /* 0: not armed */
    u64 armed, armings;
    /* highest ballot that the device was armed with */
    u64 last;
    u64 floor, next, limit;
    struct record records[RECORDS];
};

/* State of a slot without the value's bytes. The value's fields are in the byte order of the frame. */
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

/* The loader sets the size: a power of two ([offload-14]) for each program. */
struct {
    UINT(type, MAP_ARRAY);
    UINT(max_entries, 64);
    TYPE(key, u32);
    TYPE(value, struct cell);
} cells SECTION(".maps");

/* Value bytes of the cells. Uses the legacy map definition, whose sizes are plain words in a section, so that the
 * loader can write a room's size there. With BTF, the kernel would reject a value size that differs from the type's. */
struct {
    u32 type, key_size, value_size, max_entries, flags;
} rooms SECTION("maps") = {MAP_ARRAY, 4, ROOM_BYTES_MAX, 64, 0};

struct counters {
    u64 of[REASONS];
    /* frames that did not fit in the tap */
    u64 lost;
};

struct {
    UINT(type, MAP_PERCPU_ARRAY);
    UINT(max_entries, PROGRAMS);
    TYPE(key, u32);
    TYPE(value, struct counters);
} counted SECTION(".maps");

/* The owner maps this ring and reads it without system calls. */
struct {
    UINT(type, MAP_RINGBUF);
    UINT(max_entries, 1 << 16);
} tap SECTION(".maps");

/* The interface's other program, if there is one: it receives the frames that this program does not handle. The
 * kernel requires a map for each kind of hook. */
struct next {
    UINT(type, MAP_PROG_ARRAY);
    UINT(max_entries, 1);
    UINT(key_size, 4);
    UINT(value_size, 4);
};
struct next next_network SECTION(".maps");
struct next next_traffic SECTION(".maps");

/* [offload-8] Used by the owner to drain the device. No program reads these maps: an update of a map of maps returns
 * only after every program that was running has ended. */
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

/* Fate of the frame in its packet. */
enum fate {
    /* forwarded unchanged to the other port */
    PASS,
    /* consumed */
    TAKEN,
    /* sent, rewritten */
    TO_NETWORK,
    TO_OWNER,
};

/* State of a device as reported in refusals and *done*. */
struct standing {
    u64 ballot, floor, next;
    u32 boot;
    u8 position, hint;
};

/* Index of a program's state. */
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

/* Sums a counter over all CPUs. */
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
