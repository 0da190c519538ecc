// What leaves on a bus of 512 bits: words of a frame four cycles old, with what its plan and its cell say in their places.
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
    input  beat_t        leaving,
    input  plan_t        plan,
    // At a frame's last word: nothing of it may count.
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
    // What all answers have in their sums: the pseudo header, whose length is there twice, magic and group.
    localparam logic [31:0] FIXED = 32'd17 + 32'(2 * (70 + ROOM)) + {16'd0, UDP_PORT} + halves(OWN_IP)
        + {16'd0, MAGIC, 8'd0} + halves(GROUP);

    function automatic logic [15:0] udp_check(input logic [31:0] sum);
        logic [15:0] check;
        check = ~fold(sum);
        // Zero would mean none.
        return check == 0 ? 16'hffff : check;
    endfunction

    // ---- Addresses and checksums, of the first word.

    logic [7:0][63:0] came;
    logic [47:0] mac;
    logic [31:0] ip;
    logic [15:0] port, sum0, sum1;
    logic [31:0] header;
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
        header = FIXED + {24'd0, plan.kind, plan.position} + lanes(plan.slot) + lanes(plan.ballot) + lanes(plan.voted)
            + {24'd0, plan.reason} + {28'd0, plan.flags} + halves(plan.boot) + {12'd0, plan.sum};
        sum0 = udp_check(header + halves(ip) + {16'd0, port});
        sum1 = plan.back ? sum0 : udp_check(header + halves(OWNER_IP) + {16'd0, UDP_PORT});
    end

    // ---- The header: words 5 to 12 of a frame of UDP, three earlier in a raw one.

    // As they came, from where they come in this word.
    function automatic logic [63:0] made(input int word, input logic [63:0] as_it_came);
        logic [63:0] to;
        to = as_it_came;
        case (word)
            5: to[39:32] = {plan.kind, plan.position};
            6: to = plan.slot;
            7: to = plan.ballot;
            8: to = plan.voted;
            9: begin
                if (plan.shows) to[63:56] = plan.held ? held.kind : 8'd0;
                else if (plan.done) to[63:56] = 0;
                to[55:0] = {plan.reason, 12'd0, plan.flags, plan.boot};
            end
            10: if (plan.shows) to = plan.held ? {held.origin, held.origin_boot} : 64'd0;
            11: begin
                if (plan.shows) to = plan.held ? held.counter : 64'd0;
                else if (plan.counts) to = plan.counter;
            end
            12: begin
                if (plan.shows) to = plan.held ? {held.length, held.sum, held.crc} : 64'd0;
                else if (plan.done) to = {16'(ROOM), as_it_came[47:32], 32'(CELLS)};
            end
            default: ;
        endcase
        return to;
    endfunction

    logic [7:0][63:0] data0, data1;
    int of_room;
    always_comb begin
        of_room = 8 * int'(leaving.at) - (plan.raw ? 10 : 13);
        data0 = came;
        data1 = came;
        if (plan.answers && leaving.at == 0) begin
            if (plan.raw) begin
                for (int i = 2; i < 8; i++) data0[i] = made(i + 3, came[i]);
            end else begin
                for (int i = 5; i < 8; i++) data0[i] = made(i, came[i]);
            end
            data1 = data0;
            data0[0] = {mac, OWN_MAC[47:32]};
            data1[0] = {plan.back ? mac : OWNER_MAC, OWN_MAC[47:32]};
            data0[1][63:32] = OWN_MAC[31:0];
            data1[1][63:32] = OWN_MAC[31:0];
            if (!plan.raw) begin
                data0[3] = {plan.check0, OWN_IP, ip[31:16]};
                data1[3] = {plan.check1, OWN_IP, plan.back ? ip[31:16] : OWNER_IP[31:16]};
                data0[4][63:16] = {ip[15:0], UDP_PORT, port};
                data1[4][63:16] = plan.back ? {ip[15:0], UDP_PORT, port} : {OWNER_IP[15:0], UDP_PORT, UDP_PORT};
                data0[5][63:48] = sum0;
                data1[5][63:48] = sum1;
            end
        end else if (plan.answers) begin
            for (int i = 0; i < 8; i++) begin
                // Of the room.
                if (of_room + i >= 0 && of_room + i < WORDS) begin
                    if (plan.shows) data0[i] = plan.held ? held_room[of_room + i] : 64'd0;
                end else if (leaving.at == 1) begin
                    if (plan.raw && i < 2) data0[i] = made(i + 11, came[i]);
                    if (!plan.raw && i < 5) data0[i] = made(i + 8, came[i]);
                end
            end
            data1 = data0;
        end
    end

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
