// Definitions shared by all cores: words in flight, routes of frames, numbers of types and reasons, one's-complement
// sums.
package quorate;
    localparam logic [7:0] MAGIC = 8'hb1;
    // Delay in words from input to output on a 64-bit bus, without the output register.
    localparam int DELAY = 10;

    // Types.
    localparam logic [3:0] SUBMIT = 0, PHASE1A = 1, PHASE1B = 2, PHASE2A = 3, PHASE2B = 4, DECIDED = 5, REFUSED = 6,
        TICK = 7, READ = 8, CELL = 9, ARM = 10, FLOOR = 11, FENCE = 12, ASK = 13, DONE = 14, BOOT = 15;
    // Reasons.
    localparam logic [7:0] WELL = 0, WHY_FOREIGN = 1, WHY_VLAN = 2, WHY_OPTIONS = 3, WHY_FRAGMENT = 4, WHY_GROUP = 5,
        WHY_ELSEWHERE = 6, WHY_OTHER = 7, WHY_LENGTH = 8, WHY_CHECKSUM = 9, WHY_RESERVED = 10, WHY_VALUE = 11,
        WHY_PORT = 12, WHY_SOURCE = 13, WHY_STALE = 14, WHY_CONFLICT = 15, WHY_BUSY = 17, WHY_FULL = 18,
        WHY_DISARMED = 19, WHY_BOOT = 20, WHY_ORDER = 21, WHY_ARMED = 22, WHY_BALLOT = 23, WHY_FLOOR = 24,
        WHY_RANGE = 25;

    // Word of a frame.
    typedef struct packed {
        logic        valid;
        logic        last;
        // Replaces a word that did not arrive in time: it ends the frame, which is invalid.
        logic        cut;
        logic [3:0]  bytes;
        logic [63:0] data;
        logic        port;
        logic [31:0] tag;
        // Index of the word in its frame, up to 255; the longest room ends in word 188.
        logic [7:0]  at;
        // Distinguishes adjacent frames.
        logic        frame;
    } word_t;

    // Word of a frame on a 512-bit bus.
    typedef struct packed {
        logic         valid;
        logic         last;
        logic         cut;
        logic [6:0]   bytes;
        logic [511:0] data;
        logic         port;
        logic [31:0]  tag;
        // Index of the word in its frame, up to 31; the longest room ends in word 23.
        logic [4:0]   at;
    } beat_t;

    // Rewriting plan of a frame on a 512-bit bus. It is valid from three cycles after the frame's first word until its
    // last word has left. Fields that it does not mention leave unchanged.
    typedef struct packed {
        // Rewrite the frame; otherwise it leaves unchanged.
        logic        answers;
        // Output ports: network, owner.
        logic [1:0]  to;
        // Return to the sender, whose address is the same on either port.
        logic        back;
        // Take the second route.
        logic        second;
        logic        raw;
        logic [3:0]  kind;
        logic [3:0]  position;
        logic [63:0] slot;
        logic [63:0] ballot;
        logic [63:0] voted;
        logic [7:0]  reason;
        logic [3:0]  flags;
        logic [31:0] boot;
        // Insert the cell's value, or zeros if it holds none.
        logic        shows;
        logic        held;
        // The frame is an answer to a control call.
        logic        done;
        // Replace the counter by this number.
        logic        counts;
        logic [63:0] counter;
        // Sum over the kind of value and everything after the boot, including the room.
        logic [19:0] sum;
        // IP checksums.
        logic [15:0] check0;
        logic [15:0] check1;
    } plan_t;

    // Route of a frame on a 64-bit bus.
    typedef struct packed {
        // Rewrite the frame; otherwise it leaves unchanged.
        logic        answers;
        // Output ports: network, owner.
        logic [1:0]  to;
        // Return to the sender, whose address is the same on either port.
        logic        back;
        logic        raw;
        logic        bad;
        logic [47:0] mac;
        logic [31:0] ip;
        logic [15:0] port;
        logic [15:0] check0;
        logic [15:0] check1;
    } way_t;

    // Fields of a value that follow the boot, and its kind.
    typedef struct packed {
        logic [7:0]  kind;
        logic [31:0] origin;
        logic [31:0] origin_boot;
        logic [63:0] counter;
        logic [15:0] length;
        logic [15:0] sum;
        logic [31:0] crc;
    } value_t;

    // Contents of a cell, without the value's bytes and the votes counted.
    typedef struct packed {
        logic [63:0] ballot;
        logic [63:0] slot;
        logic [7:0]  kind;
        logic [31:0] origin;
        logic [31:0] origin_boot;
        logic [63:0] counter;
        logic [15:0] length;
        logic [15:0] sum;
        logic [31:0] crc;
    } cell_t;

    function automatic logic [15:0] fold(input logic [31:0] wide);
        logic [31:0] once;
        once = {16'd0, wide[31:16]} + {16'd0, wide[15:0]};
        return once[31:16] + once[15:0];
    endfunction

    function automatic logic [31:0] lanes(input logic [63:0] word);
        return {16'd0, word[63:48]} + {16'd0, word[47:32]} + {16'd0, word[31:16]} + {16'd0, word[15:0]};
    endfunction

    function automatic logic [31:0] halves(input logic [31:0] word);
        return {16'd0, word[31:16]} + {16'd0, word[15:0]};
    endfunction
endpackage
