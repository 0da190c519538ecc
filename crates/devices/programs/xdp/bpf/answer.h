/* How a device answers: in the frame that arrived, rewritten, which keeps its length. A copy for the owner of what also
 * leaves for the network goes through the tap.
 *
 * Addresses come from the setup, never from a frame, except for refusals. */
#pragma once
#include "admit.h"

/* What a frame for the owner was made of ([offload-21]): handed on as it came; said about a frame from the network; said
 * about what the owner or the other program asked. */
enum came { FROM_NETWORK, ASKED, INSIDE };

/* What stands before each frame in the tap: where it begins a multiple of 8, and so does the next one. */
struct tapped {
    u32 length, came;
};

/* Where an answer goes, beside refusals. */
enum answer {
    NOWHERE,
    ALONG_VOTES,
    ALONG_PROPOSALS,
    /* and a copy to the owner */
    ALONG_VOTES_AND_OWNER,
    ALONG_DECISIONS_AND_OWNER,
    THE_OWNER,
};

/* What a handler has at hand, and what it says. A handler returns why not, or NONE. */
struct asked {
    struct frame frame;
    struct state *state;
    enum port from;
    u16 role;
    enum answer answer;
};

/* Addresses and sums; the header is as it shall be, and `sum` that of the room. IPv4's sum is made anew, that of UDP or
 * of the shim from the header and the sum of the room, never from its bytes. */
INLINE void address(struct frame *frame, const struct address *to) {
    struct link *link = frame->link;
    struct head *head = frame->head;
    for (int at = 0; at < 3; at++) {
        link->to[at] = to->mac[at];
        link->from[at] = setup.own.mac[at];
    }
    head->before = 0;
    u64 all = sum_head(head) + head->sum;
    if (frame->udp) {
        link->ip_from[0] = setup.own.ip[0];
        link->ip_from[1] = setup.own.ip[1];
        link->ip_to[0] = to->ip[0];
        link->ip_to[1] = to->ip[1];
        link->ip_sum = 0;
        link->ip_sum = ~fold(sum_ip(link));
        link->port_from = setup.own.port;
        link->port_to = to->port;
        all += sum_pseudo(link);
    } else {
        all += *length_of(link);
    }
    /* Zero would mean that there is none. */
    u16 sum = ~fold(all);
    head->before = sum ? sum : 0xffff;
}

INLINE void from_setup(struct address *to, const volatile struct address *from) {
    for (int at = 0; at < 3; at++)
        to->mac[at] = from->mac[at];
    to->port = from->port;
    to->ip[0] = from->ip[0];
    to->ip[1] = from->ip[1];
}

/* What the tap had no room for is counted, and the cell still has its value. */
INLINE void lose(u16 role) {
    u32 at = half(role);
    struct counters *here = map_lookup(&counted, &at);
    if (here)
        here->lost++;
}

INLINE struct tapped *reserve(u16 role, enum came came) {
    struct tapped *record = ringbuf_reserve(&tap, sizeof(*record) + ROOM_UDP + setup.room, 0);
    if (record)
        record->came = came;
    else
        lose(role);
    return record;
}

/* A copy of the frame, with its room or up to there; its length is written, 0 if that cannot be. The verifier forgets on
 * the way that the form says how long a frame is. */
INLINE void copy_to(struct tapped *record, const struct frame *frame, u32 room) {
    u64 *to = (u64 *)(record + 1);
    const void *from = frame->link;
    record->length = 0;
    if (frame->udp && from + ROOM_UDP + room <= frame->end) {
        record->length = ROOM_UDP + setup.room;
        copy(to, from, ROOM_UDP + room);
    } else if (!frame->udp && from + ROOM_RAW + room <= frame->end) {
        record->length = ROOM_RAW + setup.room;
        copy(to, from, ROOM_RAW + room);
    }
}

INLINE void copy_to_tap(u16 role, enum came came, const struct frame *frame) {
    struct tapped *record = reserve(role, came);
    if (!record)
        return;
    copy_to(record, frame, setup.room);
    ringbuf_submit(record, IF_WAITED_FOR);
}

/* The same, to the owner's address, whatever address the frame has. */
INLINE void tell_owner(u16 role, enum came came, struct frame *frame) {
    struct address owner = {};
    from_setup(&owner, &setup.owner);
    address(frame, &owner);
    copy_to_tap(role, came, frame);
}

INLINE void set_type(struct head *head, enum type type, u8 position) { head->type_position = type << 4 | position; }

INLINE void show_value(struct head *head, const struct cell *cell) {
    head->voted = be64(cell->ballot);
    head->kind = cell->kind;
    head->origin = cell->origin;
    head->origin_boot = cell->origin_boot;
    head->counter = cell->counter;
    head->length = cell->length;
    head->sum = cell->sum;
    head->crc = cell->crc;
}

/* [offload-7] What a cell holds of a slot, also if it is another ballot's; zeros if it is another slot's. The cell is
 * locked, so no helper is called. */
INLINE void show(struct frame *frame, const struct cell *cell, const u64 *bytes, u64 slot) {
    struct head *head = frame->head;
    if (cell->ballot && cell->slot == slot) {
        show_value(head, cell);
        copy(frame->room, bytes, setup.room);
        return;
    }
    head->voted = 0;
    head->kind = 0;
    head->origin = head->origin_boot = 0;
    head->counter = 0;
    head->length = head->sum = 0;
    head->crc = 0;
    clear(frame->room, setup.room);
}

/* Writes what the frame says. The cell is locked. */
INLINE void put(struct cell *cell, u64 *bytes, const struct frame *frame, u64 ballot, u64 slot) {
    const struct head *head = frame->head;
    cell->ballot = ballot;
    cell->slot = slot;
    cell->voters = 0;
    cell->kind = head->kind;
    cell->origin = head->origin;
    cell->origin_boot = head->origin_boot;
    cell->counter = head->counter;
    cell->length = head->length;
    cell->sum = head->sum;
    cell->crc = head->crc;
    copy(bytes, frame->room, setup.room);
}

INLINE int is_same_value(const struct cell *cell, const struct head *head) {
    return cell->kind == head->kind && cell->origin == head->origin && cell->origin_boot == head->origin_boot &&
           cell->counter == head->counter && cell->length == head->length && cell->crc == head->crc;
}

INLINE int is_within(u64 floor, u64 slot) { return slot >= floor && slot - floor < setup.cells; }

/* The cell that a slot lives in, and its bytes. Both are there: the loader made as many as `setup.cells`. */
INLINE struct cell *cell_of(u16 role, u64 slot, u64 **bytes) {
    u32 at = half(role) * setup.cells + (slot & (setup.cells - 1));
    *bytes = map_lookup(&rooms, &at);
    return map_lookup(&cells, &at);
}

/* The state, to the owner. */
INLINE void done(struct asked *asked, const struct standing *stands, u64 counter) {
    struct head *head = asked->frame.head;
    set_type(head, DONE, stands->position);
    head->slot = be64(stands->floor);
    head->ballot = be64(stands->ballot);
    head->voted = be64(stands->next);
    head->flags = be16(asked->role | (stands->hint ? HINT : 0));
    head->boot = be32(stands->boot);
    head->kind = 0;
    head->counter = counter;
    head->length = be16((u16)setup.room);
    head->crc = be32(setup.cells);
    asked->answer = THE_OWNER;
}

/* Whether one station alone has the address that a frame claims to be from. */
INLINE int is_single(const struct frame *frame) {
    const struct link *link = frame->link;
    u8 first = (u8)link->ip_from[0];
    if ((u8)link->from[0] & 1)
        return 0;
    return !frame->udp || (first && first < 224);
}

/* The frame itself goes back, so that the sender knows which one; slot, descriptor and room are its own. A call of
 * control is refused to the owner's address, wherever it claims to be from. */
INLINE void refuse(struct asked *asked, enum reason why, struct address *to) {
    struct head *head = asked->frame.head;
    const struct link *link = asked->frame.link;
    struct standing stands;
    if (OF(type_of(head)) & CONTROL) {
        from_setup(to, &setup.owner);
    } else {
        for (int at = 0; at < 3; at++)
            to->mac[at] = link->from[at];
        if (asked->frame.udp) {
            to->ip[0] = link->ip_from[0];
            to->ip[1] = link->ip_from[1];
            to->port = link->port_from;
        }
    }
    stand(asked->state, asked->role, &stands);
    set_type(head, REFUSED, stands.position);
    head->ballot = be64(stands.ballot);
    head->voted = be64(stands.floor > stands.next ? stands.floor : stands.next);
    head->reason = why;
    head->flags = be16(asked->role);
    head->boot = be32(stands.boot);
}

/* What else hears a frame that leaves, in an object with both programs. The frame is as it was afterwards. */
INLINE void hear_inside(struct asked *asked);

/* Ends a step: says what becomes of the frame, and makes the copy for the tap first. What is for the owner alone lies in
 * its packet if the frame is from there, and goes through the tap if not. */
INLINE enum fate finish(struct asked *asked, enum reason why) {
    struct frame *frame = &asked->frame;
    struct address to = {};
    if (why) {
        if (why < WHY_BUSY)
            return TAKEN;
        refuse(asked, why, &to);
        address(frame, &to);
        return asked->from == OWNER ? TO_OWNER : TO_NETWORK;
    }
    switch (asked->answer) {
    case NOWHERE:
        return TAKEN;
    case THE_OWNER:
        if (asked->from != OWNER) {
            tell_owner(asked->role, ASKED, frame);
            return TAKEN;
        }
        from_setup(&to, &setup.owner);
        address(frame, &to);
        return TO_OWNER;
    case ALONG_VOTES_AND_OWNER:
    case ALONG_DECISIONS_AND_OWNER:
        tell_owner(asked->role, asked->from == OWNER ? INSIDE : ASKED, frame);
        break;
    default:
        break;
    }
    hear_inside(asked);
    if (asked->answer == ALONG_PROPOSALS)
        from_setup(&to, &setup.proposals);
    else if (asked->answer == ALONG_DECISIONS_AND_OWNER)
        from_setup(&to, &setup.decisions);
    else
        from_setup(&to, &setup.votes);
    address(frame, &to);
    return TO_NETWORK;
}
