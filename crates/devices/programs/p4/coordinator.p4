// The coordinator: allocates slots of one ballot, proposes values in them, and counts votes.

#include <core.p4>
#include <v1model.p4>
#include "frame.p4"

control Coordinator(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    // The record. Its ballot is 0 while the device is stopped.
    register<bit<64>>(1) started_ballot;
    // Quorum, number of members, and whether decisions are hints.
    register<bit<32>>(1) started_quorum;
    register<bit<64>>(1) slot_limit;
    register<bit<64>>(1) last_ballot;
    register<bit<64>>(1) lowest_slot;
    register<bit<64>>(1) next_slot;

    // Slot i is in cell i modulo N ([offload-14]). A ballot of 0 marks a cell that was never used.
    register<bit<64>>(CELLS) cell_ballot;
    register<bit<64>>(CELLS) cell_slot;
    register<bit<64>>(CELLS) cell_origin;
    register<bit<64>>(CELLS) cell_counter;
    register<bit<64>>(CELLS) cell_shape;
    register<bit<32>>(CELLS) cell_crc;
    register<bit<PART>>(CELLS) cell_a;
    register<bit<PART>>(CELLS) cell_b;
    register<bit<PART>>(CELLS) cell_c;
    register<bit<PART>>(CELLS) cell_d;
    register<bit<PART>>(CELLS) cell_e;
    register<bit<PART>>(CELLS) cell_f;
    register<bit<PART>>(CELLS) cell_g;
    register<bit<PART>>(CELLS) cell_h;
    // Number of votes, and one bit for each position that voted.
    register<bit<32>>(CELLS) cell_voters;

    Whole() whole;
    Plain() plain;
    Order() order;
    Finish() finish;

    bit<32> index;
    bit<64> ballot;
    bit<32> quorum;
    bit<64> limit;
    bit<64> last;
    bit<64> lowest;
    bit<64> next;
    bit<64> held_ballot;
    bit<64> held_slot;
    bool given_out;

    action store() {
        cell_ballot.write(index, ballot);
        cell_slot.write(index, next);
        cell_origin.write(index, hdr.q.origin ++ hdr.q.origin_boot);
        cell_counter.write(index, hdr.q.counter);
        cell_shape.write(index, 24w0 ++ hdr.q.kind ++ hdr.q.length ++ hdr.q.sum);
        cell_crc.write(index, hdr.q.crc);
        cell_a.write(index, hdr.room.a);
        cell_b.write(index, hdr.room.b);
        cell_c.write(index, hdr.room.c);
        cell_d.write(index, hdr.room.d);
        cell_e.write(index, hdr.room.e);
        cell_f.write(index, hdr.room.f);
        cell_g.write(index, hdr.room.g);
        cell_h.write(index, hdr.room.h);
        // Its own proposal is not a vote ([offload-10]).
        cell_voters.write(index, 0);
    }

    // Shows the cell's contents, whatever their ballot, or zeros if the cell holds another slot.
    action show() {
        bit<64> origin;
        bit<64> counter;
        bit<64> shape;
        bit<32> crc;
        bit<PART> a;
        bit<PART> b;
        bit<PART> c;
        bit<PART> d;
        bit<PART> e;
        bit<PART> f;
        bit<PART> g;
        bit<PART> h;
        cell_origin.read(origin, index);
        cell_counter.read(counter, index);
        cell_shape.read(shape, index);
        cell_crc.read(crc, index);
        cell_a.read(a, index);
        cell_b.read(b, index);
        cell_c.read(c, index);
        cell_d.read(d, index);
        cell_e.read(e, index);
        cell_f.read(f, index);
        cell_g.read(g, index);
        cell_h.read(h, index);
        bool holds = held_ballot != 0 && held_slot == hdr.q.slot;
        bit<64> mask = holds ? 64w0xffffffffffffffff : 64w0;
        hdr.q.voted = held_ballot & mask;
        hdr.q.kind = shape[39:32] & mask[7:0];
        hdr.q.origin = origin[63:32] & mask[31:0];
        hdr.q.origin_boot = origin[31:0] & mask[31:0];
        hdr.q.counter = counter & mask;
        hdr.q.length = shape[31:16] & mask[15:0];
        hdr.q.sum = shape[15:0] & mask[15:0];
        hdr.q.crc = crc & mask[31:0];
        bit<PART> nothing = 0;
        hdr.room.a = holds ? a : nothing;
        hdr.room.b = holds ? b : nothing;
        hdr.room.c = holds ? c : nothing;
        hdr.room.d = holds ? d : nothing;
        hdr.room.e = holds ? e : nothing;
        hdr.room.f = holds ? f : nothing;
        hdr.room.g = holds ? g : nothing;
        hdr.room.h = holds ? h : nothing;
    }

    // Fills in the fields that all answers share.
    action answer(bit<4> what, bit<16> flags) {
        hdr.q.what = what;
        hdr.q.position = 0;
        hdr.q.ballot = ballot;
        hdr.q.flags = flags;
        hdr.q.boot = meta.boot;
    }

    apply {
        whole.apply(hdr, meta, standard_metadata);
        if (meta.why == WELL) {
            bit<4> what = hdr.q.what;
            meta.takes = what == SUBMIT || what == PHASE2B || what == TICK
                || (what == READ || what == ARM || what == FLOOR || what == FENCE || what == ASK || what == BOOT)
                   && (hdr.q.flags & COORDINATOR) != 0;
            plain.apply(hdr, meta, standard_metadata);
        }
        if (meta.why == WELL) {
            @atomic {
                order.apply(hdr, meta);
                started_ballot.read(ballot, 0);
                started_quorum.read(quorum, 0);
                slot_limit.read(limit, 0);
                last_ballot.read(last, 0);
                lowest_slot.read(lowest, 0);
                next_slot.read(next, 0);
                if (hdr.q.what == SUBMIT) {
                    index = next[31:0] & (CELLS - 1);
                } else {
                    index = hdr.q.slot[31:0] & (CELLS - 1);
                }
                cell_ballot.read(held_ballot, index);
                cell_slot.read(held_slot, index);
                given_out = hdr.q.slot >= lowest && hdr.q.slot < next
                    && held_ballot == ballot && held_slot == hdr.q.slot;

                if (meta.why != WELL) {
                    // The call's number was out of order.
                } else if (hdr.q.what == SUBMIT) {
                    // [offload-14] Claims the cell, then raises the next slot, atomically.
                    if (ballot == 0) {
                        meta.why = WHY_DISARMED;
                    } else if (next >= limit || next - lowest >= CELLS) {
                        meta.why = WHY_FULL;
                    } else {
                        store();
                        hdr.q.slot = next;
                        next = next + 1;
                        next_slot.write(0, next);
                        answer(PHASE2A, COORDINATOR);
                        meta.where = FIRST_ROUTE;
                    }
                } else if (hdr.q.what == PHASE2B) {
                    // [offload-10] Counts each position once, for a slot of this start and in exactly this ballot.
                    bit<64> shape;
                    bit<64> origin;
                    bit<64> counter;
                    bit<32> crc;
                    bit<32> voters;
                    cell_shape.read(shape, index);
                    cell_origin.read(origin, index);
                    cell_counter.read(counter, index);
                    cell_crc.read(crc, index);
                    cell_voters.read(voters, index);
                    bit<32> vote = (bit<32>)((bit<16>)1 << hdr.q.position);
                    if (ballot == 0 || !given_out || hdr.q.ballot != ballot
                        || 4w0 ++ hdr.q.position >= quorum[15:8]) {
                        meta.why = WHY_STALE;
                    } else if (shape[63:16] != 24w0 ++ hdr.q.kind ++ hdr.q.length
                               || origin != hdr.q.origin ++ hdr.q.origin_boot
                               || counter != hdr.q.counter || crc != hdr.q.crc) {
                        // [count-1]
                        meta.why = WHY_CONFLICT;
                    } else if ((voters & vote) != 0) {
                        meta.why = WHY_STALE;
                    } else {
                        voters = (voters | vote) + 0x10000;
                        cell_voters.write(index, voters);
                        // Equality, so that later votes do not announce the decision again.
                        if (voters[23:16] == quorum[7:0]) {
                            show();
                            answer(DECIDED, COORDINATOR | quorum[31:16]);
                            meta.where = SECOND_ROUTE_AND_OWNER;
                        }
                    }
                } else if (hdr.q.what == TICK) {
                    if (ballot == 0) {
                        meta.why = WHY_DISARMED;
                    } else if (!given_out) {
                        meta.why = WHY_STALE;
                    } else {
                        show();
                        hdr.q.voted = 0;
                        answer(PHASE2A, COORDINATOR | REPEAT);
                        meta.where = FIRST_ROUTE;
                    }
                } else if (hdr.q.what == READ) {
                    show();
                    answer(CELL, COORDINATOR);
                    meta.where = TO_OWNER;
                } else {
                    if (hdr.q.what == ARM) {
                        if (hdr.q.ballot == 0 || hdr.q.kind == 0 || (bit<32>)hdr.q.kind > hdr.q.origin
                            || hdr.q.origin > 16) {
                            meta.why = WHY_RANGE;
                        } else if (ballot != 0) {
                            // [offload-17] A different record is accepted only after a drain.
                            meta.why = WHY_ARMED;
                        } else if (hdr.q.ballot < last) {
                            meta.why = WHY_BALLOT;
                        } else if (hdr.q.slot < lowest || (hdr.q.ballot == last && hdr.q.slot < next)) {
                            // [offload-12] The slot is already allocated.
                            meta.why = WHY_FLOOR;
                        } else {
                            ballot = hdr.q.ballot;
                            quorum = (hdr.q.flags & HINT) ++ hdr.q.origin[7:0] ++ hdr.q.kind;
                            limit = hdr.q.voted;
                            lowest = hdr.q.slot;
                            next = hdr.q.slot;
                            started_ballot.write(0, ballot);
                            started_quorum.write(0, quorum);
                            slot_limit.write(0, limit);
                            last_ballot.write(0, ballot);
                            lowest_slot.write(0, lowest);
                            next_slot.write(0, next);
                        }
                    } else if (hdr.q.what == FLOOR) {
                        if (ballot == 0) {
                            meta.why = WHY_DISARMED;
                        } else if (hdr.q.slot < lowest || hdr.q.slot > next || hdr.q.voted < limit) {
                            meta.why = WHY_FLOOR;
                        } else {
                            lowest = hdr.q.slot;
                            limit = hdr.q.voted;
                            lowest_slot.write(0, lowest);
                            slot_limit.write(0, limit);
                        }
                    } else if (hdr.q.what == FENCE) {
                        // [offload-12] Stops allocating and counting. The next slot and the cells remain.
                        ballot = 0;
                        quorum = 0;
                        started_ballot.write(0, ballot);
                        started_quorum.write(0, quorum);
                    }
                    if (meta.why == WELL) {
                        // Finish reports a counter instead of incrementing one.
                        hdr.q.reason = 0;
                        if (hdr.q.what == ASK) {
                            hdr.q.reason = 0xff;
                        }
                        answer(DONE, COORDINATOR | quorum[31:16]);
                        hdr.q.slot = lowest;
                        hdr.q.voted = next;
                        hdr.q.kind = 0;
                        hdr.q.length = ROOM;
                        hdr.q.crc = CELLS;
                        meta.where = TO_OWNER;
                    }
                }
                if (meta.why >= WHY_BUSY) {
                    answer(REFUSED, COORDINATOR);
                    hdr.q.voted = next;
                    hdr.q.reason = meta.why;
                }
            }
        }
        finish.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(FrameParser(), FrameVerify(), Coordinator(), FrameEgress(), FrameCompute(), FrameDeparser()) main;
