// The coordinator for a 64-bit bus: allocates slots and counts votes while the frame still arrives.
//
// Implements docs/spec/offload.md, sections 3 and 7; crates/devices/offload is normative. The first byte of a frame is
// in the upper bits of its first word. A gap makes a frame invalid and ends it; frames begin at least eight words
// apart, as the shortest Ethernet frames do. The answer to a word leaves eleven cycles after it, at the network's port
// (0), the owner's (1), or both; at the last word, `m_abort` marks the frame as invalid, as a MAC does for a bad check
// sequence.
//
// The header begins at byte 42 or 18, so its words are words of the bus: slot, ballot and counter are one word each. A
// raw frame is three words ahead of a UDP frame.
module coordinator64
    import quorate::*;
#(
    // Bytes of a value's room, a multiple of 8. Frames are 104 bytes longer, or 80 if raw.
    parameter int ROOM = 32,
    // Cells in the ring, a power of two.
    parameter int CELLS = 64,
    parameter logic [31:0] GROUP = 32'h0a0b0c0d,
    parameter logic [15:0] UDP_PORT = 16'd47100,
    parameter logic [47:0] OWN_MAC = 48'h020000000001,
    parameter logic [31:0] OWN_IP = 32'h0a000001,
    parameter logic [47:0] HEARD_MAC = 48'h030000000055,
    parameter logic [47:0] OWNER_MAC = 48'h020000000002,
    parameter logic [31:0] OWNER_IP = 32'h0a000002,
    parameter logic [47:0] FIRST_MAC = 48'h030000000003,
    parameter logic [31:0] FIRST_IP = 32'hef000003,
    parameter logic [47:0] SECOND_MAC = 48'h030000000004,
    parameter logic [31:0] SECOND_IP = 32'hef000004
) (
    input  logic        clk,
    // Erases everything: cells one by one, until `ready`.
    input  logic        rst,
    output logic        ready,
    input  logic        s_valid,
    input  logic        s_last,
    // Bytes in the last word, 1 to 8; 8 in other words.
    input  logic [3:0]  s_bytes,
    input  logic [63:0] s_data,
    // Port at which the frame arrives: 0 network, 1 owner.
    input  logic        s_port,
    // Passed through, to match answers to frames.
    input  logic [31:0] s_tag,
    output logic [1:0]  m_valid,
    output logic        m_last,
    output logic        m_abort,
    output logic [3:0]  m_bytes,
    output logic [63:0] m_data0,
    output logic [63:0] m_data1,
    output logic [31:0] m_tag
);
    localparam int INDEX = $clog2(CELLS);
    // The device's memories are cleared together; there are 32 counters.
    localparam int SWEEP = INDEX < 5 ? 5 : INDEX;

    if (ROOM < 8 || ROOM > 1408 || ROOM % 8 != 0) $error("a room has 8 to 1408 bytes, in whole words");
    if (CELLS < 2 || CELLS != 1 << INDEX) $error("cells are a power of two");

    word_t now, leaving;
    logic [12:0][63:0] words;
    logic [ROOM/8-1:0][63:0] room, made_room, held_room;
    logic [12:5][63:0] h;
    logic raw, decides, finishes, ends, looks, of_owner, single;
    logic [7:0] admitted;

    front64 #(
        .COORDINATOR(1'b1), .ROOM(ROOM), .GROUP(GROUP), .UDP_PORT(UDP_PORT), .OWN_MAC(OWN_MAC), .HEARD_MAC(HEARD_MAC)
    ) front (.*);

    way_t way;
    logic bad, shows;
    logic [12:5][63:0] made;

    leave64 #(
        .ROOM(ROOM), .UDP_PORT(UDP_PORT), .OWN_MAC(OWN_MAC), .OWN_IP(OWN_IP), .OWNER_MAC(OWNER_MAC), .OWNER_IP(OWNER_IP)
    ) leave (.words(words[4:1]), .decided(way), .*);

    logic [3:0] what;
    logic [63:0] slot;
    always_comb begin
        what = h[5][39:36];
        slot = h[6];
    end

    // Memories keep their contents through a reset, so they are cleared after it.
    logic [SWEEP-1:0] sweep;
    always_ff @(posedge clk) begin
        if (!ready) sweep <= sweep + 1;
        if (!ready && sweep == '1) ready <= 1;
        if (rst) begin
            ready <= 0;
            sweep <= 0;
        end
    end

    // ---- The record, and the cells ([offload-10], [offload-14]).

    logic [63:0] ballot, last_ballot, lowest, next, limit;
    logic [7:0] quorum, members;
    logic hint;
    logic [31:0] boot, owner_boot;
    logic [63:0] owner_counter;
    (* no_rw_check *) logic [63:0] counters[32];

    (* no_rw_check *) cell_t cells[CELLS];
    (* no_rw_check *) logic [ROOM/8-1:0][63:0] rooms[CELLS];
    (* no_rw_check, ram_style = "block" *) logic [15:0] voters[CELLS];
    (* no_rw_check, ram_style = "block" *) logic [4:0] votes[CELLS];
    cell_t held;
    logic [15:0] held_voters;
    logic [4:0] held_votes;
    logic [INDEX-1:0] index;
    logic is_held, given_out;
    always_comb begin
        index = what == SUBMIT ? next[INDEX-1:0] : slot[INDEX-1:0];
        is_held = held.ballot != 0 && held.slot == slot;
        given_out = slot >= lowest && slot < next && is_held && held.ballot == ballot;
    end

    // The slot is available two cycles before its cell is needed.
    always_ff @(posedge clk) begin
        if (looks) begin
            held <= cells[index];
            held_room <= rooms[index];
            held_voters <= voters[index];
            held_votes <= votes[index];
        end
    end

    // ---- The program's verdict ([offload-5], [offload-10], [offload-12], [offload-14], [offload-17]).

    logic [7:0] said;
    logic older, differs, crosses;
    logic [15:0] vote;
    logic [63:0] next_ballot, next_last, next_lowest, next_next, next_limit;
    logic [7:0] next_quorum, next_members;
    logic next_hint;
    logic [31:0] next_boot;
    always_comb begin
        older = h[10][31:0] < owner_boot || (h[10][31:0] == owner_boot && h[11] <= owner_counter);
        // [count-1] Known with the last word of the header, when an answer that already leaves is aborted.
        differs = (raw || now.at >= 12) && (held.kind != h[9][63:56] || held.length != h[12][63:48]
            || held.origin != h[10][63:32] || held.origin_boot != h[10][31:0] || held.counter != h[11]
            || held.crc != h[12][31:0]);
        vote = 16'd1 << h[5][35:32];
        crosses = {3'd0, held_votes} + 8'd1 == quorum;
        said = WELL;
        next_ballot = ballot;
        next_last = last_ballot;
        next_lowest = lowest;
        next_next = next;
        next_limit = limit;
        next_quorum = quorum;
        next_members = members;
        next_hint = hint;
        next_boot = boot;
        case (what)
            SUBMIT:
                if (ballot == 0) said = WHY_DISARMED;
                else if (next >= limit || next - lowest >= 64'(CELLS)) said = WHY_FULL;
                else next_next = next + 1;
            PHASE2B:
                if (ballot == 0 || !given_out || h[7] != ballot || {4'd0, h[5][35:32]} >= members) said = WHY_STALE;
                else if (differs) said = WHY_CONFLICT;
                else if ((held_voters & vote) != 0) said = WHY_STALE;
            TICK:
                if (ballot == 0) said = WHY_DISARMED;
                else if (!given_out) said = WHY_STALE;
            ARM, FLOOR, FENCE:
                if (boot == 0 || h[9][31:0] != boot) said = WHY_BOOT;
                else if (older) said = WHY_ORDER;
                else if (what == FENCE) begin
                    next_ballot = 0;
                    next_quorum = 0;
                    next_members = 0;
                    next_hint = 0;
                end else if (what == ARM) begin
                    if (h[7] == 0 || h[9][63:56] == 0 || {24'd0, h[9][63:56]} > h[10][63:32] || h[10][63:32] > 16)
                        said = WHY_RANGE;
                    else if (ballot != 0) said = WHY_ARMED;
                    else if (h[7] < last_ballot) said = WHY_BALLOT;
                    else if (slot < lowest || (h[7] == last_ballot && slot < next)) said = WHY_FLOOR;
                    else begin
                        next_ballot = h[7];
                        next_last = h[7];
                        next_lowest = slot;
                        next_next = slot;
                        next_limit = h[8];
                        next_quorum = h[9][63:56];
                        next_members = h[10][39:32];
                        next_hint = h[9][32];
                    end
                end else begin
                    if (ballot == 0) said = WHY_DISARMED;
                    else if (slot < lowest || slot > next || h[8] < limit) said = WHY_FLOOR;
                    else begin
                        next_lowest = slot;
                        next_limit = h[8];
                    end
                end
            BOOT:
                if (h[9][31:0] == 0 || (boot != 0 && h[9][31:0] != boot)) said = WHY_BOOT;
                else next_boot = h[9][31:0];
            default: ;
        endcase
    end

    // ---- The frame's route: known with its tenth word, before its first word leaves.

    always_comb begin
        way = '0;
        way.raw = raw;
        way.mac = FIRST_MAC;
        way.ip = FIRST_IP;
        way.port = UDP_PORT;
        if (admitted >= WHY_FOREIGN && admitted <= WHY_OTHER) way.to = now.port ? 2'b01 : 2'b10;
        else if (admitted == WELL) begin
            way.answers = 1;
            if (what == TICK && said < WHY_BUSY) way.to = said == WELL ? 2'b01 : 2'b00;
            else if (of_owner) way.to = 2'b10;
            else if (what == PHASE2B) begin
                way.to = said == WELL && crosses ? 2'b11 : 2'b00;
                way.mac = SECOND_MAC;
                way.ip = SECOND_IP;
            end else if (said == WELL) way.to = 2'b01;
            else if (single) begin
                way.back = 1;
                way.to = now.port ? 2'b10 : 2'b01;
                way.mac = {words[0][15:0], words[1][63:32]};
                way.ip = words[3][47:16];
                way.port = words[4][47:32];
            end
        end
        bad = (admitted >= WHY_LENGTH && admitted <= WHY_PORT)
            || (admitted == WELL && (said == WHY_STALE || said == WHY_CONFLICT));
    end

    // ---- Header and room of the answer, before their first byte leaves.

    always_comb begin
        for (int i = 5; i <= 12; i++) made[i] = h[i];
        for (int i = 0; i < ROOM / 8; i++) made_room[i] = is_held ? held_room[i] : 64'd0;
        shows = what == PHASE2B || what == TICK || what == READ;
        made[7] = ballot;
        // Reason and flags.
        made[9][55:32] = 24'h000008;
        made[9][31:0] = boot;
        if (said >= WHY_BUSY) begin
            made[5] = {16'd0, MAGIC, REFUSED, 4'd0, GROUP};
            made[8] = next;
            made[9][55:48] = said;
            shows = 0;
        end else if (what == SUBMIT) begin
            made[5] = {16'd0, MAGIC, PHASE2A, 4'd0, GROUP};
            made[6] = next;
            made[8] = 0;
        end else if (shows) begin
            made[5] = {16'd0, MAGIC, what == PHASE2B ? DECIDED : what == TICK ? PHASE2A : CELL, 4'd0, GROUP};
            made[8] = is_held && what != TICK ? held.ballot : 64'd0;
            if (what == PHASE2B) made[9][32] = hint;
            if (what == TICK) made[9][33] = 1;
            made[9][63:56] = is_held ? held.kind : 8'd0;
            made[10] = is_held ? {held.origin, held.origin_boot} : 64'd0;
            made[11] = is_held ? held.counter : 64'd0;
            made[12] = is_held ? {held.length, held.sum, held.crc} : 64'd0;
        end else begin
            made[5] = {16'd0, MAGIC, DONE, 4'd0, GROUP};
            made[6] = next_lowest;
            made[7] = next_ballot;
            made[8] = next_next;
            made[9] = {31'h00000004, next_hint, next_boot};
            if (what == ASK) made[11] = h[10][63:32] < 32 ? counters[h[10][36:32]] : 64'd0;
            made[12] = {16'(ROOM), h[12][47:32], 32'(CELLS)};
        end
    end

    // ---- End of the frame: changes state if the frame was intact ([offload-16]), and counts it.

    logic [7:0] counted;
    logic obeys, gives_out;
    logic [INDEX-1:0] write_at;
    always_comb begin
        obeys = ends && admitted == WELL && said == WELL;
        gives_out = obeys && what == SUBMIT;
        write_at = ready ? index : sweep[INDEX-1:0];
        counted = admitted != WELL ? admitted : said;
        if (admitted == WELL && said >= WHY_BUSY && !of_owner && !single) counted = WHY_SOURCE;
    end

    always_ff @(posedge clk) begin
        if (!ready || gives_out) begin
            cells[write_at] <= !ready ? '0 : '{ballot: ballot, slot: next, kind: h[9][63:56], origin: h[10][63:32],
                origin_boot: h[10][31:0], counter: h[11], length: h[12][63:48], sum: h[12][47:32], crc: h[12][31:0]};
            rooms[write_at] <= room;
        end
        if (gives_out || (obeys && what == PHASE2B)) begin
            // Its own proposal is not a vote.
            voters[index] <= gives_out ? 0 : held_voters | vote;
            votes[index] <= gives_out ? 0 : held_votes + 1;
        end
        if (!ready) counters[sweep[4:0]] <= 0;
        else if (ends && !(admitted == WELL && what == ASK)) counters[counted[4:0]] <= counters[counted[4:0]] + 1;
        if (ends) begin
            if (admitted == WELL) begin
                if ((what == ARM || what == FLOOR || what == FENCE) && said != WHY_BOOT && said != WHY_ORDER) begin
                    owner_boot <= h[10][31:0];
                    owner_counter <= h[11];
                end
                if (said == WELL) begin
                    ballot <= next_ballot;
                    last_ballot <= next_last;
                    lowest <= next_lowest;
                    next <= next_next;
                    limit <= next_limit;
                    quorum <= next_quorum;
                    members <= next_members;
                    hint <= next_hint;
                    boot <= next_boot;
                end
            end
        end
        if (rst) begin
            ballot <= 0;
            last_ballot <= 0;
            lowest <= 0;
            next <= 0;
            limit <= 0;
            quorum <= 0;
            members <= 0;
            hint <= 0;
            boot <= 0;
            owner_boot <= 0;
            owner_counter <= 0;
        end
    end
endmodule
