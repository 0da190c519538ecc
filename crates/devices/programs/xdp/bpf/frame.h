/* Frame format (docs/spec/offload.md, section 3). All numbers in a frame are big-endian. */
#pragma once
#include "kernel.h"

enum type { SUBMIT, PHASE1A, PHASE1B, PHASE2A, PHASE2B, DECIDED, REFUSED, TICK, READ, CELL, ARM, FLOOR, FENCE, ASK, DONE, BOOT };

/* Set with one type. */
#define OF(type) (1u << (type))
/* [offload-17] Types accepted from the owner only. */
#define CONTROL (OF(TICK) | OF(READ) | OF(ARM) | OF(FLOOR) | OF(FENCE) | OF(ASK) | OF(BOOT))
/* Types that both programs handle; a flag names the role. */
#define SHARED (OF(READ) | OF(ARM) | OF(FLOOR) | OF(FENCE) | OF(ASK) | OF(BOOT))
#define WITH_VALUE (OF(SUBMIT) | OF(PHASE2A) | OF(PHASE2B) | OF(DECIDED))
#define WITH_POSITION (OF(PHASE2B) | OF(ARM))
/* [offload-15] Kinds of value that devices carry: any but content and reconfiguration. */
#define CARRIED (1u << 1 | 1u << 2 | 1u << 4 | 1u << 5 | 1u << 6 | 1u << 8)

enum flag { HINT = 1, REPEAT = 2, KEYED = 4, COORDINATOR = 8 };
#define FLAGS (HINT | REPEAT | COORDINATOR)

enum { MAGIC = 0xb1, ETHER_IP = 0x0800, ETHER_OURS = 0x88b6, ETHER_VLAN = 0x8100, ETHER_VLANS = 0x88a8, PROTOCOL_UDP = 17 };

/* Reason for a frame's fate: the index of its counter, and the reason in a refusal. */
enum reason {
    NONE,
    /* passed on */
    WHY_FOREIGN, WHY_VLAN, WHY_OPTIONS, WHY_FRAGMENT, WHY_GROUP, WHY_ELSEWHERE, WHY_OTHER,
    /* dropped */
    WHY_LENGTH, WHY_CHECKSUM, WHY_RESERVED, WHY_VALUE, WHY_PORT, WHY_SOURCE, WHY_STALE, WHY_CONFLICT, WHY_HINT,
    /* refused */
    WHY_BUSY, WHY_FULL, WHY_DISARMED, WHY_BOOT, WHY_ORDER, WHY_ARMED, WHY_BALLOT, WHY_FLOOR, WHY_RANGE,
    REASONS = 32,
};

/* Header of 62 bytes, preceded by two more so that every field is aligned to its size: in both forms the struct
 * begins at a multiple of 8. The two bytes are the checksum of UDP or of the shim. */
struct head {
    u16 before;
    u8 magic, type_position;
    u32 group;
    u64 slot, ballot, voted;
    u8 kind, reason;
    u16 flags;
    u32 boot, origin, origin_boot;
    u64 counter;
    u16 length, sum;
    u32 crc;
};
_Static_assert(sizeof(struct head) == 64, "two bytes and a header");

enum {
    HEAD_UDP = 40,
    HEAD_RAW = 16,
    ROOM_UDP = HEAD_UDP + sizeof(struct head),
    ROOM_RAW = HEAD_RAW + sizeof(struct head),
    HEADER_BYTES = 62,
    ROOM_BYTES_MAX = 1408,
};

/* Ethernet, IPv4 and UDP headers. A raw frame has only the first three fields, followed by the shim: its length in
 * place of version and service, and its checksum. */
struct link {
    u16 to[3], from[3], ether;
    u8 version, service;
    u16 total, id, fragment;
    u8 life, protocol;
    u16 ip_sum, ip_from[2], ip_to[2];
    u16 port_from, port_to, udp_length;
};
_Static_assert(sizeof(struct link) == HEAD_UDP, "up to the checksum of UDP");

/* Parsed view of a frame in the packet. */
struct frame {
    struct link *link;
    struct head *head;
    void *room;
    void *end;
    u8 udp;
};

INLINE u8 type_of(const struct head *head) { return head->type_position >> 4; }
INLINE u8 position_of(const struct head *head) { return head->type_position & 15; }

/* One's-complement sums in host byte order. The folded sum is then the big-endian sum with its bytes swapped. */
INLINE u64 add(u64 sum, u64 word) { return sum + (word & 0xffffffff) + (word >> 32); }

/* Folds a sum to 16 bits. Returns zero only if all words were zero. */
INLINE u16 fold(u64 sum) {
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (u16)sum;
}

/* Sums the header and the two bytes before it. */
INLINE u64 sum_head(const struct head *head) {
    const u64 *words = (const u64 *)head;
    u64 sum = 0;
#pragma unroll
    for (int at = 0; at < 8; at++)
        sum = add(sum, words[at]);
    return sum;
}

/* Loops handle 64 bytes an iteration and the rest word by word, because the loop itself would cost more than its
 * work. The verifier knows the number of iterations, since the loader freezes the size of a room. */
enum { CHUNK = 8 };

/* Sums 32-bit halves, which a load extends to 64 bits. */
INLINE u64 sum_room(const u64 *room, u32 bytes) {
    const u32 *halves = (const u32 *)room;
    u64 even = 0, odd = 0;
    u32 words = bytes / 8, at = 0;
#pragma clang loop unroll(disable)
    for (; at + CHUNK <= words; at += CHUNK) {
#pragma unroll
        for (int word = 0; word < CHUNK; word++) {
            even += halves[2 * (at + word)];
            odd += halves[2 * (at + word) + 1];
        }
    }
#pragma clang loop unroll(disable)
    for (; at < words; at++) {
        even += halves[2 * at];
        odd += halves[2 * at + 1];
    }
    return even + odd;
}

INLINE void copy(u64 *to, const u64 *from, u32 bytes) {
    u32 words = bytes / 8, at = 0;
#pragma clang loop unroll(disable)
    for (; at + CHUNK <= words; at += CHUNK) {
#pragma unroll
        for (int word = 0; word < CHUNK; word++)
            to[at + word] = from[at + word];
    }
#pragma clang loop unroll(disable)
    for (; at < words; at++)
        to[at] = from[at];
}

INLINE void clear(u64 *to, u32 bytes) {
#pragma clang loop unroll(disable)
    for (u32 at = 0; at < bytes / 8; at++)
        to[at] = 0;
}

/* Sums the IPv4 header, checksum included. */
INLINE u64 sum_ip(const struct link *link) {
    const u16 *words = (const u16 *)&link->version;
    u64 sum = 0;
#pragma unroll
    for (int at = 0; at < 10; at++)
        sum += words[at];
    return sum;
}

/* Returns the length field that a raw frame has before its checksum. */
INLINE u16 *length_of(struct link *link) { return (u16 *)&link->version; }

/* Sums the UDP pseudo header and the UDP header without its checksum. */
INLINE u64 sum_pseudo(const struct link *link) {
    return (u64)link->ip_from[0] + link->ip_from[1] + link->ip_to[0] + link->ip_to[1] + link->udp_length * 2u +
           be16(PROTOCOL_UDP) + link->port_from + link->port_to;
}
