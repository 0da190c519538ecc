/* The coordinator: allocates slots of one ballot, proposes values in them, and counts votes. */
#pragma once
#include "control.h"

#define OF_COORDINATOR (OF(SUBMIT) | OF(PHASE2B) | OF(TICK))

/* [offload-14] Allocates the next slot, under the control lock. */
INLINE enum reason give_out(struct state *state, u64 *armed, u64 *ballot, u64 *slot) {
    enum reason why = NONE;
    spin_lock(&state->lock);
    *armed = state->armed;
    *ballot = record_of(state, *armed)->ballot;
    *slot = state->next;
    if (!*armed)
        why = WHY_DISARMED;
    else if (*slot >= state->limit || !is_within(state->floor, *slot))
        why = WHY_FULL;
    else
        state->next = *slot + 1;
    spin_unlock(&state->lock);
    return why;
}

/* Stores the value before the frame leaves ([offload-12]). Between the two locks, `next` is ahead of its cell. No
 * other node knows that slot yet; a repeat is answered as stale, and an owner that recovers slots drains first and
 * finds a hole. */
INLINE enum reason on_submit(struct asked *asked) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct state *state = asked->state;
    u64 armed, ballot, slot, *bytes;
    enum reason why = give_out(state, &armed, &ballot, &slot);
    if (why)
        return why;
    struct cell *cell = cell_of(COORDINATOR, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    spin_lock(&cell->lock);
    if (ONCE(state->armed) != armed)
        why = WHY_DISARMED;
    else
        /* Its own proposal is not a vote ([offload-10]). */
        put(cell, bytes, frame, ballot, slot);
    spin_unlock(&cell->lock);
    if (why)
        return why;
    set_type(head, PHASE2A, 0);
    head->slot = be64(slot);
    head->ballot = be64(ballot);
    head->flags = be16(COORDINATOR);
    head->boot = be32(state->boot);
    asked->answer = ALONG_PROPOSALS;
    return NONE;
}

INLINE u32 ones(u32 bits) {
    bits = bits - (bits >> 1 & 0x5555);
    bits = (bits & 0x3333) + (bits >> 2 & 0x3333);
    bits = (bits + (bits >> 4)) & 0x0f0f;
    return (bits + (bits >> 8)) & 0x1f;
}

/* [offload-10] Counts each position once, for a slot of this start and in exactly this ballot. `inside`: the frame's
 * room must not be written. */
INLINE enum reason count_vote(struct asked *asked, int inside) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct state *state = asked->state;
    u64 armed = ONCE(state->armed), slot = be64(head->slot), *bytes;
    struct record *record = record_of(state, armed);
    u64 ballot = record->ballot;
    u16 vote = 1 << position_of(head);
    enum reason why = NONE;
    int crossed = 0;
    if (!armed || be64(head->ballot) != ballot || position_of(head) >= record->members)
        return WHY_STALE;
    struct cell *cell = cell_of(COORDINATOR, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    spin_lock(&cell->lock);
    /* Cells of slots below the first may belong to an earlier start, which is why the floor is above them. */
    if (ONCE(state->armed) != armed || slot < ONCE(state->floor) || slot >= ONCE(state->next) ||
        cell->ballot != ballot || cell->slot != slot) {
        why = WHY_STALE;
    } else if (!is_same_value(cell, head)) {
        why = WHY_CONFLICT;
    } else if (cell->voters & vote) {
        why = WHY_STALE;
    } else {
        cell->voters |= vote;
        /* Equality, so that later votes do not announce the decision again. */
        crossed = ones(cell->voters) == record->quorum;
        if (crossed && inside)
            show_value(head, cell);
        else if (crossed)
            show(frame, cell, bytes, slot);
    }
    spin_unlock(&cell->lock);
    if (why)
        return why;
    if (!crossed)
        return NONE;
    set_type(head, DECIDED, 0);
    head->flags = be16(COORDINATOR | (record->hint ? HINT : 0));
    head->boot = be32(state->boot);
    asked->answer = ALONG_DECISIONS_AND_OWNER;
    return NONE;
}

/* [offload-19] Repeats the proposal of a slot unchanged; the owner names the oldest undecided one. */
INLINE enum reason on_tick(struct asked *asked) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct state *state = asked->state;
    u64 armed = ONCE(state->armed), slot = be64(head->slot), *bytes;
    u64 ballot = record_of(state, armed)->ballot;
    enum reason why = NONE;
    struct cell *cell = cell_of(COORDINATOR, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    if (!armed)
        return WHY_DISARMED;
    spin_lock(&cell->lock);
    if (slot < ONCE(state->floor) || slot >= ONCE(state->next) || cell->ballot != ballot || cell->slot != slot)
        why = WHY_STALE;
    else
        show(frame, cell, bytes, slot);
    spin_unlock(&cell->lock);
    if (why)
        return why;
    set_type(head, PHASE2A, 0);
    head->ballot = be64(ballot);
    head->voted = 0;
    head->flags = be16(COORDINATOR | REPEAT);
    head->boot = be32(state->boot);
    asked->answer = ALONG_PROPOSALS;
    return NONE;
}

/* [offload-5] Starts to allocate slots of this ballot. */
INLINE enum reason coordinator_on_arm(struct state *state, const struct call *call) {
    struct record new = {
        .ballot = call->ballot,
        .quorum = call->kind,
        .members = call->origin > 0xff ? 0xff : call->origin,
        .hint = call->hint,
    };
    if (!new.ballot || !new.quorum || new.quorum > new.members || new.members > 16)
        return WHY_RANGE;
    /* [offload-17] The owner must stop and drain the device before it starts it again. */
    if (state->armed)
        return WHY_ARMED;
    if (new.ballot < state->last)
        return WHY_BALLOT;
    /* [offload-12] A slot that was allocated in this ballot already has a value. */
    if (call->slot < state->floor || (new.ballot == state->last && call->slot < state->next))
        return WHY_FLOOR;
    state->next = call->slot;
    /* The owner has recovered earlier allocations, or it would not start the device again, so their cells are free. */
    state->floor = call->slot;
    state->limit = call->voted;
    arm_with(state, &new);
    return NONE;
}

/* [offload-14] Raises the floor and the limit. Proposals below the floor are forgotten; slots are allocated up to
 * the limit. Neither falls. */
INLINE enum reason coordinator_on_floor(struct state *state, const struct call *call) {
    if (!state->armed)
        return WHY_DISARMED;
    /* Slots from `next` on were not allocated, so they are not decided. */
    if (call->slot < state->floor || call->slot > state->next || call->voted < state->limit)
        return WHY_FLOOR;
    state->floor = call->slot;
    state->limit = call->voted;
    return NONE;
}

/*  type       from        what                                  answer
 *  submit     any         allocates the next slot to the value  2A, along the routes for proposals
 *  2B         any         counts the position                   decided, if it completes the quorum; also to the owner
 *  tick       owner       proposes that slot again              2A, with *repeat*
 *  read       owner       the proposal of a slot                cell
 *  ask        owner       a counter                             done
 *  start      owner       starts to allocate in this ballot     done
 *  floor      owner       raises the floor and the limit        done
 *  stop       owner       stops allocating and counting         done
 *  boot       owner       sets the boot, if there is none       done                                                    */
INLINE enum reason coordinator_handle(struct asked *asked) {
    switch (type_of(asked->frame.head)) {
    case SUBMIT:
        return on_submit(asked);
    case PHASE2B:
        return count_vote(asked, 0);
    case TICK:
        return on_tick(asked);
    case READ:
        return on_read(asked);
    case ASK:
        return on_ask(asked);
    default:
        return on_control(asked);
    }
}
