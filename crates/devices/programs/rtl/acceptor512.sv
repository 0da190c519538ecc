// The acceptor for a 512-bit bus: answers while the frame still arrives, and aborts the answer if the frame turns out
// invalid.
//
// Implements docs/spec/offload.md, sections 3 and 7; crates/devices/offload is normative. The first byte of a frame is
// in the upper bits of its first word. A gap makes a frame invalid and ends it; frames may begin in any cycle. The
// answer to a word leaves five cycles after it, at the network's port (0), the owner's (1), or both; at the last word,
// `m_abort` marks the frame as invalid, as a MAC does for a bad check sequence.
//
// The shortest device frames have two words. A frame may therefore be stored, three cycles after its last word, in the
// very cycle in which the next one reads its cell; the next one then uses the data being written.
module acceptor512
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
        .COORDINATOR(1'b0), .ROOM(ROOM), .INDEX(INDEX), .GROUP(GROUP), .UDP_PORT(UDP_PORT), .OWN_MAC(OWN_MAC),
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

    logic [63:0] ballot, last_ballot, lowest;
    logic [3:0] own_position;
    logic [31:0] boot, owner_boot;
    logic [63:0] owner_counter;
    (* no_rw_check *) logic [63:0] counters[32];

    // ---- The cells ([offload-6], [offload-14]): the part that decides is read a cycle before the part that is shown.

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
    kept_t shown;
    logic [INDEX-1:0] write_at;
    logic writes, overtaken, is_held, is_voted;
    always_comb begin
        // The previous frame is stored in the cycle in which this one reads.
        key = overtaken ? written : read;
        is_held = key.ballot != 0 && key.lap == slot[63:INDEX];
        is_voted = is_held && key.ballot == ballot;
        held = '{kind: {4'd0, shown.kind}, origin: shown.origin, origin_boot: shown.origin_boot, counter: shown.counter,
            length: 16'(shown.length), sum: shown.sum, crc: shown.crc};
        held_room = shown.room;
    end

    // ---- The program's verdict ([offload-5] to [offload-8], [offload-17]).

    logic [7:0] said, says;
    logic older, voted;
    always_comb begin
        older = h[10][31:0] < owner_boot || (h[10][31:0] == owner_boot && h[11] <= owner_counter);
        says = WELL;
        case (what)
            PHASE2A:
                if (ballot == 0) says = WHY_DISARMED;
                else if (h[7] != ballot) says = WHY_BALLOT;
                else if (slot < lowest) says = WHY_FLOOR;
                else if (slot - lowest >= 64'(CELLS)) says = WHY_FULL;
            PHASE1A:
                if (ballot == 0) says = WHY_DISARMED;
            ARM, FLOOR, FENCE:
                if (boot == 0 || h[9][31:0] != boot) says = WHY_BOOT;
                else if (older) says = WHY_ORDER;
                else if (what == FENCE) ;
                else if (what == ARM && h[7] == 0) says = WHY_RANGE;
                else if (what == ARM && ballot != 0 && (h[7] != ballot || h[5][35:32] != own_position)) says = WHY_ARMED;
                else if (what == ARM && h[7] < last_ballot) says = WHY_BALLOT;
                else if (slot < lowest) says = WHY_FLOOR;
            BOOT:
                if (h[9][31:0] == 0 || (boot != 0 && h[9][31:0] != boot)) says = WHY_BOOT;
            default: ;
        endcase
    end

    // ---- The frame's route and its rewriting plan.

    logic [31:0] sender;
    always_comb sender = b[2].data[511-64*3-16 -: 32];

    logic [19:0] sum_value;
    logic answers_control;
    always_comb begin
        plan = '0;
        plan.raw = raw;
        if (early >= WHY_FOREIGN && early <= WHY_OTHER) plan.to = b[2].port ? 2'b01 : 2'b10;
        else if (early == WELL) begin
            plan.answers = 1;
            if (of_owner) plan.to = 2'b10;
            else if (says == WELL) plan.to = (what == PHASE2A && !is_voted) ? 2'b11 : 2'b01;
            else if (single) begin
                plan.back = 1;
                plan.to = b[2].port ? 2'b10 : 2'b01;
            end
        end

        answers_control = of_owner && what != READ && says == WELL;
        plan.held = is_held;
        plan.position = own_position;
        plan.slot = slot;
        plan.ballot = ballot;
        plan.voted = ballot;
        plan.boot = boot;
        // The room's sum counts twice: for the room, and as a field.
        sum_value = {4'd0, h[9][63:56], 8'd0} + 20'(sum10) + 20'(sum11) + 20'(sum12) + {4'd0, h[12][47:32]};
        plan.sum = sum_value;
        if (says != WELL) begin
            plan.kind = REFUSED;
            plan.voted = lowest;
            plan.reason = says;
        end else if (answers_control) begin
            plan.kind = DONE;
            plan.done = 1;
            plan.voted = 0;
            if (what == ARM || what == FLOOR) plan.slot = slot;
            else plan.slot = lowest;
            if (what == ARM) begin
                plan.ballot = h[7];
                plan.position = h[5][35:32];
            end
            if (what == FENCE) begin
                plan.ballot = 0;
                plan.position = 0;
            end
            if (what == BOOT) plan.boot = h[9][31:0];
            plan.counts = what == ASK;
            plan.counter = h[10][63:37] == 0 ? counters[h[10][36:32]] : 64'd0;
            plan.sum = 20'(sum10) + (what == ASK ? 20'(lanes(plan.counter)) : 20'(sum11)) + {3'd0, h[12][47:32], 1'b0}
                + 20'(ROOM) + 20'(halves(32'(CELLS)));
        end else begin
            plan.kind = what == PHASE2A ? PHASE2B : what == PHASE1A ? PHASE1B : CELL;
            plan.shows = what != PHASE2A || is_voted;
            plan.flags[1] = what == PHASE2A && is_voted;
            if (plan.shows) begin
                plan.voted = is_held ? key.ballot : 64'd0;
                plan.sum = is_held ? {4'd0, key.sum} : 20'd0;
            end
        end

        plan.check0 = ~fold(32'(sum_ip) + halves(OWN_IP) + halves(plan.back ? sender : FIRST_IP));
        plan.check1 = plan.back ? plan.check0 : ~fold(32'(sum_ip) + halves(OWN_IP) + halves(OWNER_IP));
    end

    logic [15:0] sum;
    always_ff @(posedge clk) begin
        if (asks) begin
            planned <= plan;
            said <= says;
            voted <= is_voted;
            sum <= fold(32'(sum_value));
        end
    end

    // ---- End of the frame: changes state if the frame was intact ([offload-16]), and counts it.

    logic [7:0] counted;
    logic obeys;
    key_t write_key;
    kept_t write_kept;
    always_comb begin
        counted = verdict != WELL ? verdict : said;
        if (verdict == WELL && said != WELL && !of_owner && !single) counted = WHY_SOURCE;
        obeys = ends && verdict == WELL && said == WELL;
        writes = !ready || (obeys && what == PHASE2A && !voted);
        write_at = ready ? slot[INDEX-1:0] : sweep[INDEX-1:0];
        write_key = ready ? '{ballot: ballot, lap: slot[63:INDEX], sum: sum} : '0;
        write_kept = '{kind: h[9][59:56], origin: h[10][63:32], origin_boot: h[10][31:0], counter: h[11],
            length: h[12][48+LENGTH-1:48], sum: h[12][47:32], crc: h[12][31:0], room: room};
    end

    memory512 #(.WIDTH($bits(key_t)), .INDEX(INDEX), .COLUMNS(COLUMNS)) keys (
        .clk, .reads(looks), .read_at(look), .word(read), .writes, .write_at, .to(write_key)
    );
    memory512 #(.WIDTH($bits(kept_t)), .INDEX(INDEX), .COLUMNS(COLUMNS)) values (
        .clk, .reads(asks), .read_at(slot[INDEX-1:0]), .word(shown), .writes, .write_at, .to(write_kept)
    );

    always_ff @(posedge clk) begin
        overtaken <= writes && write_at == look;
        written <= write_key;

        bad <= verdict >= WHY_LENGTH && verdict <= WHY_PORT;
        if (!ready) counters[sweep[4:0]] <= 0;
        else if (ends && !(verdict == WELL && what == ASK)) counters[counted[4:0]] <= counters[counted[4:0]] + 1;
        if (ends && verdict == WELL && (what == ARM || what == FLOOR || what == FENCE) && said != WHY_BOOT
            && said != WHY_ORDER) begin
            owner_boot <= h[10][31:0];
            owner_counter <= h[11];
        end
        if (obeys) begin
            case (what)
                ARM: begin
                    ballot <= h[7];
                    last_ballot <= h[7];
                    lowest <= slot;
                    own_position <= h[5][35:32];
                end
                FLOOR: lowest <= slot;
                FENCE: begin
                    ballot <= 0;
                    own_position <= 0;
                end
                BOOT: boot <= h[9][31:0];
                default: ;
            endcase
        end
        if (rst) begin
            ballot <= 0;
            last_ballot <= 0;
            lowest <= 0;
            own_position <= 0;
            boot <= 0;
            owner_boot <= 0;
            owner_counter <= 0;
        end
    end
endmodule
