// Output stage for a 512-bit bus: words of a frame four cycles old, with the contents of its plan and its cell
// inserted.
module leave512
    import quorate::*;
#(
    parameter int ROOM = 32,
    parameter int CELLS = 64,
    parameter logic [31:0] GROUP = 0,
    parameter logic [15:0] UDP_PORT = 0,
    parameter logic [47:0] OWN_MAC = 0,
    parameter logic [31:0] OWN_IP = 0,
    parameter logic [47:0] OWNER_MAC = 0,
    parameter logic [31:0] OWNER_IP = 0,
    parameter logic [47:0] FIRST_MAC = 0,
    parameter logic [31:0] FIRST_IP = 0,
    parameter logic [47:0] SECOND_MAC = 0,
    parameter logic [31:0] SECOND_IP = 0
) (
    input  logic         clk,
    input  logic         rst,
    // The next word to leave and the word that leaves now, with their plans.
    input  beat_t        comes,
    input  plan_t        coming,
    input  beat_t        leaving,
    input  plan_t        plan,
    // Set at a frame's last word: the frame must be discarded.
    input  logic         bad,
    input  value_t       held,
    input  logic [ROOM/8-1:0][63:0] held_room,
    output logic [1:0]   m_valid,
    output logic         m_last,
    output logic         m_abort,
    output logic [6:0]   m_bytes,
    output logic [511:0] m_data0,
    output logic [511:0] m_data1,
    output logic [31:0]  m_tag
);
    localparam int WORDS = ROOM / 8;
    // Constant part of all checksums: the pseudo header, which repeats the length, magic and group.
    localparam logic [31:0] FIXED = 32'd17 + 32'(2 * (70 + ROOM)) + {16'd0, UDP_PORT} + halves(OWN_IP)
        + {16'd0, MAGIC, 8'd0} + halves(GROUP);
    // Constant part of the checksums of raw frames, which have the length once.
    localparam logic [31:0] FIXED_RAW = 32'(62 + ROOM) + {16'd0, MAGIC, 8'd0} + halves(GROUP);

    function automatic logic [15:0] udp_check(input logic [31:0] sum);
        logic [15:0] check;
        check = ~fold(sum);
        // A checksum of zero would mean that there is none.
        return check == 0 ? 16'hffff : check;
    endfunction

    // ---- Addresses and checksums, in the first word.

    logic [7:0][63:0] came;
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port, sum0, sum1;
    // Pairwise sums have adders of their own: from long sums, synthesis makes circuits of twice the area.
    (* keep *) logic [7:0][16:0] two;
    (* keep *) logic [3:0][17:0] four;
    (* keep *) logic [1:0][18:0] eight;
    (* keep *) logic [19:0] sixteen;
    (* keep *) logic [17:0] to_first;
    (* keep *) logic [20:0] header, value;
    always_comb begin
        for (int i = 0; i < 8; i++) came[i] = leaving.data[511-64*i -: 64];
        mac = plan.second ? SECOND_MAC : FIRST_MAC;
        ip = plan.second ? SECOND_IP : FIRST_IP;
        port = UDP_PORT;
        if (plan.back) begin
            mac = {came[0][15:0], came[1][63:32]};
            ip = came[3][47:16];
            port = came[4][47:32];
        end
        two[0] = {1'b0, plan.slot[63:48]} + {1'b0, plan.slot[47:32]};
        two[1] = {1'b0, plan.slot[31:16]} + {1'b0, plan.slot[15:0]};
        two[2] = {1'b0, plan.ballot[63:48]} + {1'b0, plan.ballot[47:32]};
        two[3] = {1'b0, plan.ballot[31:16]} + {1'b0, plan.ballot[15:0]};
        two[4] = {1'b0, plan.voted[63:48]} + {1'b0, plan.voted[47:32]};
        two[5] = {1'b0, plan.voted[31:16]} + {1'b0, plan.voted[15:0]};
        two[6] = {1'b0, plan.boot[31:16]} + {1'b0, plan.boot[15:0]};
        two[7] = {9'd0, plan.kind, plan.position} + {9'd0, plan.reason};
        for (int i = 0; i < 4; i++) four[i] = {1'b0, two[2*i]} + {1'b0, two[2*i+1]};
        for (int i = 0; i < 2; i++) eight[i] = {1'b0, four[2*i]} + {1'b0, four[2*i+1]};
        sixteen = {1'b0, eight[0]} + {1'b0, eight[1]};
        value = {1'b0, plan.sum} + {5'd0, plan.raw ? fold(FIXED_RAW) : fold(FIXED)} + {17'd0, plan.flags};
        header = {1'b0, sixteen} + value;
        to_first = plan.raw ? 18'd0 : 18'(halves(ip)) + {2'd0, port};
        sum0 = udp_check({11'd0, header} + {14'd0, to_first});
        sum1 = plan.back ? sum0 : udp_check({11'd0, header} + halves(OWNER_IP) + {16'd0, UDP_PORT});
    end

    // ---- Source of each outgoing word, known a cycle earlier.
    //
    // The header is words 5 to 12 of a UDP frame, three earlier in a raw one; the room follows it.

    localparam logic [2:0] CAME = 0, UDP0 = 1, RAW0 = 2, UDP1 = 3, RAW1 = 4, STORED = 5, NOTHING = 6, SPECIAL = 7;

    plan_t p;
    logic [7:0][2:0] from, source;
    // For words that begin with the kind of value: as long as that field.
    logic [2:0] from1, source1, from6, source6;
    int room_next, room_now;
    always_comb begin
        p = comes.at == 0 ? coming : plan;
        room_next = 8 * int'(comes.at) - (p.raw ? 10 : 13);
        for (int i = 0; i < 8; i++) begin
            from[i] = CAME;
            if (comes.at == 0) from[i] = p.raw ? RAW0 : UDP0;
            else if (room_next + i >= 0 && room_next + i < WORDS) from[i] = shown(STORED);
            else if (comes.at == 1 && i < 2 && p.raw) from[i] = RAW1;
            else if (comes.at == 1 && i < 5 && !p.raw) from[i] = UDP1;
        end
        from1 = from[1];
        from6 = from[6];
        if (from[1] == UDP1) from1 = kind_shown(UDP1);
        if (from[6] == RAW0) from6 = kind_shown(RAW0);
        // Origin, counter, the last word of the header.
        if (from[7] == RAW0) from[7] = shown(RAW0);
        if (from[0] == RAW1) from[0] = p.counts ? SPECIAL : shown(RAW1);
        if (from[1] == RAW1) from[1] = p.done ? SPECIAL : shown(RAW1);
        if (from1 == RAW1) from1 = from[1];
        if (from[2] == UDP1) from[2] = shown(UDP1);
        if (from[3] == UDP1) from[3] = p.counts ? SPECIAL : shown(UDP1);
        if (from[4] == UDP1) from[4] = p.done ? SPECIAL : shown(UDP1);
        if (!p.answers) begin
            from = '0;
            from1 = CAME;
            from6 = CAME;
        end
    end

    function automatic logic [2:0] shown(input logic [2:0] where);
        return !p.shows ? CAME : p.held ? where : NOTHING;
    endfunction
    function automatic logic [2:0] kind_shown(input logic [2:0] where);
        return p.done ? NOTHING : shown(where);
    endfunction

    always_ff @(posedge clk) begin
        source <= from;
        source1 <= from1;
        source6 <= from6;
    end

    // ---- The words.

    logic [7:0][63:0] udp0, raw0, udp1, raw1, special, data0, data1;
    logic [63:0] flagged;
    logic is_first;
    always_comb begin
        flagged = {held.kind, plan.reason, 12'd0, plan.flags, plan.boot};
        udp0 = came;
        udp0[0] = {mac, OWN_MAC[47:32]};
        udp0[1] = {OWN_MAC[31:0], came[1][31:0]};
        raw0 = udp0;
        udp0[3] = {plan.check0, OWN_IP, ip[31:16]};
        udp0[4] = {ip[15:0], UDP_PORT, port, came[4][15:0]};
        udp0[5] = {sum0, came[5][47:40], plan.kind, plan.position, came[5][31:0]};
        udp0[6] = plan.slot;
        udp0[7] = plan.ballot;
        raw0[2] = {sum0, came[2][47:40], plan.kind, plan.position, came[2][31:0]};
        raw0[3] = plan.slot;
        raw0[4] = plan.ballot;
        raw0[5] = plan.voted;
        raw0[6] = flagged;
        raw0[7] = {held.origin, held.origin_boot};
        udp1 = '0;
        udp1[0] = plan.voted;
        udp1[1] = flagged;
        udp1[2] = {held.origin, held.origin_boot};
        udp1[3] = held.counter;
        udp1[4] = {held.length, held.sum, held.crc};
        raw1 = '0;
        raw1[0] = held.counter;
        raw1[1] = {held.length, held.sum, held.crc};
        special = '0;
        special[0] = plan.counter;
        special[3] = plan.counter;
        special[1] = {16'(ROOM), came[1][47:32], 32'(CELLS)};
        special[4] = {16'(ROOM), came[4][47:32], 32'(CELLS)};

        room_now = 8 * int'(leaving.at) - (plan.raw ? 10 : 13);
        for (int i = 0; i < 8; i++) data0[i] = taken(source[i], i);
        data0[1][63:56] = top(source1, 1);
        data0[6][63:56] = top(source6, 6);

        is_first = plan.answers && leaving.at == 0;
        data1 = data0;
        if (is_first && !plan.back) begin
            data1[0][63:16] = OWNER_MAC;
            if (!plan.raw) begin
                data1[3] = {plan.check1, OWN_IP, OWNER_IP[31:16]};
                data1[4][63:16] = {OWNER_IP[15:0], UDP_PORT, UDP_PORT};
                data1[5][63:48] = sum1;
            end
        end
    end

    function automatic logic [63:0] taken(input logic [2:0] code, input int i);
        logic [63:0] stored;
        stored = room_now + i >= 0 && room_now + i < WORDS ? held_room[room_now + i] : 64'd0;
        case (code)
            CAME: return came[i];
            UDP0: return udp0[i];
            RAW0: return raw0[i];
            UDP1: return udp1[i];
            RAW1: return raw1[i];
            STORED: return stored;
            NOTHING: return 64'd0;
            default: return special[i];
        endcase
    endfunction
    function automatic logic [7:0] top(input logic [2:0] code, input int i);
        logic [63:0] word;
        word = taken(code, i);
        return word[63:56];
    endfunction

    always_ff @(posedge clk) begin
        m_valid <= leaving.valid ? plan.to : 2'b00;
        m_last <= leaving.last;
        m_abort <= leaving.last && bad;
        m_bytes <= leaving.bytes;
        for (int i = 0; i < 8; i++) begin
            m_data0[511-64*i -: 64] <= data0[i];
            m_data1[511-64*i -: 64] <= data1[i];
        end
        m_tag <= leaving.tag;
        if (rst) m_valid <= 0;
    end
endmodule
