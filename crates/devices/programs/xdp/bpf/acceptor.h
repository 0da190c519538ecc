/* The acceptor: votes in one ballot, stores its votes, and promises nothing. */
#pragma once
#include "control.h"

#define OF_ACCEPTOR (OF(PHASE1A) | OF(PHASE2A))

/* [offload-7] Reports a vote; neither writes nor promises. */
INLINE enum reason on_phase1a(struct asked *asked) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct state *state = asked->state;
    u64 armed = ONCE(state->armed), slot = be64(head->slot), *bytes;
    struct record *record = record_of(state, armed);
    struct cell *cell = cell_of(0, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    if (!armed)
        return WHY_DISARMED;
    set_type(head, PHASE1B, record->position);
    head->ballot = be64(record->ballot);
    head->flags = 0;
    head->boot = be32(state->boot);
    spin_lock(&cell->lock);
    show(frame, cell, bytes, slot);
    spin_unlock(&cell->lock);
    asked->answer = ALONG_VOTES;
    return NONE;
}

/* [offload-6] Votes once for each slot. Check and write are one step: floor and record are checked under the cell's
 * lock, so a cell never returns to a lower slot or an older ballot. `inside`: the frame's room must not be written. */
INLINE enum reason vote(struct asked *asked, int inside) {
    struct frame *frame = &asked->frame;
    struct head *head = frame->head;
    struct state *state = asked->state;
    u64 armed = ONCE(state->armed), slot = be64(head->slot), *bytes;
    struct record *record = record_of(state, armed);
    u64 ballot = record->ballot, floor;
    enum reason why = NONE;
    int again = 0;
    struct cell *cell = cell_of(0, slot, &bytes);
    if (!cell || !bytes)
        return NONE;
    if (!armed)
        return WHY_DISARMED;
    if (be64(head->ballot) != ballot)
        return WHY_BALLOT;
    spin_lock(&cell->lock);
    floor = ONCE(state->floor);
    if (ONCE(state->armed) != armed) {
        why = WHY_DISARMED;
    } else if (slot < floor) {
        why = WHY_FLOOR;
    } else if (!is_within(floor, slot)) {
        why = WHY_FULL;
    } else if (cell->ballot == ballot && cell->slot == slot) {
        /* Answer with the stored value, whatever was proposed: the receiver compares descriptors ([count-1]). */
        again = 1;
        if (inside)
            show_value(head, cell);
        else
            show(frame, cell, bytes, slot);
    } else {
        put(cell, bytes, frame, ballot, slot);
    }
    spin_unlock(&cell->lock);
    if (why)
        return why;
    set_type(head, PHASE2B, record->position);
    head->voted = head->ballot;
    head->flags = again ? be16(REPEAT) : 0;
    head->boot = be32(state->boot);
    /* A new vote is also copied to the tap, from which the owner logs it. */
    asked->answer = again ? ALONG_VOTES : ALONG_VOTES_AND_OWNER;
    return NONE;
}

/* [offload-5] Arming again with the same record succeeds, since the first answer may have been lost; another record
 * needs a fence first. */
INLINE enum reason acceptor_on_arm(struct state *state, const struct call *call) {
    struct record new = {.ballot = call->ballot, .position = call->position};
    struct record *record = record_of(state, state->armed);
    int same = record->ballot == call->ballot && record->position == call->position;
    if (!call->ballot)
        return WHY_RANGE;
    if (state->armed && !same)
        return WHY_ARMED;
    /* A lower ballot would overwrite votes of a higher one. */
    if (call->ballot < state->last)
        return WHY_BALLOT;
    /* [offload-6] A cell never returns to a lower slot, whatever arms the device. */
    if (call->slot < state->floor)
        return WHY_FLOOR;
    state->floor = call->slot;
    if (!state->armed)
        arm_with(state, &new);
    return NONE;
}

/* [offload-14] Raises the floor; votes below it are forgotten. */
INLINE enum reason acceptor_on_floor(struct state *state, const struct call *call) {
    if (call->slot < state->floor)
        return WHY_FLOOR;
    state->floor = call->slot;
    return NONE;
}

/*  type       from        what                                  answer
 *  1A         any         the vote of a slot, if armed          1B, along the routes for votes
 *  2A         any         votes, if armed with its ballot       2B, along the routes for votes; a new vote also to the owner
 *  read       owner       the vote of a slot                    cell
 *  ask        owner       a counter                             done
 *  arm        owner       starts to vote in this ballot         done
 *  floor      owner       forgets votes below the floor         done
 *  fence      owner       stops voting                          done
 *  boot       owner       sets the boot, if there is none       done                                                    */
INLINE enum reason acceptor_handle(struct asked *asked) {
    switch (type_of(asked->frame.head)) {
    case PHASE1A:
        return on_phase1a(asked);
    case PHASE2A:
        return vote(asked, 0);
    case READ:
        return on_read(asked);
    case ASK:
        return on_ask(asked);
    default:
        return on_control(asked);
    }
}
