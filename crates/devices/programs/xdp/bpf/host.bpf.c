/* Both programs at one interface: each frame goes to the one that takes it, and what leaves for the group is heard inside.
 *
 * A station does not hear what it sends to a group that it is in. So the own acceptor votes for what the own coordinator
 * proposes, and the own coordinator counts that vote, before the proposal leaves. What is said inside stays there, but for
 * what is for the owner: it goes through the tap. docs/spec/offload.md, section 7, has it. */
#define PROGRAMS 2
#include "acceptor.h"
#include "coordinator.h"
#include "hooks.h"

/* Nobody here takes these, and the owner waits for them: it finds them in the tap. */
#define FOR_OWNER (OF(PHASE1B) | OF(DECIDED) | OF(REFUSED))

/* To the owner by the tap, as it came. */
INLINE enum fate hand_on(struct asked *asked, enum reason why) {
    count(0, why);
    copy_to_tap(0, FROM_NETWORK, &asked->frame);
    return TAKEN;
}

/* Clients are told of decisions, and not of proposals and votes, if decisions have a group of their own. It is another's
 * than this device's; what the owner waits for is in it all the same. */
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

/* What the coordinator's cell holds of this slot, to the owner. The header in the packet says the rest. */
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
        /* The floor passed it in this moment: the owner knew. */
        ringbuf_discard(record, IF_WAITED_FOR);
        lose(COORDINATOR);
    }
}

/* A 2B lies in the packet. */
INLINE void count_inside(struct asked *asked) {
    struct asked heard = {.frame = asked->frame, .role = COORDINATOR, .state = state_of(COORDINATOR)};
    if (!heard.state)
        return;
    count(COORDINATOR, count_vote(&heard, 1));
    if (heard.answer == ALONG_DECISIONS_AND_OWNER)
        tell_decision(&heard.frame);
}

/* A 2A lies in the packet; then, if there is a vote, a 2B. */
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

/* The header is put back: it leaves as it was. The room is not touched inside. */
INLINE void hear_inside(struct asked *asked) {
    struct head *head = asked->frame.head;
    if (asked->role && asked->answer == ALONG_PROPOSALS && is_mac(setup.proposals.mac, setup.heard)) {
        struct head left = *head;
        vote_inside(asked);
        *head = left;
    } else if (!asked->role && type_of(head) == PHASE2B && is_mac(setup.votes.mac, setup.heard)) {
        struct state *state = state_of(COORDINATOR);
        if (state && !ONCE(state->armed)) {
            /* As it is in all hosts but one. */
            count(COORDINATOR, WHY_STALE);
            return;
        }
        struct head left = *head;
        count_inside(asked);
        *head = left;
    }
}
