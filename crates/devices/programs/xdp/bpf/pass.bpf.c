/* Takes nothing: what the other end of a veth pair needs, or frames that a program there sends back are lost. */
#include "kernel.h"

SECTION("xdp") int pass(struct xdp_md *context) {
    (void)context;
    return XDP_PASS;
}

SECTION("license") const char _license[] = "Dual MIT/GPL";
