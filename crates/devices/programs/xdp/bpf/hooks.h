/* Where frames come in: from the network by XDP or tc, from the owner by a run of the program that the owner asks the
 * kernel for. The program believes the hook, never the frame: docs/decisions/0015 says why. */
#pragma once
#include "control.h"

/* The object's own: which program takes a frame that is whole, and the program's table. */
INLINE enum fate step(void *data, void *end, enum port from);
INLINE enum reason handle(struct asked *asked);

INLINE enum fate turn_away(const struct asked *asked, enum reason why) {
    count(asked->role, why);
    return why <= WHY_OTHER ? PASS : TAKEN;
}

/* A frame that the program takes. */
INLINE enum fate run(struct asked *asked) {
    u8 type = type_of(asked->frame.head);
    enum reason why = accept(asked->frame.head, asked->from);
    if (why)
        return turn_away(asked, why);
    asked->state = state_of(asked->role);
    if (!asked->state)
        return TAKEN;
    why = handle(asked);
    if (why >= WHY_BUSY && !(OF(type) & CONTROL) && !is_single(&asked->frame))
        why = WHY_SOURCE;
    if (type != ASK)
        count(asked->role, why);
    return finish(asked, why);
}

SECTION("xdp") int network(struct xdp_md *context) {
    switch (step((void *)(long)context->data, (void *)(long)context->data_end, NETWORK)) {
    case PASS:
        tail_call(context, &next_network, 0);
        return XDP_PASS;
    case TO_NETWORK:
        return XDP_TX;
    default:
        return XDP_DROP;
    }
}

/* Never attached: its answer says what becomes of the frame, as a number of `fate`. */
SECTION("xdp") int owner(struct xdp_md *context) {
    return step((void *)(long)context->data, (void *)(long)context->data_end, OWNER);
}

/* On interfaces whose driver has no XDP, and on veth among sockets faster than that. */
SECTION("classifier") int traffic(struct __sk_buff *context) {
    /* [offload-16] The kernel, or the interface, has taken a tag of a VLAN off, and would put it on what is sent back. */
    if (context->vlan_present) {
        count(0, WHY_VLAN);
        tail_call(context, &next_traffic, 0);
        return TC_OK;
    }
    /* What is behind the first part of a packet is not to be seen before it is pulled in. */
    if (context->data_end - context->data < context->len && skb_pull_data(context, context->len)) {
        /* [offload-16] There is no room to look at it: it is nobody's, and counted. */
        count(0, WHY_LENGTH);
        tail_call(context, &next_traffic, 0);
        return TC_OK;
    }
    switch (step((void *)(long)context->data, (void *)(long)context->data_end, NETWORK)) {
    case PASS:
        tail_call(context, &next_traffic, 0);
        return TC_OK;
    case TO_NETWORK:
        return redirect(context->ifindex, 0);
    default:
        return TC_SHOT;
    }
}

SECTION("license") const char _license[] = "Dual MIT/GPL";
