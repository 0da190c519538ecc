/* Both programs on one interface: each frame goes to the program that handles it, and frames that leave for the group
 * are also delivered to the other program.
 *
 * A station does not receive its own frames to a group that it is in. So before a proposal leaves, the local
 * acceptor votes for it and the local coordinator counts that vote. These local messages do not leave the host;
 * those for the owner go through the tap (docs/spec/offload.md, section 7). */
#define PROGRAMS 2
#include "acceptor.h"
#include "coordinator.h"
#include "hooks.h"

/* Types that neither program handles but the owner waits for: they are copied to the tap. */
#define FOR_OWNER (OF(PHASE1B) | OF(DECIDED) | OF(REFUSED))

/* Copies the frame to the owner's tap unchanged. */
INLINE enum fate hand_on(struct asked *asked, enum reason why) {
    count(0, why);
    copy_to_tap(0, FROM_NETWORK, &asked->frame);
    return TAKEN;
}

/* Returns 1 for a decision sent to the decisions' group. If decisions have a group of their own, clients subscribe
 * to it and receive no proposals or votes. The device is not in that group, but its owner needs the decisions. */
INLINE int is_decision_for_others(const struct frame *frame, void *end) {
    const struct head *head = frame->head;
    if (!is_mac(frame->link->to, setup.decisions.mac) || type_of(head) != DECIDED)
        return 0;
    return has_room(frame, end) && frame->room + setup.room <= end && !is_whole(frame);
}

INLINE enum fate step(void *data, void *end, enum port from) {
    struct asked asked = {.from = from};
    enum reason why = arrive(data, end, &asked.frame);
    if (why == WHY_ELSEWHERE && from == NETWORK && is_decision_for_others(&asked.frame, end))
        return hand_on(&asked, why);
    if (why)
        return turn_away(&asked, why);
    if (takes(asked.frame.head, OF_COORDINATOR, COORDINATOR)) {
        asked.role = COORDINATOR;
        return run(&asked);
    }
    if (takes(asked.frame.head, OF_ACCEPTOR, 0))
        return run(&asked);
    if (from == NETWORK && OF(type_of(asked.frame.head)) & FOR_OWNER)
        return hand_on(&asked, WHY_OTHER);
    return turn_away(&asked, WHY_OTHER);
}

INLINE enum reason handle(struct asked *asked) {
    return asked->role ? coordinator_handle(asked) : acceptor_handle(asked);
}

INLINE enum reason on_arm(u16 role, struct state *state, const struct call *call) {
    return role ? coordinator_on_arm(state, call) : acceptor_on_arm(state, call);
}

INLINE enum reason on_floor(u16 role, struct state *state, const struct call *call) {
    return role ? coordinator_on_floor(state, call) : acceptor_on_floor(state, call);
}

/* Sends the owner the decision on this slot: the header from the packet, the value from the coordinator's cell. */
INLINE void tell_decision(struct frame *frame) {
    struct head *head = frame->head;
    u64 slot = be64(head->slot), ballot = be64(head->ballot), *bytes;
    struct cell *cell = cell_of(COORDINATOR, slot, &bytes);
    struct address owner = {};
    int there = 0;
    if (!cell || !bytes)
        return;
    from_setup(&owner, &setup.owner);
    address(frame, &owner);
    struct tapped *record = reserve(COORDINATOR, INSIDE);
    if (!record)
        return;
    copy_to(record, frame, 0);
    u64 *room = (void *)(record + 1) + (frame->udp ? ROOM_UDP : ROOM_RAW);
    spin_lock(&cell->lock);
    if (cell->ballot == ballot && cell->slot == slot) {
        there = 1;
        copy(room, bytes, setup.room);
    }
    spin_unlock(&cell->lock);
    if (there) {
        ringbuf_submit(record, IF_WAITED_FOR);
    } else {
        /* The floor has just passed this slot, so the owner already knows the decision. */
        ringbuf_discard(record, IF_WAITED_FOR);
        lose(COORDINATOR);
    }
}

/* Expects a 2B in the packet. */
INLINE void count_inside(struct asked *asked) {
    struct asked heard = {.frame = asked->frame, .role = COORDINATOR, .state = state_of(COORDINATOR)};
    if (!heard.state)
        return;
    count(COORDINATOR, count_vote(&heard, 1));
    if (heard.answer == ALONG_DECISIONS_AND_OWNER)
        tell_decision(&heard.frame);
}

/* Expects a 2A in the packet; leaves a 2B there if the acceptor votes. */
INLINE void vote_inside(struct asked *asked) {
    struct asked heard = {.frame = asked->frame, .state = state_of(0)};
    if (!heard.state)
        return;
    enum reason why = vote(&heard, 1);
    count(0, why);
    if (why)
        return;
    if (heard.answer == ALONG_VOTES_AND_OWNER)
        tell_owner(0, INSIDE, &heard.frame);
    if (is_mac(setup.votes.mac, setup.heard))
        count_inside(&heard);
}

/* Delivers an outgoing frame to the other program. Restores the header afterwards, so that the frame leaves
 * unchanged; the room is not touched. */
INLINE void hear_inside(struct asked *asked) {
    struct head *head = asked->frame.head;
    if (asked->role && asked->answer == ALONG_PROPOSALS && is_mac(setup.proposals.mac, setup.heard)) {
        struct head left = *head;
        vote_inside(asked);
        *head = left;
    } else if (!asked->role && type_of(head) == PHASE2B && is_mac(setup.votes.mac, setup.heard)) {
        struct state *state = state_of(COORDINATOR);
        if (state && !ONCE(state->armed)) {
            /* True on every host but the leader's. */
            count(COORDINATOR, WHY_STALE);
            return;
        }
        struct head left = *head;
        count_inside(asked);
        *head = left;
    }
}
