/* Passes everything. The peer of a veth pair needs an XDP program, or frames that its other end sends back are lost. */
#include "kernel.h"

SECTION("xdp") int pass(struct xdp_md *context) {
    (void)context;
    return XDP_PASS;
}

SECTION("license") const char _license[] = "Dual MIT/GPL";
