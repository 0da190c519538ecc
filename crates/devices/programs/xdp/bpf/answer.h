/* Answers: the received frame is rewritten in place and keeps its length. A copy for the owner of a frame that also
 * leaves for the network goes through the tap.
 *
 * Addresses come from the setup, never from a frame, except in refusals. */
#pragma once
#include "admit.h"

/* Origin of a frame for the owner ([offload-21]): forwarded unchanged from the network, an answer to a frame from
 * the network, or an answer to the owner or the other program. */
enum came { FROM_NETWORK, ASKED, INSIDE };

/* Header of each frame in the tap. Frames and headers begin at multiples of 8. */
struct tapped {
    u32 length, came;
};

/* Destination of an answer other than a refusal. */
enum answer {
    NOWHERE,
    ALONG_VOTES,
    ALONG_PROPOSALS,
    /* with a copy to the owner */
    ALONG_VOTES_AND_OWNER,
    ALONG_DECISIONS_AND_OWNER,
    THE_OWNER,
};

/* Context of a handler and its result. Handlers return NONE, or the reason to reject the frame. */
struct asked {
    struct frame frame;
    struct state *state;
    enum port from;
    u16 role;
    enum answer answer;
};

/* Fills in addresses and checksums. The header must be final, and `sum` must be the room's. The IPv4 checksum is
 * computed afresh; that of UDP or the shim is computed from the header and the room's sum, never from the room's
 * bytes. */
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
    /* A checksum of zero would mean that there is none. */
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

/* Counts a frame that did not fit in the tap. Its value is still in the cell. */
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

/* Copies the frame, with the room or up to it, and writes its length, or 0 if it cannot be copied. Lengths are
 * checked again here because the verifier no longer knows how long a frame of this form is. */
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

/* Copies the frame to the tap, readdressed to the owner. */
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

/* [offload-7] Writes a cell's contents to the frame, whatever their ballot, or zeros if the cell holds another slot.
 * The cell is locked, so no BPF helper may be called. */
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

/* Stores the frame's value in the cell. The cell must be locked. */
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

/* Returns the cell of a slot, and its bytes. Both exist: the loader created `setup.cells` of them. */
INLINE struct cell *cell_of(u16 role, u64 slot, u64 **bytes) {
    u32 at = half(role) * setup.cells + (slot & (setup.cells - 1));
    *bytes = map_lookup(&rooms, &at);
    return map_lookup(&cells, &at);
}

/* Answers the owner with the device's state. */
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

/* Returns 1 if the frame's source is the address of a single station. */
INLINE int is_single(const struct frame *frame) {
    const struct link *link = frame->link;
    u8 first = (u8)link->ip_from[0];
    if ((u8)link->from[0] & 1)
        return 0;
    return !frame->udp || (first && first < 224);
}

/* Sends the frame back, so that the sender can identify it by slot, descriptor and room. A refused control call goes
 * to the owner's address, whatever source it claims. */
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

/* Delivers an outgoing frame to the other program, in an object with both. Leaves the frame unchanged. */
INLINE void hear_inside(struct asked *asked);

/* Ends a step: returns the frame's fate, after copying the frame to the tap if needed. A frame for the owner alone
 * is left in the packet if the owner sent it; otherwise it goes through the tap. */
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
