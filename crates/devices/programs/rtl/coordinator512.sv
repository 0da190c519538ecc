// The coordinator for a 512-bit bus: allocates slots and counts votes while the frame still arrives.
//
// Implements docs/spec/offload.md, sections 3 and 7; crates/devices/offload is normative. The first byte of a frame is
// in the upper bits of its first word. A gap makes a frame invalid and ends it; frames may begin in any cycle. The
// answer to a word leaves five cycles after it, at the network's port (0), the owner's (1), or both; at the last word,
// `m_abort` marks the frame as invalid, as a MAC does for a bad check sequence.
//
// The shortest device frames have two words. A frame may therefore be stored, three cycles after its last word, in the
// very cycle in which the next one reads its cell; the next one then uses the data being written.
module coordinator512
    import quorate::*;
#(
    // Bytes of a value's room, a multiple of 8. Frames are 104 bytes longer, or 80 if raw.
    parameter int ROOM = 32,
    // Cells in the ring, a power of two.
    parameter int CELLS = 64,
    // For synthesis: see memory512.sv.
    parameter bit COLUMNS = 0,
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
    input  logic         clk,
    // Erases everything: cells one by one, until `ready`.
    input  logic         rst,
    output logic         ready,
    input  logic         s_valid,
    input  logic         s_last,
    // Bytes in the last word, 1 to 64; 64 in other words.
    input  logic [6:0]   s_bytes,
    input  logic [511:0] s_data,
    // Port at which the frame arrives: 0 network, 1 owner.
    input  logic         s_port,
    // Passed through, to match answers to frames.
    input  logic [31:0]  s_tag,
    output logic [1:0]   m_valid,
    output logic         m_last,
    output logic         m_abort,
    output logic [6:0]   m_bytes,
    output logic [511:0] m_data0,
    output logic [511:0] m_data1,
    output logic [31:0]  m_tag
);
    localparam int INDEX = $clog2(CELLS);
    // Width of a value's length in bits.
    localparam int LENGTH = $clog2(ROOM + 1);
    // The device's memories are cleared together; there are 32 counters.
    localparam int SWEEP = INDEX < 5 ? 5 : INDEX;

    if (ROOM < 8 || ROOM > 1408 || ROOM % 8 != 0) $error("a room has 8 to 1408 bytes, in whole words");
    if (CELLS < 2 || CELLS != 1 << INDEX) $error("cells are a power of two");

    beat_t [3:0] b;
    logic looks, asks, ends, raw, of_owner, single;
    logic [INDEX-1:0] look;
    logic [12:5][63:0] h;
    logic [7:0] early, verdict;
    logic [17:0] sum10, sum11, sum12;
    logic [18:0] sum_ip;
    logic [ROOM/8-1:0][63:0] room, held_room;

    front512 #(
        .COORDINATOR(1'b1), .ROOM(ROOM), .INDEX(INDEX), .GROUP(GROUP), .UDP_PORT(UDP_PORT), .OWN_MAC(OWN_MAC),
        .HEARD_MAC(HEARD_MAC)
    ) front (.*);

    plan_t plan, planned;
    logic bad;
    value_t held;

    leave512 #(
        .ROOM(ROOM), .CELLS(CELLS), .GROUP(GROUP), .UDP_PORT(UDP_PORT), .OWN_MAC(OWN_MAC), .OWN_IP(OWN_IP),
        .OWNER_MAC(OWNER_MAC), .OWNER_IP(OWNER_IP), .FIRST_MAC(FIRST_MAC), .FIRST_IP(FIRST_IP),
        .SECOND_MAC(SECOND_MAC), .SECOND_IP(SECOND_IP)
    ) leave (.comes(b[2]), .coming(plan), .leaving(b[3]), .plan(planned), .*);

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

    // ---- The record.

    logic [63:0] ballot, last_ballot, lowest, next, limit;
    logic [7:0] quorum, members;
    logic hint;
    logic [31:0] boot, owner_boot;
    logic [63:0] owner_counter;
    (* no_rw_check *) logic [63:0] counters[32];

    // ---- The cells ([offload-10], [offload-14]): the part that decides is read a cycle before the part that is shown.

    // The sum is that of the value in an answer. Only the lap of the slot is stored.
    typedef struct packed {
        logic [63:0]       ballot;
        logic [63-INDEX:0] lap;
        logic [15:0]       sum;
    } key_t;
    typedef struct packed {
        logic [3:0]  kind;
        logic [31:0] origin;
        logic [31:0] origin_boot;
        logic [63:0] counter;
        logic [LENGTH-1:0] length;
        logic [15:0] sum;
        logic [31:0] crc;
        logic [ROOM/8-1:0][63:0] room;
    } kept_t;

    key_t read, written, key;
    logic [15:0] votes_read, votes_written, voters;
    kept_t shown;
    logic [INDEX-1:0] write_at;
    logic gives_out, counts, writes, votes_overtaken, overtaken, is_held, is_given_out;
    always_comb begin
        // The previous frame is stored in the cycle in which this one reads.
        key = overtaken ? written : read;
        is_held = key.ballot != 0 && key.lap == slot[63:INDEX];
        voters = votes_overtaken ? votes_written : votes_read;
        is_given_out = slot >= lowest && slot < next && is_held && key.ballot == ballot;
        held = '{kind: {4'd0, shown.kind}, origin: shown.origin, origin_boot: shown.origin_boot, counter: shown.counter,
            length: 16'(shown.length), sum: shown.sum, crc: shown.crc};
        held_room = shown.room;
    end

    // ---- The program's verdict ([offload-5], [offload-10], [offload-12], [offload-14], [offload-17]).

    logic [7:0] said, says, judged;
    logic older, crosses, repeats, repeated, differs;
    logic [15:0] vote, voters_now;
    logic [7:0] count;
    always_comb begin
        older = h[10][31:0] < owner_boot || (h[10][31:0] == owner_boot && h[11] <= owner_counter);
        vote = 16'd1 << h[5][35:32];
        repeats = (voters & vote) != 0;
        count = 1;
        for (int i = 0; i < 16; i++) count = count + {7'd0, voters[i]};
        crosses = count == quorum;
        says = WELL;
        case (what)
            SUBMIT:
                if (ballot == 0) says = WHY_DISARMED;
                else if (next >= limit || next - lowest >= 64'(CELLS)) says = WHY_FULL;
            PHASE2B:
                if (ballot == 0 || !is_given_out || h[7] != ballot || {4'd0, h[5][35:32]} >= members) says = WHY_STALE;
            TICK:
                if (ballot == 0) says = WHY_DISARMED;
                else if (!is_given_out) says = WHY_STALE;
            ARM, FLOOR, FENCE:
                if (boot == 0 || h[9][31:0] != boot) says = WHY_BOOT;
                else if (older) says = WHY_ORDER;
                else if (what == ARM) begin
                    if (h[7] == 0 || h[9][63:56] == 0 || {24'd0, h[9][63:56]} > h[10][63:32] || h[10][63:32] > 16)
                        says = WHY_RANGE;
                    else if (ballot != 0) says = WHY_ARMED;
                    else if (h[7] < last_ballot) says = WHY_BALLOT;
                    else if (slot < lowest || (h[7] == last_ballot && slot < next)) says = WHY_FLOOR;
                end else if (what == FLOOR) begin
                    if (ballot == 0) says = WHY_DISARMED;
                    else if (slot < lowest || slot > next || h[8] < limit) says = WHY_FLOOR;
                end
            BOOT:
                if (h[9][31:0] == 0 || (boot != 0 && h[9][31:0] != boot)) says = WHY_BOOT;
            default: ;
        endcase
    end

    // ---- The frame's route and its rewriting plan.

    logic [31:0] sender;
    always_comb sender = b[2].data[511-64*3-16 -: 32];

    logic [19:0] sum_value;
    logic [3:0] kind;
    always_comb begin
        plan = '0;
        plan.raw = raw;
        if (early >= WHY_FOREIGN && early <= WHY_OTHER) plan.to = b[2].port ? 2'b01 : 2'b10;
        else if (early == WELL) begin
            plan.answers = 1;
            if (what == TICK && says < WHY_BUSY) plan.to = says == WELL ? 2'b01 : 2'b00;
            else if (of_owner) plan.to = 2'b10;
            else if (what == PHASE2B) begin
                // [count-1] The values are compared a cycle later; an answer that already leaves is then aborted.
                plan.to = says == WELL && !repeats && crosses ? 2'b11 : 2'b00;
                plan.second = 1;
            end else if (says == WELL) plan.to = 2'b01;
            else if (single) begin
                plan.back = 1;
                plan.to = b[2].port ? 2'b10 : 2'b01;
            end
        end

        case (what)
            SUBMIT, TICK: kind = PHASE2A;
            PHASE2B: kind = DECIDED;
            READ: kind = CELL;
            default: kind = DONE;
        endcase
        plan.held = is_held;
        plan.kind = kind;
        plan.slot = slot;
        plan.ballot = ballot;
        plan.boot = boot;
        plan.flags = 4'd8;
        // The room's sum counts twice: for the room, and as a field.
        sum_value = {4'd0, h[9][63:56], 8'd0} + 20'(sum10) + 20'(sum11) + 20'(sum12) + {4'd0, h[12][47:32]};
        plan.sum = sum_value;
        if (says >= WHY_BUSY) begin
            plan.kind = REFUSED;
            plan.voted = next;
            plan.reason = says;
        end else if (what == SUBMIT) plan.slot = next;
        else if (kind != DONE) begin
            plan.shows = 1;
            plan.voted = is_held && what != TICK ? key.ballot : 64'd0;
            plan.flags[0] = what == PHASE2B && hint;
            plan.flags[1] = what == TICK;
            plan.sum = is_held ? {4'd0, key.sum} : 20'd0;
        end else begin
            plan.done = 1;
            plan.slot = what == ARM || what == FLOOR ? slot : lowest;
            plan.voted = what == ARM ? slot : next;
            if (what == ARM) plan.ballot = h[7];
            if (what == FENCE) plan.ballot = 0;
            if (what == BOOT) plan.boot = h[9][31:0];
            plan.flags[0] = what == ARM ? h[9][32] : what != FENCE && hint;
            plan.counts = what == ASK;
            plan.counter = h[10][63:37] == 0 ? counters[h[10][36:32]] : 64'd0;
            plan.sum = 20'(sum10) + (what == ASK ? 20'(lanes(plan.counter)) : 20'(sum11)) + {3'd0, h[12][47:32], 1'b0}
                + 20'(ROOM) + 20'(halves(32'(CELLS)));
        end

        plan.check0 = ~fold(32'(sum_ip) + halves(OWN_IP)
            + halves(plan.back ? sender : plan.second ? SECOND_IP : FIRST_IP));
        plan.check1 = plan.back ? plan.check0 : ~fold(32'(sum_ip) + halves(OWN_IP) + halves(OWNER_IP));
    end

    logic [15:0] sum;
    always_ff @(posedge clk) begin
        if (asks) begin
            planned <= plan;
            said <= says;
            repeated <= repeats;
            voters_now <= voters;
            sum <= fold(32'(sum_value));
        end
    end

    // ---- End of the frame: changes state if the frame was intact ([offload-16]), and counts it.

    logic [7:0] counted;
    logic obeys;
    logic [15:0] voters_after;
    key_t write_key;
    kept_t write_kept;
    always_comb begin
        // [count-1]
        differs = held.kind != h[9][63:56] || held.length != h[12][63:48] || held.origin != h[10][63:32]
            || held.origin_boot != h[10][31:0] || held.counter != h[11] || held.crc != h[12][31:0];
        judged = said;
        if (what == PHASE2B && said == WELL) judged = differs ? WHY_CONFLICT : repeated ? WHY_STALE : WELL;
        counted = verdict != WELL ? verdict : judged;
        if (verdict == WELL && judged >= WHY_BUSY && !of_owner && !single) counted = WHY_SOURCE;
        obeys = ends && verdict == WELL && judged == WELL;
        gives_out = obeys && what == SUBMIT;
        writes = !ready || gives_out;
        counts = gives_out || (obeys && what == PHASE2B);
        if (!ready) write_at = sweep[INDEX-1:0];
        else write_at = what == SUBMIT ? next[INDEX-1:0] : slot[INDEX-1:0];
        write_key = ready ? '{ballot: ballot, lap: next[63:INDEX], sum: sum} : '0;
        voters_after = what == SUBMIT ? 16'd0 : voters_now | vote;
        write_kept = '{kind: h[9][59:56], origin: h[10][63:32], origin_boot: h[10][31:0], counter: h[11],
            length: h[12][48+LENGTH-1:48], sum: h[12][47:32], crc: h[12][31:0], room: room};
    end

    memory512 #(.WIDTH($bits(key_t)), .INDEX(INDEX), .COLUMNS(COLUMNS)) keys (
        .clk, .reads(looks), .read_at(look), .word(read), .writes, .write_at, .to(write_key)
    );
    memory512 #(.WIDTH($bits(kept_t)), .INDEX(INDEX), .COLUMNS(COLUMNS)) values (
        .clk, .reads(asks), .read_at(slot[INDEX-1:0]), .word(shown), .writes, .write_at, .to(write_kept)
    );
    memory512 #(.WIDTH(16), .INDEX(INDEX), .COLUMNS(COLUMNS)) votes (
        .clk, .reads(looks), .read_at(look), .word(votes_read), .writes(counts), .write_at, .to(voters_after)
    );

    always_ff @(posedge clk) begin
        overtaken <= writes && write_at == look;
        written <= write_key;
        // Its own proposal is not a vote.
        votes_overtaken <= counts && write_at == look;
        votes_written <= voters_after;

        bad <= (verdict >= WHY_LENGTH && verdict <= WHY_PORT)
            || (verdict == WELL && (judged == WHY_STALE || judged == WHY_CONFLICT));
        if (!ready) counters[sweep[4:0]] <= 0;
        else if (ends && !(verdict == WELL && what == ASK)) counters[counted[4:0]] <= counters[counted[4:0]] + 1;
        if (ends && verdict == WELL && (what == ARM || what == FLOOR || what == FENCE) && said != WHY_BOOT
            && said != WHY_ORDER) begin
            owner_boot <= h[10][31:0];
            owner_counter <= h[11];
        end
        if (obeys) begin
            case (what)
                SUBMIT: next <= next + 1;
                ARM: begin
                    ballot <= h[7];
                    last_ballot <= h[7];
                    lowest <= slot;
                    next <= slot;
                    limit <= h[8];
                    quorum <= h[9][63:56];
                    members <= h[10][39:32];
                    hint <= h[9][32];
                end
                FLOOR: begin
                    lowest <= slot;
                    limit <= h[8];
                end
                FENCE: begin
                    ballot <= 0;
                    quorum <= 0;
                    members <= 0;
                    hint <= 0;
                end
                BOOT: boot <= h[9][31:0];
                default: ;
            endcase
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
