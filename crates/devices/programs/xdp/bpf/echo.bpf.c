/* Echoes frames of one EtherType, and IPv4 datagrams to one port; everything else passes. Measures the cost of
 * answering in the kernel without a protocol. */
#include "kernel.h"

enum { HEADER = 14, TYPE_AT = 12, ECHO_TYPE = 0x88b5, IPV4 = 0x0800 };
/* Offsets after the Ethernet header, without IP options. */
enum { FRAGMENT_AT = HEADER + 6, PROTOCOL_AT = HEADER + 9, FROM_AT = HEADER + 12, PORTS_AT = HEADER + 20 };
enum { SUM_AT = PORTS_AT + 6, DATAGRAM = PORTS_AT + 8, UDP = 17, PORT = 7462 };

INLINE u16 half(const u8 *at) { return (u16)(at[0] << 8 | at[1]); }

/* Swaps two adjacent fields of a frame. */
INLINE void swap(u8 *first, int bytes) {
#pragma unroll
    for (int at = 0; at < bytes; at++) {
        u8 byte = first[at];
        first[at] = first[bytes + at];
        first[bytes + at] = byte;
    }
}

/* Turns a frame around and returns 1, or returns 0 if it is not an echo frame. Checksums stay valid because fields
 * only change places. */
INLINE int turn(u8 *frame, u8 *end) {
    if (frame + HEADER > end)
        return 0;
    u16 type = half(frame + TYPE_AT);
    if (type == IPV4) {
        if (frame + DATAGRAM > end || frame[HEADER] != 0x45 || frame[PROTOCOL_AT] != UDP)
            return 0;
        if (half(frame + FRAGMENT_AT) & 0x3fff || half(frame + PORTS_AT + 2) != PORT)
            return 0;
        swap(frame + FROM_AT, 4);
        swap(frame + PORTS_AT, 2);
        /* Send no checksum: a sender that offloads checksums to its card has not filled it in, and no card will
         * here. */
        frame[SUM_AT] = frame[SUM_AT + 1] = 0;
    } else if (type != ECHO_TYPE) {
        return 0;
    }
    swap(frame, 6);
    return 1;
}

SECTION("xdp") int echo_early(struct xdp_md *context) {
    return turn((void *)(long)context->data, (void *)(long)context->data_end) ? XDP_TX : XDP_PASS;
}

SECTION("classifier") int echo_traffic(struct __sk_buff *context) {
    if (context->data_end - context->data < DATAGRAM && skb_pull_data(context, context->len))
        return TC_OK;
    if (turn((void *)(long)context->data, (void *)(long)context->data_end))
        return redirect(context->ifindex, 0);
    return TC_OK;
}

SECTION("license") const char _license[] = "Dual MIT/GPL";
