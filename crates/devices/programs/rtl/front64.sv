// Input stage: words of a frame, sums over them, and whether the frame is addressed to the device and intact, in the
// order of the rules.
//
// Until a frame ends, its missing parts are assumed to be valid; the verdict is final at its end.
module front64
    import quorate::*;
#(
    parameter bit COORDINATOR = 0,
    parameter int ROOM = 32,
    parameter logic [31:0] GROUP = 0,
    parameter logic [15:0] UDP_PORT = 0,
    parameter logic [47:0] OWN_MAC = 0,
    parameter logic [47:0] HEARD_MAC = 0
) (
    input  logic         clk,
    input  logic         rst,
    // The cells are cleared. Until then all frames are ignored, including those that began earlier.
    input  logic         ready,
    input  logic         s_valid,
    input  logic         s_last,
    input  logic [3:0]   s_bytes,
    input  logic [63:0]  s_data,
    input  logic         s_port,
    input  logic [31:0]  s_tag,
    // The newest word, and the word that leaves.
    output word_t        now,
    output word_t        leaving,
    output logic [12:0][63:0] words,
    // The value's room, wherever it begins.
    output logic [ROOM/8-1:0][63:0] room,
    // The header, wherever it begins: words 5 to 12 of a UDP frame.
    output logic [12:5][63:0] h,
    output logic         raw,
    // Set with the tenth word or the end; with the end of the header; at the end.
    output logic         decides,
    output logic         finishes,
    output logic         ends,
    // The slot has arrived.
    output logic         looks,
    output logic         of_owner,
    // The source is the address of a single station.
    output logic         single,
    output logic [7:0]   admitted
);
    localparam logic [15:0] ROOM_BYTES = 16'(ROOM);
    localparam logic [7:0] WORDS = 8'(ROOM / 8);

    word_t [DELAY-1:0] delayed;
    logic [7:0] at, room_at;
    // The current frame is being ignored.
    logic deaf, hears, cut;
    logic frame;
    logic [15:0] total;
    logic [31:0] ip_sum, udp_sum, raw_sum, udp_room, raw_room;

    logic [63:0] masked;
    logic [31:0] upper, lower;
    always_comb begin
        hears = s_valid && ready && !deaf;
        // [offload-16] A gap ends a frame as invalid: its beginning would leave before its route is known.
        cut = !s_valid && at != 0;
        masked = s_last ? s_data & ~(64'hffffffffffffffff >> {s_bytes, 3'b000}) : s_data;
        upper = halves(masked[63:32]);
        lower = halves(masked[31:0]);
        // Before the room, this index is beyond the room's end.
        room_at = at - (raw ? 8'd10 : 8'd13);
        now = delayed[0];
        leaving = delayed[DELAY-1];
    end

    always_ff @(posedge clk) begin
        delayed <= {delayed[DELAY-2:0], word_t'({hears || cut, s_last || cut, cut, cut ? 4'd8 : s_bytes, s_data,
            cut ? now.port : s_port, cut ? now.tag : s_tag, at, frame})};
        if (s_valid) deaf <= (!ready || deaf) && !s_last;
        else if (cut) deaf <= 1;
        if (hears) begin
            if (at < 13) words[at[3:0]] <= s_data;
            if (room_at < WORDS) room[int'(room_at)] <= s_data;
            // Saturates beyond the length of every valid frame.
            total <= (at == 0 ? 16'd0 : total) + (at != 0 && total[11] ? 16'd0 : {12'd0, s_bytes});
            // Bytes 14 to 33; from byte 26; from byte 14; the room in both forms.
            case (at)
                0: ip_sum <= 0;
                1: ip_sum <= {16'd0, masked[15:0]};
                2, 3: ip_sum <= ip_sum + upper + lower;
                4: ip_sum <= ip_sum + {16'd0, masked[63:48]};
                default: ;
            endcase
            if (at < 3) udp_sum <= 0;
            else if (at == 3) udp_sum <= {16'd0, masked[47:32]} + lower;
            else udp_sum <= udp_sum + upper + lower;
            if (at < 2) raw_sum <= at == 0 ? 0 : {16'd0, masked[15:0]};
            else raw_sum <= raw_sum + upper + lower;
            udp_room <= at < 13 ? 0 : udp_room + upper + lower;
            raw_room <= at < 10 ? 0 : raw_room + upper + lower;
            at <= s_last ? 0 : (at == 255 ? 255 : at + 1);
            frame <= s_last ? ~frame : frame;
        end
        if (cut) begin
            at <= 0;
            frame <= ~frame;
        end
        if (rst) begin
            at <= 0;
            frame <= 0;
            deaf <= 0;
            for (int i = 0; i < DELAY; i++) delayed[i].valid <= 0;
        end
    end

    logic is_udp, ended, lengths, sums, takes, plain, carried, has_value;
    logic [3:0] what, position;
    logic [15:0] bytes;
    always_comb begin
        raw = words[1][31:16] == 16'h88b6;
        is_udp = words[1][31:16] == 16'h0800;
        for (int i = 5; i <= 12; i++) h[i] = raw ? words[i - 3] : words[i];
        what = h[5][39:36];
        position = h[5][35:32];
        decides = now.valid && (now.at == 9 || (now.last && now.at < 9));
        ends = now.valid && now.last;
        finishes = now.valid && now.at == (raw ? 8'd9 : 8'd12);
        looks = now.valid && now.at == (raw ? 8'd3 : 8'd6);
        single = !words[0][8] && (raw || (words[3][47:40] != 0 && words[3][47:40] < 224));

        ended = now.last;
        bytes = ended ? total : 16'hffff;
        if (raw)
            lengths = words[1][15:0] == 16'd62 + ROOM_BYTES && (!ended || total == 16'd80 + ROOM_BYTES);
        else
            lengths = words[2][63:48] == 16'd90 + ROOM_BYTES && words[4][15:0] == 16'd70 + ROOM_BYTES
                && (!ended || total == 16'd104 + ROOM_BYTES);
        if (!ended) sums = 1;
        else if (raw) sums = fold(raw_sum) == 16'hffff && h[5][63:48] != 0 && fold(raw_room) == h[12][47:32];
        else sums = fold(ip_sum) == 16'hffff && fold(udp_sum + 32'd17 + {16'd0, words[4][15:0]}) == 16'hffff
            && words[5][63:48] != 0 && fold(udp_room) == h[12][47:32];
        of_owner = what == TICK || what == READ || what == ARM || what == FLOOR || what == FENCE || what == ASK
            || what == BOOT;
        if (COORDINATOR) takes = what == SUBMIT || what == PHASE2B || what == TICK || (of_owner && h[9][35]);
        else takes = what == PHASE1A || what == PHASE2A || (of_owner && what != TICK && !h[9][35]);
        // Unknown flags, a reason, and fields without a meaning in this type of frame.
        plain = (h[9][47:32] & 16'hfff4) == 0 && h[9][55:48] == 0
            && (position == 0 || what == ARM || what == PHASE2B)
            && !(what == SUBMIT && (h[6] != 0 || h[7] != 0 || h[8] != 0))
            && !(what == PHASE2A && h[8] != 0) && !(what == PHASE2B && h[8] != h[7]);
        has_value = what == SUBMIT || what == PHASE2A || what == PHASE2B;
        carried = h[9][63:56] == 1 || h[9][63:56] == 2 || h[9][63:56] == 4 || h[9][63:56] == 5
            || h[9][63:56] == 6 || h[9][63:56] == 8;

        admitted = WELL;
        if (bytes < 14 || now.cut) admitted = WHY_LENGTH;
        else if (words[1][31:16] == 16'h8100 || words[1][31:16] == 16'h88a8) admitted = WHY_VLAN;
        else if (!raw && !is_udp) admitted = WHY_FOREIGN;
        else if (is_udp && bytes < 34) admitted = WHY_LENGTH;
        else if (is_udp && words[1][15:12] == 4 && words[1][11:8] > 5) admitted = WHY_OPTIONS;
        else if (is_udp && words[1][15:8] != 8'h45) admitted = WHY_FOREIGN;
        else if (is_udp && words[2][7:0] != 17) admitted = WHY_FOREIGN;
        else if (is_udp && (words[2][31:16] & 16'hbfff) != 0) admitted = WHY_FRAGMENT;
        else if (is_udp && bytes < 42) admitted = WHY_LENGTH;
        else if (is_udp && words[4][31:16] != UDP_PORT) admitted = WHY_FOREIGN;
        else if (bytes < (raw ? 16'd80 : 16'd104)) admitted = WHY_LENGTH;
        else if (h[5][47:40] != MAGIC) admitted = WHY_FOREIGN;
        else if (h[5][31:0] != GROUP) admitted = WHY_GROUP;
        else if (words[0][63:16] != OWN_MAC && words[0][63:16] != HEARD_MAC) admitted = WHY_ELSEWHERE;
        else if (!lengths) admitted = WHY_LENGTH;
        else if (!sums) admitted = WHY_CHECKSUM;
        else if (!takes) admitted = WHY_OTHER;
        else if (!now.port && of_owner) admitted = WHY_PORT;
        else if (!plain) admitted = WHY_RESERVED;
        else if (has_value && (!carried || (ended && h[12][63:48] > ROOM_BYTES))) admitted = WHY_VALUE;
    end
endmodule
