// Memory of the cores for a 512-bit bus: one read and one write in each cycle.
//
// A read of the address being written returns the old or the new word; the reader must not depend on which.
module memory512 #(
    parameter int WIDTH = 1,
    parameter int INDEX = 6,
    // Uses a separate memory for each bit. The behaviour is the same, but deep memories need fewer multiplexers.
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
