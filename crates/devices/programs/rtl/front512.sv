// Input stage for a 512-bit bus: the header, in one place for both forms, sums, and whether the frame is addressed to
// the device and intact.
//
// The first word is examined in one cycle, the first two in the next; the results are available in the third. The end
// of a frame is known two cycles after its last word, when `verdict` is valid.
module front512
    import quorate::*;
#(
    parameter bit COORDINATOR = 0,
    parameter int ROOM = 32,
    parameter int INDEX = 6,
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
    input  logic [6:0]   s_bytes,
    input  logic [511:0] s_data,
    input  logic         s_port,
    input  logic [31:0]  s_tag,
    // The latest words, the newest first.
    output beat_t [3:0]  b,
    // Set when b[1] is a frame's first word, a cycle before its header is available. `look` is the cell to read.
    output logic         looks,
    output logic [INDEX-1:0] look,
    // The header is available and the frame's first word is three cycles old: the program's verdict is needed.
    output logic         asks,
    output logic [12:5][63:0] h,
    output logic         raw,
    // The verdict if the frame ends well.
    output logic [7:0]   early,
    output logic         of_owner,
    // The source is the address of a single station.
    output logic         single,
    // Sums: origin and its boot, counter, the last word of the header; the first five lanes of the IP header.
    output logic [17:0]  sum10,
    output logic [17:0]  sum11,
    output logic [17:0]  sum12,
    output logic [18:0]  sum_ip,
    // The frame's last word is available: its verdict, and the value's room.
    output logic         ends,
    output logic [7:0]   verdict,
    output logic [ROOM/8-1:0][63:0] room
);
    localparam int WORDS = ROOM / 8;
    // Position of the last byte.
    localparam int UDP_LAST = (103 + ROOM) / 64, RAW_LAST = (79 + ROOM) / 64;
    localparam int UDP_BYTES = (103 + ROOM) % 64 + 1, RAW_BYTES = (79 + ROOM) % 64 + 1;

    // ---- The words, and the sums of each eight bytes.

    // The current frame is being ignored.
    logic deaf, hears, cut;
    logic [4:0] at;
    logic [7:0][63:0] now, first, second;
    logic [7:0][17:0] sums;
    logic [17:0] sum7;
    logic raw_first;
    // Pairwise sums have adders of their own: from long sums, synthesis makes circuits of twice the area.
    (* keep *) logic [7:0][16:0] upper, lower;
    always_comb begin
        hears = s_valid && ready && !deaf;
        // [offload-16] A gap ends a frame as invalid: its beginning would leave before its route is known.
        cut = !s_valid && at != 0;
        for (int i = 0; i < 8; i++) begin
            now[i] = b[0].data[511-64*i -: 64];
            first[i] = b[1].data[511-64*i -: 64];
        end
        second = now;
        for (int i = 0; i < 8; i++) begin
            upper[i] = {1'b0, i == 3 && b[0].at == 0 ? 16'd0 : now[i][63:48]} + {1'b0, now[i][47:32]};
            lower[i] = {1'b0, now[i][31:16]} + {1'b0, now[i][15:0]};
        end
    end

    always_ff @(posedge clk) begin
        b <= {b[2:0], beat_t'({hears || cut, s_last || cut, cut, cut ? 7'd64 : s_bytes, s_data,
            cut ? b[0].port : s_port, cut ? b[0].tag : s_tag, at})};
        if (s_valid) deaf <= (!ready || deaf) && !s_last;
        else if (cut) deaf <= 1;
        if (cut) at <= 0;
        else if (hears) at <= s_last ? 0 : (at == 31 ? 31 : at + 1);

        for (int i = 0; i < 8; i++) begin
            sums[i] <= {1'b0, upper[i]} + {1'b0, lower[i]};
            // The last word must end with the room, or the frame is invalid.
            if (b[0].last && i >= (raw_first ? RAW_BYTES : UDP_BYTES) / 8) sums[i] <= 0;
        end
        sum7 <= sums[7];
        if (b[0].valid && b[0].at == 0) raw_first <= now[1][31:16] == 16'h88b6;
        if (rst) begin
            at <= 0;
            deaf <= 0;
            for (int i = 0; i < 4; i++) b[i].valid <= 0;
        end
    end

    // ---- Two words: type and form of the frame, in the order of the rules.

    logic [12:5][63:0] header;
    logic is_udp, ended, lengths, takes, plain, carried, has_value, owned;
    logic [3:0] what, position;
    logic [7:0] bytes, framing, class_of;
    logic settled;
    always_comb begin
        for (int i = 5; i <= 12; i++) begin
            if (raw_first) header[i] = i < 11 ? first[i - 3] : second[i - 11];
            else header[i] = i < 8 ? first[i] : second[i - 8];
        end
        looks = b[1].valid && b[1].at == 0;
        look = header[6][INDEX-1:0];
        is_udp = first[1][31:16] == 16'h0800;
        what = header[5][39:36];
        position = header[5][35:32];

        ended = b[1].last || b[0].last;
        bytes = !ended ? 8'hff : {1'b0, b[1].last ? b[1].bytes : b[0].bytes} + (b[1].last ? 8'd0 : 8'd64);
        if (raw_first) lengths = first[1][15:0] == 16'(62 + ROOM);
        else lengths = first[2][63:48] == 16'(90 + ROOM) && first[4][15:0] == 16'(70 + ROOM);
        owned = what == TICK || what == READ || what == ARM || what == FLOOR || what == FENCE || what == ASK
            || what == BOOT;
        if (COORDINATOR) takes = what == SUBMIT || what == PHASE2B || what == TICK || (owned && header[9][35]);
        else takes = what == PHASE1A || what == PHASE2A || (owned && what != TICK && !header[9][35]);
        // Unknown flags, a reason, and fields without a meaning in this type of frame.
        plain = (header[9][47:32] & 16'hfff4) == 0 && header[9][55:48] == 0
            && (position == 0 || what == ARM || what == PHASE2B)
            && !(what == SUBMIT && (header[6] != 0 || header[7] != 0 || header[8] != 0))
            && !(what == PHASE2A && header[8] != 0) && !(what == PHASE2B && header[8] != header[7]);
        has_value = what == SUBMIT || what == PHASE2A || what == PHASE2B;
        carried = header[9][63:56] == 1 || header[9][63:56] == 2 || header[9][63:56] == 4 || header[9][63:56] == 5
            || header[9][63:56] == 6 || header[9][63:56] == 8;

        framing = WELL;
        if (bytes < 14) framing = WHY_LENGTH;
        else if (first[1][31:16] == 16'h8100 || first[1][31:16] == 16'h88a8) framing = WHY_VLAN;
        else if (!raw_first && !is_udp) framing = WHY_FOREIGN;
        else if (is_udp && bytes < 34) framing = WHY_LENGTH;
        else if (is_udp && first[1][15:12] == 4 && first[1][11:8] > 5) framing = WHY_OPTIONS;
        else if (is_udp && first[1][15:8] != 8'h45) framing = WHY_FOREIGN;
        else if (is_udp && first[2][7:0] != 17) framing = WHY_FOREIGN;
        else if (is_udp && (first[2][31:16] & 16'hbfff) != 0) framing = WHY_FRAGMENT;
        else if (is_udp && bytes < 42) framing = WHY_LENGTH;
        else if (is_udp && first[4][31:16] != UDP_PORT) framing = WHY_FOREIGN;
        else if (bytes < (raw_first ? 8'd80 : 8'd104)) framing = WHY_LENGTH;
        else if (header[5][47:40] != MAGIC) framing = WHY_FOREIGN;
        else if (header[5][31:0] != GROUP) framing = WHY_GROUP;
        else if (first[0][63:16] != OWN_MAC && first[0][63:16] != HEARD_MAC) framing = WHY_ELSEWHERE;
        else if (!lengths) framing = WHY_LENGTH;
    end

    // Sums over the IP header: its constant part, the lane with checksum and protocol, all of it.
    (* keep *) logic [18:0] ip_stays;
    (* keep *) logic [16:0] ip_rest;
    (* keep *) logic [18:0] ip_addresses;
    always_comb begin
        ip_stays = {3'd0, first[1][15:0]} + {1'b0, sums[2]};
        ip_rest = {1'b0, first[3][63:48]} + {1'b0, first[4][63:48]};
        ip_addresses = {1'b0, sums[3]} + {2'd0, ip_rest};
    end

    logic [19:0] ip_all;
    logic checked;
    always_ff @(posedge clk) begin
        asks <= looks;
        if (looks) begin
            h <= header;
            raw <= raw_first;
            of_owner <= owned;
            single <= !first[0][8] && (raw_first || (first[3][47:40] != 0 && first[3][47:40] < 224));
            settled <= framing != WELL;
            ip_all <= {1'b0, ip_stays} + {1'b0, ip_addresses};
            checked <= header[5][63:48] != 0;
            sum_ip <= ip_stays;
            if (framing != WELL) class_of <= framing;
            else if (!takes) class_of <= WHY_OTHER;
            else if (!b[1].port && owned) class_of <= WHY_PORT;
            else if (!plain) class_of <= WHY_RESERVED;
            else if (has_value && (!carried || header[12][63:48] > 16'(ROOM))) class_of <= WHY_VALUE;
            else class_of <= WELL;
        end
        if (rst) asks <= 0;
    end

    always_comb begin
        early = class_of;
        sum10 = raw ? sum7 : sums[2];
        sum11 = raw ? sums[0] : sums[3];
        sum12 = raw ? sums[1] : sums[4];
    end

    // ---- Sums over the whole frame: up to the room, and over the room.

    // The first word counts from the end of the IP checksum, or of the length of a raw frame, whose slot has a lane
    // where that checksum is.
    logic [17:0] own2;
    (* keep *) logic [18:0] low, middle2, high2;
    (* keep *) logic [19:0] middle, high;
    // Sums of 20 lanes, and of 39.
    (* keep *) logic [20:0] before_room;
    (* keep *) logic [20:0] of_room, room2;
    logic [21:0] sum_before;
    logic [25:0] sum_room;
    always_comb begin
        own2 = b[1].at == 0 && !raw_first ? 18'd0 : sums[2];
        low = {1'b0, sums[0]} + {1'b0, sums[1]};
        middle2 = {1'b0, own2} + {1'b0, sums[3]};
        middle = {1'b0, middle2} + {2'd0, sums[4]};
        high2 = {1'b0, sums[5]} + {1'b0, sums[6]};
        high = {1'b0, high2} + {2'd0, sums[7]};
        before_room = {1'b0, b[1].at != 0 && raw_first ? 20'd0 : middle} + {1'b0, b[1].at == 0 ? high : {1'b0, low}};
        room2 = {1'b0, b[1].at > 1 || raw_first ? middle : 20'd0} + {2'd0, b[1].at > 1 ? low : 19'd0};
        of_room = {1'b0, high} + room2;
    end

    always_ff @(posedge clk) begin
        if (b[1].valid) begin
            if (b[1].at == 0) sum_before <= {1'b0, before_room};
            else if (b[1].at == 1) sum_before <= sum_before + {1'b0, before_room};
            sum_room <= (b[1].at < 2 ? 26'd0 : sum_room) + {5'd0, of_room};
        end
        // After the header, or in its word.
        for (int i = 0; i < WORDS; i++) begin
            if (b[0].valid && raw_first && int'(b[0].at) == (i + 10) / 8) room[i] <= now[(i+10)%8];
            if (b[0].valid && !raw_first && int'(b[0].at) == (i + 13) / 8) room[i] <= now[(i+13)%8];
        end
    end

    // ---- The end.

    logic whole, well;
    always_comb begin
        ends = b[2].valid && b[2].last;
        whole = raw ? int'(b[2].at) == RAW_LAST && int'(b[2].bytes) == RAW_BYTES
            : int'(b[2].at) == UDP_LAST && int'(b[2].bytes) == UDP_BYTES;
        // The room's sum stands for the room's bytes.
        well = fold({6'd0, sum_room}) == h[12][47:32] && checked && (raw
            ? fold({10'd0, sum_before} + 32'(62 + ROOM) + {16'd0, h[6][63:48]} + {16'd0, h[12][47:32]}) == 16'hffff
            : fold({12'd0, ip_all}) == 16'hffff
            && fold({10'd0, sum_before} + 32'(17 + 70 + ROOM) + {16'd0, h[12][47:32]}) == 16'hffff);
        verdict = class_of;
        if (b[2].cut) verdict = WHY_LENGTH;
        else if (settled) verdict = class_of;
        else if (!whole) verdict = WHY_LENGTH;
        else if (!well) verdict = WHY_CHECKSUM;
    end
endmodule
