/* What a client's socket hears: decisions. A group of stations is told of proposals and votes, too, and each that comes
 * to a socket is a system call, or wakes somebody up. */
#include "frame.h"

static long (*const skb_load_bytes)(const struct __sk_buff *skb, u32 offset, void *to, u32 length) = (void *)26;

/* All of it, if the header that begins there is of a decision. */
INLINE int keep(struct __sk_buff *context, u32 header) {
    u8 begin[2];
    if (skb_load_bytes(context, header, begin, sizeof(begin)))
        return 0;
    return begin[0] == MAGIC && begin[1] >> 4 == DECIDED ? -1 : 0;
}

/* A packet socket sees raw frames whole, a socket of UDP what begins with the header of UDP. */
SECTION("socket") int frames(struct __sk_buff *context) { return keep(context, HEAD_RAW + 2); }
SECTION("socket") int datagrams(struct __sk_buff *context) { return keep(context, 8); }

SECTION("license") const char _license[] = "Dual MIT/GPL";
