/* Control calls: accepted from the owner only, and in order ([offload-17]). They all run under one lock, which other
 * handlers take only to allocate a slot. */
#pragma once
#include "answer.h"

/* A call with its fields in host byte order. */
struct call {
    u32 boot, owner_boot, origin;
    u64 counter, slot, ballot, voted;
    u8 type, position, kind, hint;
};

/* Accepts only calls for this boot with increasing numbers, so a delayed *arm* cannot follow its fence. A call
 * refused for another reason has used up its number. */
INLINE enum reason in_order(struct state *state, const struct call *call) {
    if (!state->boot || call->boot != state->boot)
        return WHY_BOOT;
    if (call->owner_boot < state->owner_boot ||
        (call->owner_boot == state->owner_boot && call->counter <= state->counter))
        return WHY_ORDER;
    state->owner_boot = call->owner_boot;
    state->counter = call->counter;
    return NONE;
}

/* Sets the boot of a device that lost its memory. The boot never changes afterwards. */
INLINE enum reason begin(struct state *state, const struct call *call) {
    if (!call->boot || (state->boot && state->boot != call->boot))
        return WHY_BOOT;
    state->boot = call->boot;
    return NONE;
}

/* Writes the record before its number. */
INLINE void arm_with(struct state *state, const struct record *new) {
    u64 armed = state->armings + 1;
    *record_of(state, armed) = *new;
    state->armings = armed;
    state->last = new->ballot;
    __sync_lock_test_and_set(&state->armed, armed);
}

/* [offload-8] From here on no handler writes a cell; a handler that holds a cell's lock finishes before that cell is
 * read. */
INLINE void disarm(struct state *state) { __sync_lock_test_and_set(&state->armed, 0); }

/* Defined by each program. */
INLINE enum reason on_arm(u16 role, struct state *state, const struct call *call);
INLINE enum reason on_floor(u16 role, struct state *state, const struct call *call);

INLINE enum reason obey(u16 role, struct state *state, const struct call *call) {
    enum reason why;
    if (call->type == BOOT)
        return begin(state, call);
    why = in_order(state, call);
    if (why)
        return why;
    switch (call->type) {
    case ARM:
        return on_arm(role, state, call);
    case FLOOR:
        return on_floor(role, state, call);
    default:
        disarm(state);
        return NONE;
    }
}

INLINE enum reason on_control(struct asked *asked) {
    const struct head *head = asked->frame.head;
    struct state *state = asked->state;
    struct standing stands;
    struct call call = {
        .boot = be32(head->boot),
        .owner_boot = be32(head->origin_boot),
        .origin = be32(head->origin),
        .counter = be64(head->counter),
        .slot = be64(head->slot),
        .ballot = be64(head->ballot),
        .voted = be64(head->voted),
        .type = type_of(head),
        .position = position_of(head),
        .kind = head->kind,
        .hint = !!(head->flags & be16(HINT)),
    };
    spin_lock(&state->lock);
    enum reason why = obey(asked->role, state, &call);
    stand(state, asked->role, &stands);
    spin_unlock(&state->lock);
    if (!why)
        done(asked, &stands, head->counter);
    return why;
}

/* The question itself is not counted. */
INLINE enum reason on_ask(struct asked *asked) {
    const struct head *head = asked->frame.head;
    struct standing stands;
    stand(asked->state, asked->role, &stands);
    done(asked, &stands, be64(counted_so_far(asked->role, be32(head->origin))));
    return NONE;
}

/* [offload-7] [offload-8] [offload-12] Always answered, because the owner reads out a device after it has fenced or
 * stopped it. */
INLINE enum reason on_read(struct asked *asked) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct standing stands;
    u64 slot = be64(head->slot), *bytes;
    struct cell *cell = cell_of(asked->role, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    stand(asked->state, asked->role, &stands);
    set_type(head, CELL, stands.position);
    head->ballot = be64(stands.ballot);
    head->flags = be16(asked->role);
    head->boot = be32(stands.boot);
    spin_lock(&cell->lock);
    show(frame, cell, bytes, slot);
    spin_unlock(&cell->lock);
    asked->answer = THE_OWNER;
    return NONE;
}
