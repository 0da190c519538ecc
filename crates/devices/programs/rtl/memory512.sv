// A memory of the cores for a bus of 512 bits: a word is read and one is written in each cycle.
//
// What is written in the cycle in which it is read is read as it was, or as it will be: who asks must not care.
module memory512 #(
    parameter int WIDTH = 1,
    parameter int INDEX = 6,
    // A memory of its own for each bit. To look at it is the same; deep memories take fewer multiplexers so.
    parameter bit COLUMNS = 0
) (
    input  logic             clk,
    input  logic             reads,
    input  logic [INDEX-1:0] read_at,
    output logic [WIDTH-1:0] word,
    input  logic             writes,
    input  logic [INDEX-1:0] write_at,
    input  logic [WIDTH-1:0] to
);
    localparam int EACH = COLUMNS ? 1 : WIDTH;

    for (genvar i = 0; i < WIDTH / EACH; i++) begin : column
        (* no_rw_check *) logic [EACH-1:0] words[1 << INDEX];
        always_ff @(posedge clk) begin
            if (reads) word[EACH*i +: EACH] <= words[read_at];
            if (writes) words[write_at] <= to[EACH*i +: EACH];
        end
    end
endmodule
