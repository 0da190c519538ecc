/* Checks that every program makes before it interprets a frame, in the order of docs/spec/offload.md, section 7.
 * [offload-16] */
#pragma once
#include "device.h"

INLINE int is_mac(const volatile u16 *mac, const volatile u16 *other) {
    return mac[0] == other[0] && mac[1] == other[1] && mac[2] == other[2];
}

/* Detects the frame's form and locates its parts. Returns NONE, or the reason why it is not a frame of ours. */
INLINE enum reason find(void *data, void *end, struct frame *frame) {
    struct link *link = data;
    if (data + 14 > end)
        return WHY_LENGTH;
    frame->link = link;
    frame->end = end;
    if (link->ether == be16(ETHER_IP)) {
        if (data + 34 > end)
            return WHY_LENGTH;
        if (link->version != 0x45)
            return link->version > 0x45 && link->version <= 0x4f ? WHY_OPTIONS : WHY_FOREIGN;
        if (link->protocol != PROTOCOL_UDP)
            return WHY_FOREIGN;
        /* Only the "do not fragment" bit may be set. */
        if (link->fragment & be16(0xbfff))
            return WHY_FRAGMENT;
        if (data + 42 > end)
            return WHY_LENGTH;
        if (link->port_to != setup.own.port)
            return WHY_FOREIGN;
        if (data + ROOM_UDP > end)
            return WHY_LENGTH;
        frame->head = data + HEAD_UDP;
        frame->room = data + ROOM_UDP;
        frame->udp = 1;
        return NONE;
    }
    if (link->ether == be16(ETHER_OURS)) {
        if (data + ROOM_RAW > end)
            return WHY_LENGTH;
        frame->head = data + HEAD_RAW;
        frame->room = data + ROOM_RAW;
        frame->udp = 0;
        return NONE;
    }
    return link->ether == be16(ETHER_VLAN) || link->ether == be16(ETHER_VLANS) ? WHY_VLAN : WHY_FOREIGN;
}

/* Returns 1 if all lengths agree and the frame ends with its room. */
INLINE int has_room(const struct frame *frame, void *end) {
    u32 room = setup.room, payload = HEADER_BYTES + room;
    if (frame->room + room != end)
        return 0;
    if (frame->udp)
        return frame->link->total == be16(28 + payload) && frame->link->udp_length == be16(8 + payload);
    return *length_of(frame->link) == be16(payload);
}

/* [offload-6] Verified before anything is written, so a corrupted frame causes no vote. */
INLINE enum reason is_whole(const struct frame *frame) {
    struct head *head = frame->head;
    u16 room = fold(sum_room(frame->room, setup.room));
    u64 all = sum_head(head) + room;
    if (!frame->udp)
        all += *length_of(frame->link);
    else if (fold(sum_ip(frame->link)) == 0xffff)
        all += sum_pseudo(frame->link);
    else
        return WHY_CHECKSUM;
    if (!head->before || fold(all) != 0xffff)
        return WHY_CHECKSUM;
    return room == head->sum ? NONE : WHY_CHECKSUM;
}

/* Returns 1 if all fields without a meaning in this type of frame are zero. */
INLINE int is_plain(const struct head *head) {
    u8 type = type_of(head);
    if (head->flags & ~be16(FLAGS) || head->reason)
        return 0;
    if (position_of(head) && !(OF(type) & WITH_POSITION))
        return 0;
    switch (type) {
    case SUBMIT:
        return !head->slot && !head->ballot && !head->voted;
    case PHASE2A:
        return !head->voted;
    case PHASE2B:
        return head->voted == head->ballot;
    default:
        return 1;
    }
}

/* Returns NONE for an intact frame of the group addressed to this station, of any type, else the reason to reject
 * it. */
INLINE enum reason arrive(void *data, void *end, struct frame *frame) {
    enum reason why = find(data, end, frame);
    if (why)
        return why;
    struct head *head = frame->head;
    if (head->magic != MAGIC)
        return WHY_FOREIGN;
    if (head->group != setup.group)
        return WHY_GROUP;
    if (!is_mac(frame->link->to, setup.own.mac) && !is_mac(frame->link->to, setup.heard))
        return WHY_ELSEWHERE;
    /* The second condition repeats what has_room() checked, in a form that the verifier understands. */
    if (!has_room(frame, end) || frame->room + setup.room > end)
        return WHY_LENGTH;
    return is_whole(frame);
}

/* `mine`: types that only this program handles. Types in SHARED are selected by the role flag. */
INLINE int takes(const struct head *head, u32 mine, u16 role) {
    u32 shared = (head->flags & be16(COORDINATOR)) == be16(role) ? SHARED : 0;
    return !!(OF(type_of(head)) & (mine | shared));
}

/* Checks a frame of a type that the program handles. */
INLINE enum reason accept(const struct head *head, enum port from) {
    u32 type = OF(type_of(head));
    if (from == NETWORK && type & CONTROL)
        return WHY_PORT;
    if (!is_plain(head))
        return WHY_RESERVED;
    if (type & WITH_VALUE) {
        int carried = head->kind <= 8 && CARRIED >> head->kind & 1;
        if (be16(head->length) > setup.room || !carried)
            return WHY_VALUE;
    }
    return NONE;
}
