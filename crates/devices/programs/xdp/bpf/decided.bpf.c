/* Socket filter for clients: passes decisions only. A group also receives proposals and votes; without the filter
 * each of them would wake the client or cost it a system call. */
#include "frame.h"

static long (*const skb_load_bytes)(const struct __sk_buff *skb, u32 offset, void *to, u32 length) = (void *)26;

/* Returns -1, the whole packet, if the header at this offset belongs to a decision, else 0. */
INLINE int keep(struct __sk_buff *context, u32 header) {
    u8 begin[2];
    if (skb_load_bytes(context, header, begin, sizeof(begin)))
        return 0;
    return begin[0] == MAGIC && begin[1] >> 4 == DECIDED ? -1 : 0;
}

/* A packet socket sees whole raw frames; a UDP socket sees packets from the UDP header on. */
SECTION("socket") int frames(struct __sk_buff *context) { return keep(context, HEAD_RAW + 2); }
SECTION("socket") int datagrams(struct __sk_buff *context) { return keep(context, 8); }

SECTION("license") const char _license[] = "Dual MIT/GPL";
