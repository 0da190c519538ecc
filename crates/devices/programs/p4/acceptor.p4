// The acceptor: votes in one ballot, stores its votes, and promises nothing.

#include <core.p4>
#include <v1model.p4>
#include "frame.p4"

control Acceptor(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    // The record. Its ballot is 0 while the device is not armed.
    register<bit<64>>(1) armed_ballot;
    register<bit<8>>(1) armed_position;
    register<bit<64>>(1) last_ballot;
    register<bit<64>>(1) lowest_slot;

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

    Whole() whole;
    Plain() plain;
    Order() order;
    Finish() finish;

    bit<32> index;
    bit<64> ballot;
    bit<8> position;
    bit<64> last;
    bit<64> lowest;
    bit<64> held_ballot;
    bit<64> held_slot;

    action store() {
        cell_ballot.write(index, ballot);
        cell_slot.write(index, hdr.q.slot);
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
        hdr.q.position = position[3:0];
        hdr.q.ballot = ballot;
        hdr.q.flags = flags;
        hdr.q.boot = meta.boot;
    }

    apply {
        whole.apply(hdr, meta, standard_metadata);
        if (meta.why == WELL) {
            bit<4> what = hdr.q.what;
            meta.takes = what == PHASE1A || what == PHASE2A
                || (what == READ || what == ARM || what == FLOOR || what == FENCE || what == ASK || what == BOOT)
                   && (hdr.q.flags & COORDINATOR) == 0;
            plain.apply(hdr, meta, standard_metadata);
        }
        if (meta.why == WELL) {
            // [offload-6] Check and write are atomic, including the read of the floor.
            @atomic {
                order.apply(hdr, meta);
                armed_ballot.read(ballot, 0);
                armed_position.read(position, 0);
                last_ballot.read(last, 0);
                lowest_slot.read(lowest, 0);
                index = hdr.q.slot[31:0] & (CELLS - 1);
                cell_ballot.read(held_ballot, index);
                cell_slot.read(held_slot, index);

                if (meta.why != WELL) {
                    // The call's number was out of order.
                } else if (hdr.q.what == PHASE2A) {
                    if (ballot == 0) {
                        meta.why = WHY_DISARMED;
                    } else if (hdr.q.ballot != ballot) {
                        meta.why = WHY_BALLOT;
                    } else if (hdr.q.slot < lowest) {
                        meta.why = WHY_FLOOR;
                    } else if (hdr.q.slot - lowest >= CELLS) {
                        meta.why = WHY_FULL;
                    } else if (held_ballot == ballot && held_slot == hdr.q.slot) {
                        // Answer with the stored value, whatever was proposed.
                        show();
                        answer(PHASE2B, REPEAT);
                        meta.where = FIRST_ROUTE;
                    } else {
                        store();
                        hdr.q.voted = ballot;
                        answer(PHASE2B, 0);
                        meta.where = FIRST_ROUTE_AND_OWNER;
                    }
                } else if (hdr.q.what == PHASE1A) {
                    // [offload-7] Neither writes nor promises.
                    if (ballot == 0) {
                        meta.why = WHY_DISARMED;
                    } else {
                        show();
                        answer(PHASE1B, 0);
                        meta.where = FIRST_ROUTE;
                    }
                } else if (hdr.q.what == READ) {
                    show();
                    answer(CELL, 0);
                    meta.where = TO_OWNER;
                } else {
                    if (hdr.q.what == ARM) {
                        if (hdr.q.ballot == 0) {
                            meta.why = WHY_RANGE;
                        } else if (ballot != 0
                                   && (hdr.q.ballot != ballot || hdr.q.position != position[3:0])) {
                            // [offload-17] A different record is accepted only after a drain.
                            meta.why = WHY_ARMED;
                        } else if (hdr.q.ballot < last) {
                            meta.why = WHY_BALLOT;
                        } else if (hdr.q.slot < lowest) {
                            meta.why = WHY_FLOOR;
                        } else {
                            ballot = hdr.q.ballot;
                            position = 4w0 ++ hdr.q.position;
                            lowest = hdr.q.slot;
                            armed_ballot.write(0, ballot);
                            armed_position.write(0, position);
                            last_ballot.write(0, ballot);
                            lowest_slot.write(0, lowest);
                        }
                    } else if (hdr.q.what == FLOOR) {
                        if (hdr.q.slot < lowest) {
                            meta.why = WHY_FLOOR;
                        } else {
                            lowest = hdr.q.slot;
                            lowest_slot.write(0, lowest);
                        }
                    } else if (hdr.q.what == FENCE) {
                        // [offload-8] Stops voting; its votes remain readable.
                        ballot = 0;
                        position = 0;
                        armed_ballot.write(0, ballot);
                        armed_position.write(0, position);
                    }
                    if (meta.why == WELL) {
                        // Finish reports a counter instead of incrementing one.
                        hdr.q.reason = 0;
                        if (hdr.q.what == ASK) {
                            hdr.q.reason = 0xff;
                        }
                        answer(DONE, 0);
                        hdr.q.slot = lowest;
                        hdr.q.voted = 0;
                        hdr.q.kind = 0;
                        hdr.q.length = ROOM;
                        hdr.q.crc = CELLS;
                        meta.where = TO_OWNER;
                    }
                }
                if (meta.why >= WHY_BUSY) {
                    answer(REFUSED, 0);
                    hdr.q.voted = lowest;
                    hdr.q.reason = meta.why;
                }
            }
        }
        finish.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(FrameParser(), FrameVerify(), Acceptor(), FrameEgress(), FrameCompute(), FrameDeparser()) main;
