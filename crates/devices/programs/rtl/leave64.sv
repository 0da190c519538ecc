// Output stage: the delayed words of a frame, with the answer's addresses, header, room and checksums inserted.
module leave64
    import quorate::*;
#(
    parameter int ROOM = 32,
    parameter logic [15:0] UDP_PORT = 0,
    parameter logic [47:0] OWN_MAC = 0,
    parameter logic [31:0] OWN_IP = 0,
    parameter logic [47:0] OWNER_MAC = 0,
    parameter logic [31:0] OWNER_IP = 0
) (
    input  logic         clk,
    input  logic         rst,
    input  word_t        now,
    input  word_t        leaving,
    input  logic [4:1][63:0] words,
    input  logic         decides,
    input  logic         finishes,
    input  logic         ends,
    // Without IP checksums, which are computed here.
    input  way_t         decided,
    // Set at the end: the frame must be discarded.
    input  logic         bad,
    input  logic [12:5][63:0] made,
    input  logic [ROOM/8-1:0][63:0] made_room,
    input  logic         shows,
    output logic [1:0]   m_valid,
    output logic         m_last,
    output logic         m_abort,
    output logic [3:0]   m_bytes,
    output logic [63:0]  m_data0,
    output logic [63:0]  m_data1,
    output logic [31:0]  m_tag
);
    localparam logic [7:0] WORDS = 8'(ROOM / 8);

    way_t way, chosen;
    way_t [1:0] ways;
    logic [12:5][63:0] answer;
    logic [ROOM/8-1:0][63:0] shown;
    logic showing, finished, finished_frame;
    logic [15:0] sum0, sum1;
    logic [31:0] ip_fixed, both_fixed, udp_fixed, raw_fixed;

    function automatic logic [15:0] check(input logic [31:0] sum);
        logic [15:0] complement;
        complement = ~fold(sum);
        // A checksum of zero would mean that there is none.
        return complement == 0 ? 16'hffff : complement;
    endfunction
    function automatic logic [15:0] udp_check(input logic [31:0] fixed, input logic [31:0] ip, input logic [15:0] port);
        return check(fixed + halves(ip) + {16'd0, port});
    endfunction

    always_comb begin
        ip_fixed = {16'd0, words[1][15:0]} + lanes(words[2]) + halves(OWN_IP);
        way = decided;
        way.check0 = ~fold(ip_fixed + halves(decided.ip));
        way.check1 = decided.back ? way.check0 : ~fold(ip_fixed + halves(OWNER_IP));
        // The room's sum counts twice: for the room, and as a field.
        both_fixed = {16'd0, answer[12][47:32]};
        for (int i = 5; i <= 12; i++) both_fixed = both_fixed + lanes(answer[i]);
        // The length counts twice, since the pseudo header has it too.
        udp_fixed = both_fixed + 32'd17 + 32'(2 * (70 + ROOM)) + {16'd0, UDP_PORT} + halves(OWN_IP);
        raw_fixed = both_fixed + 32'(62 + ROOM);
    end

    always_ff @(posedge clk) begin
        if (decides) ways[now.frame] <= way;
        if (ends) ways[now.frame].bad <= bad;
        if (finishes) begin
            answer <= made;
            shown <= made_room;
            showing <= shows;
        end
        finished <= finishes;
        finished_frame <= now.frame;
        if (finished) begin
            sum0 <= ways[finished_frame].raw ? check(raw_fixed)
                : udp_check(udp_fixed, ways[finished_frame].ip, ways[finished_frame].port);
            sum1 <= ways[finished_frame].raw ? check(raw_fixed) : ways[finished_frame].back
                ? udp_check(udp_fixed, ways[finished_frame].ip, ways[finished_frame].port)
                : udp_check(udp_fixed, OWNER_IP, UDP_PORT);
        end
    end

    logic [7:0] header_at, room_at;
    logic [63:0] data0, data1;
    always_comb begin
        // The first word of a long frame leaves in the cycle in which its route is found.
        chosen = decides && leaving.at == 0 && now.frame == leaving.frame ? way : ways[leaving.frame];
        header_at = chosen.raw ? leaving.at + 3 : leaving.at;
        // Before the room, this index is beyond the room's end.
        room_at = header_at - 13;
        data0 = leaving.data;
        data1 = leaving.data;
        if (chosen.answers) begin
            case (leaving.at)
                0: begin
                    data0 = {chosen.mac, OWN_MAC[47:32]};
                    data1 = {chosen.back ? chosen.mac : OWNER_MAC, OWN_MAC[47:32]};
                end
                1: begin
                    data0[63:32] = OWN_MAC[31:0];
                    data1[63:32] = OWN_MAC[31:0];
                end
                3: if (!chosen.raw) begin
                    data0 = {chosen.check0, OWN_IP, chosen.ip[31:16]};
                    data1 = {chosen.check1, OWN_IP, chosen.back ? chosen.ip[31:16] : OWNER_IP[31:16]};
                end
                4: if (!chosen.raw) begin
                    data0 = {chosen.ip[15:0], UDP_PORT, chosen.port, leaving.data[15:0]};
                    data1 = {chosen.back ? chosen.ip[15:0] : OWNER_IP[15:0], UDP_PORT,
                             chosen.back ? chosen.port : UDP_PORT, leaving.data[15:0]};
                end
                default: ;
            endcase
            if (header_at >= 5 && header_at <= 12 && leaving.at > 1) begin
                data0 = answer[int'(header_at)];
                data1 = answer[int'(header_at)];
                if (header_at == 5) begin
                    data0[63:48] = sum0;
                    data1[63:48] = sum1;
                end
            end else if (room_at < WORDS && showing) begin
                data0 = shown[int'(room_at)];
                data1 = data0;
            end
        end
    end

    always_ff @(posedge clk) begin
        m_valid <= leaving.valid ? chosen.to : 2'b00;
        m_last <= leaving.last;
        m_abort <= chosen.bad;
        m_bytes <= leaving.bytes;
        m_data0 <= data0;
        m_data1 <= data1;
        m_tag <= leaving.tag;
        if (rst) m_valid <= 0;
    end
endmodule
