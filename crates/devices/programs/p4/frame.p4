// Device frames: headers, parser, checks common to all programs, checksums, deparser.
//
// Implements docs/spec/offload.md, sections 3 and 7, in P4_16 for v1model; crates/devices/offload is normative.
// Included by acceptor.p4 and coordinator.p4. A device has two ports: 0 is the network's, 1 its owner's. Multicast
// group 1 must contain both, the network's first.

#ifndef CELLS
#define CELLS 65536
#endif

// The value's room has eight parts (room_t): PART is the bits of a part, and so the bytes of the room. At most 128 on
// the interpreter.
#ifndef PART
#define PART 32
#endif

const bit<16> ROOM = PART;
const bit<16> PAYLOAD = 62 + ROOM;

const bit<16> UDP_PORT = 47100;
const bit<8> MAGIC = 0xb1;
const bit<9> NETWORK = 0;
const bit<9> OWNER = 1;
const bit<16> BOTH = 1;

// Types.
const bit<4> SUBMIT = 0;
const bit<4> PHASE1A = 1;
const bit<4> PHASE1B = 2;
const bit<4> PHASE2A = 3;
const bit<4> PHASE2B = 4;
const bit<4> DECIDED = 5;
const bit<4> REFUSED = 6;
const bit<4> TICK = 7;
const bit<4> READ = 8;
const bit<4> CELL = 9;
const bit<4> ARM = 10;
const bit<4> FLOOR = 11;
const bit<4> FENCE = 12;
const bit<4> ASK = 13;
const bit<4> DONE = 14;
const bit<4> BOOT = 15;

// Flags.
const bit<16> HINT = 1;
const bit<16> REPEAT = 2;
const bit<16> COORDINATOR = 8;
const bit<16> NO_FLAG = 0xfff4;

// Reasons. From WHY_BUSY on, the sender is notified; from WHY_FOREIGN to WHY_OTHER, the frame is forwarded.
const bit<8> WELL = 0;
const bit<8> WHY_FOREIGN = 1;
const bit<8> WHY_VLAN = 2;
const bit<8> WHY_OPTIONS = 3;
const bit<8> WHY_FRAGMENT = 4;
const bit<8> WHY_GROUP = 5;
const bit<8> WHY_ELSEWHERE = 6;
const bit<8> WHY_OTHER = 7;
const bit<8> WHY_LENGTH = 8;
const bit<8> WHY_CHECKSUM = 9;
const bit<8> WHY_RESERVED = 10;
const bit<8> WHY_VALUE = 11;
const bit<8> WHY_PORT = 12;
const bit<8> WHY_SOURCE = 13;
const bit<8> WHY_STALE = 14;
const bit<8> WHY_CONFLICT = 15;
const bit<8> WHY_BUSY = 17;
const bit<8> WHY_FULL = 18;
const bit<8> WHY_DISARMED = 19;
const bit<8> WHY_BOOT = 20;
const bit<8> WHY_ORDER = 21;
const bit<8> WHY_ARMED = 22;
const bit<8> WHY_BALLOT = 23;
const bit<8> WHY_FLOOR = 24;
const bit<8> WHY_RANGE = 25;

// Destinations of a frame.
const bit<3> NOWHERE = 0;
const bit<3> ON = 1;
const bit<3> BACK = 2;
const bit<3> TO_OWNER = 3;
const bit<3> FIRST_ROUTE = 4;
const bit<3> FIRST_ROUTE_AND_OWNER = 5;
const bit<3> SECOND_ROUTE_AND_OWNER = 6;

header ethernet_t {
    bit<48> to;
    bit<48> from;
    bit<16> kind;
}

header ip_t {
    bit<4> version;
    bit<4> words;
    bit<8> service;
    bit<16> length;
    bit<16> identification;
    bit<16> fragment;
    bit<8> time_to_live;
    bit<8> protocol;
    bit<16> checksum;
    bit<32> from;
    bit<32> to;
}

header udp_t {
    bit<16> from;
    bit<16> to;
    bit<16> length;
    bit<16> checksum;
}

header shim_t {
    bit<16> length;
    bit<16> checksum;
}

// The fields needed to decide end with the ballot, at byte 63 of a UDP frame.
header quorate_t {
    bit<8> magic;
    bit<4> what;
    bit<4> position;
    bit<32> group;
    bit<64> slot;
    bit<64> ballot;
    bit<64> voted;
    bit<8> kind;
    bit<8> reason;
    bit<16> flags;
    bit<32> boot;
    bit<32> origin;
    bit<32> origin_boot;
    bit<64> counter;
    bit<16> length;
    bit<16> sum;
    bit<32> crc;
}

header room_t {
    bit<PART> a;
    bit<PART> b;
    bit<PART> c;
    bit<PART> d;
    bit<PART> e;
    bit<PART> f;
    bit<PART> g;
    bit<PART> h;
}

struct headers {
    ethernet_t ethernet;
    ip_t ip;
    udp_t udp;
    shim_t shim;
    quorate_t q;
    room_t room;
}

struct metadata {
    // Reason not to process the frame; WELL if there is none so far.
    bit<8> why;
    bit<3> where;
    // True if the program handles frames of this type.
    bool takes;
    // True if only the owner may send frames of this type.
    bool of_owner;
    // Complement of the room's sum, as checksums use it.
    bit<16> not_sum;
    // A sum over data that includes its own checksum.
    bit<16> zero;
    // Boot of the device.
    bit<32> boot;
    // From the table below.
    bit<48> own_mac;
    bit<32> own_ip;
    bit<48> heard_mac;
    bit<48> owner_mac;
    bit<32> owner_ip;
    bit<16> owner_port;
    bit<48> first_mac;
    bit<32> first_ip;
    bit<16> first_port;
    bit<48> second_mac;
    bit<32> second_ip;
    bit<16> second_port;
}

parser FrameParser(packet_in packet,
                   out headers hdr,
                   inout metadata meta,
                   inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.kind) {
            0x0800: ip;
            0x88b6: shim;
            0x8100: vlan;
            0x88a8: vlan;
            default: foreign;
        }
    }

    state ip {
        packet.extract(hdr.ip);
        transition select(hdr.ip.version, hdr.ip.words) {
            (4, 5): protocol;
            (4, 8 &&& 8): options;
            (4, 6 &&& 14): options;
            default: foreign;
        }
    }

    state protocol {
        transition select(hdr.ip.protocol) {
            17: whole;
            default: foreign;
        }
    }

    // Of the bits before the fragment offset, only "do not fragment" may be set.
    state whole {
        transition select(hdr.ip.fragment) {
            0 &&& 0xbfff: udp;
            default: fragment;
        }
    }

    state udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.to) {
            UDP_PORT: quorate;
            default: foreign;
        }
    }

    state shim {
        packet.extract(hdr.shim);
        transition quorate;
    }

    state quorate {
        packet.extract(hdr.q);
        meta.not_sum = ~hdr.q.sum;
        packet.extract(hdr.room);
        transition accept;
    }

    state foreign {
        meta.why = WHY_FOREIGN;
        transition accept;
    }

    state vlan {
        meta.why = WHY_VLAN;
        transition accept;
    }

    state options {
        meta.why = WHY_OPTIONS;
        transition accept;
    }

    state fragment {
        meta.why = WHY_FRAGMENT;
        transition accept;
    }
}

// A sum that covers its own checksum is zero, in either form that a checksum of zero may take.
control FrameVerify(inout headers hdr, inout metadata meta) {
    apply {
        verify_checksum(hdr.ip.isValid() && hdr.room.isValid(),
            { hdr.ip.version, hdr.ip.words, hdr.ip.service, hdr.ip.length, hdr.ip.identification,
              hdr.ip.fragment, hdr.ip.time_to_live, hdr.ip.protocol, hdr.ip.checksum, hdr.ip.from, hdr.ip.to },
            meta.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.udp.isValid() && hdr.room.isValid(),
            { hdr.ip.from, hdr.ip.to, 8w0, hdr.ip.protocol, hdr.udp.length,
              hdr.udp.from, hdr.udp.to, hdr.udp.length, hdr.udp.checksum,
              hdr.q.magic, hdr.q.what, hdr.q.position, hdr.q.group, hdr.q.slot, hdr.q.ballot, hdr.q.voted,
              hdr.q.kind, hdr.q.reason, hdr.q.flags, hdr.q.boot, hdr.q.origin, hdr.q.origin_boot,
              hdr.q.counter, hdr.q.length, hdr.q.sum, hdr.q.crc,
              hdr.room.a, hdr.room.b, hdr.room.c, hdr.room.d, hdr.room.e, hdr.room.f, hdr.room.g, hdr.room.h },
            meta.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.shim.isValid() && hdr.room.isValid(),
            { hdr.shim.length, hdr.shim.checksum,
              hdr.q.magic, hdr.q.what, hdr.q.position, hdr.q.group, hdr.q.slot, hdr.q.ballot, hdr.q.voted,
              hdr.q.kind, hdr.q.reason, hdr.q.flags, hdr.q.boot, hdr.q.origin, hdr.q.origin_boot,
              hdr.q.counter, hdr.q.length, hdr.q.sum, hdr.q.crc,
              hdr.room.a, hdr.room.b, hdr.room.c, hdr.room.d, hdr.room.e, hdr.room.f, hdr.room.g, hdr.room.h },
            meta.zero, HashAlgorithm.csum16);
        verify_checksum(hdr.room.isValid(),
            { hdr.room.a, hdr.room.b, hdr.room.c, hdr.room.d, hdr.room.e, hdr.room.f, hdr.room.g, hdr.room.h },
            meta.not_sum, HashAlgorithm.csum16);
    }
}

// First checks, up to the checksums: the frame belongs to the group, is addressed to this station, and is intact
// ([offload-16]).
control Whole(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    // Addresses of the device and destinations of its frames, all control values, one entry for each group.
    action set(bit<48> own_mac, bit<32> own_ip, bit<48> heard_mac,
               bit<48> owner_mac, bit<32> owner_ip, bit<16> owner_port,
               bit<48> first_mac, bit<32> first_ip, bit<16> first_port,
               bit<48> second_mac, bit<32> second_ip, bit<16> second_port) {
        meta.own_mac = own_mac;
        meta.own_ip = own_ip;
        meta.heard_mac = heard_mac;
        meta.owner_mac = owner_mac;
        meta.owner_ip = owner_ip;
        meta.owner_port = owner_port;
        meta.first_mac = first_mac;
        meta.first_ip = first_ip;
        meta.first_port = first_port;
        meta.second_mac = second_mac;
        meta.second_ip = second_ip;
        meta.second_port = second_port;
    }

    action another_group() {
        meta.why = WHY_GROUP;
    }

    // Addresses of the conformance vectors: from 02:00:00:00:00:01 and 10.0.0.1 on.
    table setup {
        key = {
            hdr.q.group: exact;
        }
        actions = {
            set;
            another_group;
        }
        const entries = {
            0x0a0b0c0d: set(0x020000000001, 0x0a000001, 0x030000000055,
                            0x020000000002, 0x0a000002, 47100,
                            0x030000000003, 0xef000003, 47100,
                            0x030000000004, 0xef000004, 47100);
        }
        const default_action = another_group();
    }

    apply {
        if (meta.why != WELL) {
            return;
        }
        if (!hdr.q.isValid()) {
            meta.why = WHY_LENGTH;
            return;
        }
        if (hdr.q.magic != MAGIC) {
            meta.why = WHY_FOREIGN;
            return;
        }
        setup.apply();
        if (meta.why != WELL) {
            return;
        }
        if (hdr.ethernet.to != meta.own_mac && hdr.ethernet.to != meta.heard_mac) {
            meta.why = WHY_ELSEWHERE;
            return;
        }
        if (!hdr.room.isValid()) {
            meta.why = WHY_LENGTH;
            return;
        }
        if (hdr.udp.isValid()) {
            if (standard_metadata.packet_length != (bit<32>)(42 + PAYLOAD)
                || hdr.ip.length != 28 + PAYLOAD || hdr.udp.length != 8 + PAYLOAD) {
                meta.why = WHY_LENGTH;
            } else if (hdr.udp.checksum == 0) {
                meta.why = WHY_CHECKSUM;
            }
        } else {
            if (standard_metadata.packet_length != (bit<32>)(18 + PAYLOAD) || hdr.shim.length != PAYLOAD) {
                meta.why = WHY_LENGTH;
            } else if (hdr.shim.checksum == 0) {
                meta.why = WHY_CHECKSUM;
            }
        }
        if (meta.why == WELL && standard_metadata.checksum_error == 1) {
            meta.why = WHY_CHECKSUM;
        }
    }
}

// Remaining checks, up to the contents: the sender may send this type, and all fields have legal values.
control Plain(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    apply {
        bit<4> what = hdr.q.what;
        meta.of_owner = what == TICK || what == READ || what == ARM || what == FLOOR || what == FENCE
            || what == ASK || what == BOOT;
        bool has_value = what == SUBMIT || what == PHASE2A || what == PHASE2B;
        if (!meta.takes) {
            meta.why = WHY_OTHER;
        } else if (standard_metadata.ingress_port == NETWORK && meta.of_owner) {
            meta.why = WHY_PORT;
        } else if ((hdr.q.flags & NO_FLAG) != 0 || hdr.q.reason != 0) {
            meta.why = WHY_RESERVED;
        } else if (hdr.q.position != 0 && what != PHASE2B && what != ARM) {
            meta.why = WHY_RESERVED;
        } else if (what == SUBMIT && (hdr.q.slot != 0 || hdr.q.ballot != 0 || hdr.q.voted != 0)) {
            meta.why = WHY_RESERVED;
        } else if (what == PHASE2A && hdr.q.voted != 0) {
            meta.why = WHY_RESERVED;
        } else if (what == PHASE2B && hdr.q.voted != hdr.q.ballot) {
            meta.why = WHY_RESERVED;
        } else if (has_value && (hdr.q.length > ROOM || hdr.q.kind == 0 || hdr.q.kind == 3
                                 || hdr.q.kind == 7 || hdr.q.kind > 8)) {
            meta.why = WHY_VALUE;
        }
    }
}

// [offload-17] Accepts control calls only for this boot of the device and in increasing order.
control Order(inout headers hdr, inout metadata meta) {
    register<bit<32>>(1) device_boot;
    register<bit<32>>(1) owner_boot;
    register<bit<64>>(1) owner_counter;

    apply {
        bit<32> boot;
        device_boot.read(boot, 0);
        if (hdr.q.what == BOOT) {
            if (hdr.q.boot == 0 || (boot != 0 && boot != hdr.q.boot)) {
                meta.why = WHY_BOOT;
            } else {
                boot = hdr.q.boot;
                device_boot.write(0, boot);
            }
        } else if (hdr.q.what == ARM || hdr.q.what == FLOOR || hdr.q.what == FENCE) {
            bit<32> last_boot;
            bit<64> last_counter;
            owner_boot.read(last_boot, 0);
            owner_counter.read(last_counter, 0);
            if (boot == 0 || hdr.q.boot != boot) {
                meta.why = WHY_BOOT;
            } else if (hdr.q.origin_boot < last_boot
                       || (hdr.q.origin_boot == last_boot && hdr.q.counter <= last_counter)) {
                meta.why = WHY_ORDER;
            } else {
                owner_boot.write(0, hdr.q.origin_boot);
                owner_counter.write(0, hdr.q.counter);
            }
        }
        meta.boot = boot;
    }
}

// Ends ingress: counts the frame under its reason, or reports a counter, and selects the frame's destination.
control Finish(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    register<bit<64>>(32) counters;

    apply {
        if (meta.why >= WHY_FOREIGN && meta.why <= WHY_OTHER) {
            meta.where = ON;
        } else if (meta.why >= WHY_BUSY && meta.of_owner) {
            // The owner's address comes from the table, whatever source a call claims.
            meta.where = TO_OWNER;
        } else if (meta.why >= WHY_BUSY) {
            meta.where = BACK;
            // A refusal is sent to a single station or dropped.
            if (hdr.ethernet.from[40:40] == 1
                || (hdr.ip.isValid() && (hdr.ip.from[31:24] == 0 || hdr.ip.from[31:24] >= 224))) {
                meta.why = WHY_SOURCE;
                meta.where = NOWHERE;
            }
        } else if (meta.why != WELL) {
            meta.where = NOWHERE;
        }
        bit<64> count;
        if (meta.why == WELL && hdr.q.what == DONE && hdr.q.reason == 0xff) {
            // The question itself is not counted.
            hdr.q.reason = 0;
            count = 0;
            if (hdr.q.origin < 32) {
                counters.read(count, hdr.q.origin);
            }
            hdr.q.counter = count;
        } else {
            counters.read(count, (bit<32>)meta.why);
            counters.write((bit<32>)meta.why, count + 1);
        }
        if (meta.where == NOWHERE) {
            mark_to_drop(standard_metadata);
        } else if (meta.where == ON) {
            standard_metadata.egress_spec = standard_metadata.ingress_port ^ 1;
        } else if (meta.where == BACK) {
            standard_metadata.egress_spec = standard_metadata.ingress_port;
        } else if (meta.where == TO_OWNER) {
            standard_metadata.egress_spec = OWNER;
        } else if (meta.where == FIRST_ROUTE) {
            standard_metadata.egress_spec = NETWORK;
        } else {
            standard_metadata.mcast_grp = BOTH;
        }
    }
}

// Fills in addresses, from the table except in refusals, and then the checksum of UDP or of the shim, from the header
// and the room's sum.
control FrameEgress(inout headers hdr, inout metadata meta, inout standard_metadata_t standard_metadata) {
    action station(bit<48> mac) {
        hdr.ethernet.to = mac;
        hdr.ethernet.from = meta.own_mac;
    }

    action socket(bit<32> ip, bit<16> port) {
        hdr.ip.to = ip;
        hdr.ip.from = meta.own_ip;
        hdr.udp.to = port;
        hdr.udp.from = UDP_PORT;
    }

    apply {
        if (meta.where == ON) {
            return;
        }
        if (meta.where == BACK) {
            station(hdr.ethernet.from);
        } else if (standard_metadata.egress_port == OWNER) {
            station(meta.owner_mac);
        } else if (meta.where == SECOND_ROUTE_AND_OWNER) {
            station(meta.second_mac);
        } else {
            station(meta.first_mac);
        }
        bit<32> sum = 0;
        if (hdr.udp.isValid()) {
            if (meta.where == BACK) {
                socket(hdr.ip.from, hdr.udp.from);
            } else if (standard_metadata.egress_port == OWNER) {
                socket(meta.owner_ip, meta.owner_port);
            } else if (meta.where == SECOND_ROUTE_AND_OWNER) {
                socket(meta.second_ip, meta.second_port);
            } else {
                socket(meta.first_ip, meta.first_port);
            }
            sum = (bit<32>)hdr.ip.from[31:16] + (bit<32>)hdr.ip.from[15:0]
                + (bit<32>)hdr.ip.to[31:16] + (bit<32>)hdr.ip.to[15:0]
                + (bit<32>)hdr.ip.protocol + (bit<32>)hdr.udp.length
                + (bit<32>)hdr.udp.from + (bit<32>)hdr.udp.to + (bit<32>)hdr.udp.length;
        } else if (hdr.shim.isValid()) {
            sum = (bit<32>)hdr.shim.length;
        }
        if (hdr.q.isValid()) {
            sum = sum + (bit<32>)(hdr.q.magic ++ hdr.q.what ++ hdr.q.position)
                + (bit<32>)hdr.q.group[31:16] + (bit<32>)hdr.q.group[15:0];
            sum = sum + (bit<32>)hdr.q.slot[63:48] + (bit<32>)hdr.q.slot[47:32]
                + (bit<32>)hdr.q.slot[31:16] + (bit<32>)hdr.q.slot[15:0];
            sum = sum + (bit<32>)hdr.q.ballot[63:48] + (bit<32>)hdr.q.ballot[47:32]
                + (bit<32>)hdr.q.ballot[31:16] + (bit<32>)hdr.q.ballot[15:0];
            sum = sum + (bit<32>)hdr.q.voted[63:48] + (bit<32>)hdr.q.voted[47:32]
                + (bit<32>)hdr.q.voted[31:16] + (bit<32>)hdr.q.voted[15:0];
            sum = sum + (bit<32>)(hdr.q.kind ++ hdr.q.reason) + (bit<32>)hdr.q.flags
                + (bit<32>)hdr.q.boot[31:16] + (bit<32>)hdr.q.boot[15:0]
                + (bit<32>)hdr.q.origin[31:16] + (bit<32>)hdr.q.origin[15:0]
                + (bit<32>)hdr.q.origin_boot[31:16] + (bit<32>)hdr.q.origin_boot[15:0];
            sum = sum + (bit<32>)hdr.q.counter[63:48] + (bit<32>)hdr.q.counter[47:32]
                + (bit<32>)hdr.q.counter[31:16] + (bit<32>)hdr.q.counter[15:0];
            sum = sum + (bit<32>)hdr.q.length + (bit<32>)hdr.q.sum + (bit<32>)hdr.q.sum
                + (bit<32>)hdr.q.crc[31:16] + (bit<32>)hdr.q.crc[15:0];
            // The sum stands for the room's bytes, and is also a field of its own.
            sum = (bit<32>)sum[31:16] + (bit<32>)sum[15:0];
            sum = (bit<32>)sum[31:16] + (bit<32>)sum[15:0];
            bit<16> checksum = ~sum[15:0];
            if (checksum == 0) {
                checksum = 0xffff;
            }
            if (hdr.udp.isValid()) {
                hdr.udp.checksum = checksum;
            } else {
                hdr.shim.checksum = checksum;
            }
        }
    }
}

control FrameCompute(inout headers hdr, inout metadata meta) {
    apply {
        update_checksum(hdr.udp.isValid() && meta.where != ON,
            { hdr.ip.version, hdr.ip.words, hdr.ip.service, hdr.ip.length, hdr.ip.identification,
              hdr.ip.fragment, hdr.ip.time_to_live, hdr.ip.protocol, hdr.ip.from, hdr.ip.to },
            hdr.ip.checksum, HashAlgorithm.csum16);
    }
}

control FrameDeparser(packet_out packet, in headers hdr) {
    apply {
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ip);
        packet.emit(hdr.udp);
        packet.emit(hdr.shim);
        packet.emit(hdr.q);
        packet.emit(hdr.room);
    }
}
