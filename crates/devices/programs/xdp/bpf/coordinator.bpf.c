/* Program for an interface with only a coordinator. */
#include "coordinator.h"
#include "hooks.h"

INLINE enum fate step(void *data, void *end, enum port from) {
    struct asked asked = {.from = from, .role = COORDINATOR};
    enum reason why = arrive(data, end, &asked.frame);
    if (!why && !takes(asked.frame.head, OF_COORDINATOR, COORDINATOR))
        why = WHY_OTHER;
    return why ? turn_away(&asked, why) : run(&asked);
}

INLINE enum reason handle(struct asked *asked) { return coordinator_handle(asked); }

INLINE enum reason on_arm(u16 role, struct state *state, const struct call *call) {
    (void)role;
    return coordinator_on_arm(state, call);
}

INLINE enum reason on_floor(u16 role, struct state *state, const struct call *call) {
    (void)role;
    return coordinator_on_floor(state, call);
}

INLINE void hear_inside(struct asked *asked) { (void)asked; }
