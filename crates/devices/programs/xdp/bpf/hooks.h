/* Entry points: XDP and tc for frames from the network, and test runs of the program, requested by the owner, for
 * the owner's frames. The port follows from the hook, never from the frame (docs/decisions/0015). */
#pragma once
#include "control.h"

/* Defined by each object: selects the program for an intact frame, and dispatches it. */
INLINE enum fate step(void *data, void *end, enum port from);
INLINE enum reason handle(struct asked *asked);

INLINE enum fate turn_away(const struct asked *asked, enum reason why) {
    count(asked->role, why);
    return why <= WHY_OTHER ? PASS : TAKEN;
}

/* Runs the selected program on a frame. */
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

/* Never attached. Its return value is the frame's `fate`. */
SECTION("xdp") int owner(struct xdp_md *context) {
    return step((void *)(long)context->data, (void *)(long)context->data_end, OWNER);
}

/* For interfaces whose driver has no XDP, and for veth pairs between sockets, where tc is faster. */
SECTION("classifier") int traffic(struct __sk_buff *context) {
    /* [offload-16] The kernel or the interface has stripped a VLAN tag, and would insert it in the answer. */
    if (context->vlan_present) {
        count(0, WHY_VLAN);
        tail_call(context, &next_traffic, 0);
        return TC_OK;
    }
    /* Only the linear part of a packet is readable until the rest is pulled in. */
    if (context->data_end - context->data < context->len && skb_pull_data(context, context->len)) {
        /* [offload-16] The packet cannot be pulled in for lack of memory: count it and let it pass. */
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
