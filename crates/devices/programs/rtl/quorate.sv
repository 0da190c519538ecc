// What all cores share: a word on its way, the way of a frame, numbers of types and reasons, one's-complement sums.
package quorate;
    localparam logic [7:0] MAGIC = 8'hb1;
    // Words from the first one in to the first one out, but for the register at the end, on a bus of 64 bits.
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

    // A word of a frame.
    typedef struct packed {
        logic        valid;
        logic        last;
        // In place of a word that did not come in time: the frame is none, and this is its end.
        logic        cut;
        logic [3:0]  bytes;
        logic [63:0] data;
        logic        port;
        logic [31:0] tag;
        // Which word of its frame, up to 255; the longest room ends in word 188.
        logic [7:0]  at;
        // Tells a frame from those beside it.
        logic        frame;
    } word_t;

    // A word of a frame on a bus of 512 bits.
    typedef struct packed {
        logic         valid;
        logic         last;
        logic         cut;
        logic [6:0]   bytes;
        logic [511:0] data;
        logic         port;
        logic [31:0]  tag;
        // Which word of its frame, up to 31; the longest room ends in word 23.
        logic [4:0]   at;
    } beat_t;

    // What is made of a frame on a bus of 512 bits: it is there three cycles behind its first word, and not for longer
    // than its last one takes to leave. What is not said here leaves as it came.
    typedef struct packed {
        // Rewritten; else it goes as it came.
        logic        answers;
        // Network, owner.
        logic [1:0]  to;
        // To its sender: the same address on either port.
        logic        back;
        // By the second route.
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
        // The value of the cell, or nothing if it holds none.
        logic        shows;
        logic        held;
        // The answer of control.
        logic        done;
        // With this number in place of the counter.
        logic        counts;
        logic [63:0] counter;
        // Sum over the kind of value and all that stands behind the boot, the room too.
        logic [19:0] sum;
        // Checksums of IP.
        logic [15:0] check0;
        logic [15:0] check1;
    } plan_t;

    // Where a frame goes, on a bus of 64 bits.
    typedef struct packed {
        // Rewritten; else it goes as it came.
        logic        answers;
        // Network, owner.
        logic [1:0]  to;
        // To its sender: the same address on either port.
        logic        back;
        logic        raw;
        logic        bad;
        logic [47:0] mac;
        logic [31:0] ip;
        logic [15:0] port;
        logic [15:0] check0;
        logic [15:0] check1;
    } way_t;

    // Of a value, what stands behind the boot; and its kind.
    typedef struct packed {
        logic [7:0]  kind;
        logic [31:0] origin;
        logic [31:0] origin_boot;
        logic [63:0] counter;
        logic [15:0] length;
        logic [15:0] sum;
        logic [31:0] crc;
    } value_t;

    // What a cell holds, but for the value's bytes and votes that were counted.
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
