/* Kernel interface of the programs: types, helper functions and map declarations.
 *
 * Defined here so that clang alone compiles the programs, without kernel or libbpf headers. Helpers are called by
 * their numbers, which never change; none of these requires the GPL. */
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define be16(x) __builtin_bswap16(x)
#define be32(x) __builtin_bswap32(x)
#define be64(x) __builtin_bswap64(x)

/* Reads a value once; another CPU may be writing it. */
#define ONCE(x) (*(const volatile __typeof__(x) *)&(x))

/* The verifier recognizes a lock by its type's name and BTF. */
struct bpf_spin_lock {
    u32 value;
};

enum { MAP_ARRAY = 2, MAP_PROG_ARRAY = 3, MAP_PERCPU_ARRAY = 6, MAP_ARRAY_OF_MAPS = 12, MAP_RINGBUF = 27 };

/* Map attributes in the form that loaders read from BTF: an integer is the length of an array. */
#define UINT(name, value) int(*name)[value]
#define TYPE(name, of) __typeof__(of) *name

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX };
enum { TC_OK = 0, TC_SHOT = 2 };

struct xdp_md {
    u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex;
};

/* Fields of a tc packet, up to the last one used here. */
struct __sk_buff {
    u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority, ingress_ifindex,
        ifindex, tc_index, cb[5], hash, tc_classid, data, data_end;
};

static void *(*const map_lookup)(void *map, const void *key) = (void *)1;
static long (*const tail_call)(void *context, void *map, u32 index) = (void *)12;
static long (*const redirect)(u32 interface, u64 flags) = (void *)23;
static long (*const skb_pull_data)(struct __sk_buff *skb, u32 length) = (void *)39;
static long (*const spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
static void *(*const ringbuf_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*const ringbuf_submit)(void *record, u64 flags) = (void *)132;
static void (*const ringbuf_discard)(void *record, u64 flags) = (void *)133;
static void *(*const map_lookup_percpu)(void *map, const void *key, u32 cpu) = (void *)195;
/* Wakes the reader only if it has read everything submitted before. A reader that lags, or never waits, costs
 * nothing. */
enum { IF_WAITED_FOR = 0 };
