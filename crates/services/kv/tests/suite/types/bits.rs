//! Tests of bit operations on strings, command by command.

use crate::common::{check, on_both_stores};

#[test]
fn bits_are_set_read_counted_and_found() {
    check(
        "
        SETBIT b 7 1 => :0|
        SETBIT b 7 0 => :1|
        SETBIT b 100 1 => :0|
        STRLEN b => :13|
        GETBIT b 100 => :1|
        GETBIT b 99 => :0|
        GETBIT b 4294967295 => :0|
        GETBIT nope 0 => :0|
        SET s foobar => +OK|
        BITCOUNT s => :26|
        BITCOUNT s 0 0 => :4|
        BITCOUNT s 1 1 => :6|
        BITCOUNT s 1 1 BYTE => :6|
        BITCOUNT s 5 30 BIT => :17|
        BITCOUNT s -2 -1 => :7|
        BITCOUNT s 3 1 => :0|
        BITCOUNT s -1 -3 => :0|
        BITCOUNT nope => :0|
        BITPOS s 1 => :1|
        BITPOS s 0 => :0|
        BITPOS s 1 2 => :17|
        BITPOS s 1 -1 => :41|
        BITPOS s 1 7 15 BIT => :9|
        BITPOS s 1 6 => :-1|
        BITPOS nope 1 => :-1|
        BITPOS nope 0 => :0|
        BITFIELD f SET u8 0 255 SET u8 8 255 => *2|:0|:0|
        BITPOS f 0 => :16|
        BITPOS f 0 0 => :16|
        BITPOS f 0 0 -1 => :-1|
        BITPOS f 1 1 1 => :8|
        ",
    );
}

#[test]
fn strings_are_combined_bit_by_bit() {
    check(
        "
        SET a abc => +OK|
        SET b AB => +OK|
        BITOP AND d a b => :3|
        BITFIELD d GET u8 0 GET u8 8 GET u8 16 => *3|:65|:66|:0|
        BITOP or d a b => :3|
        GET d => $3|abc|
        BITOP XOR d a b => :3|
        BITFIELD d GET u8 0 GET u8 16 => *2|:32|:99|
        BITOP NOT d b => :2|
        BITOP NOT d d => :2|
        GET d => $2|AB|
        BITOP AND d nope => :0|
        EXISTS d => :0|
        BITOP OR a nope nope => :0|
        EXISTS a => :0|
        BITOP OR d b nope => :2|
        BITOP AND d b nope => :2|
        BITCOUNT d => :0|
        BITOP NOT d a b => -ERR BITOP NOT must be called with a single source key.|
        BITOP NAND d a b => -ERR syntax error|
        RPUSH l a => :1|
        BITOP OR d b l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BITOP OR l b => :2|
        TYPE l => +string|
        ",
    );
}

#[test]
fn fields_of_bits_are_numbers() {
    check(
        "
        BITFIELD f SET i5 100 10 GET u4 0 => *2|:0|:0|
        BITFIELD f GET i5 100 => *1|:10|
        BITFIELD f INCRBY i5 100 1 INCRBY u2 0 1 => *2|:11|:1|
        BITFIELD f INCRBY i5 100 10 => *1|:-11|
        BITFIELD f OVERFLOW SAT INCRBY i5 100 -30 => *1|:-16|
        BITFIELD f OVERFLOW FAIL INCRBY i5 100 -1 => *1|$-1|
        BITFIELD f OVERFLOW SAT SET u8 #1 300 GET u8 #1 => *2|:0|:255|
        BITFIELD f OVERFLOW WRAP SET u8 #1 300 GET u8 8 => *2|:255|:44|
        BITFIELD f OVERFLOW FAIL SET u8 #1 256 => *1|$-1|
        BITFIELD f SET u8 0 -1 GET u8 0 => *2|:64|:255|
        BITFIELD f OVERFLOW SAT INCRBY u8 0 -1000 => *1|:0|
        BITFIELD g SET i64 0 -9223372036854775808 GET i64 0 => *2|:0|:-9223372036854775808|
        BITFIELD g INCRBY i64 0 -1 => *1|:9223372036854775807|
        BITFIELD g GET u63 1 GET i1 0 => *2|:9223372036854775807|:0|
        BITFIELD g => *0|
        BITFIELD nope GET u8 0 => *1|:0|
        EXISTS nope => :0|
        BITFIELD_RO g GET i64 0 => *1|:9223372036854775807|
        BITFIELD_RO g SET u8 0 1 => -ERR BITFIELD_RO only supports the GET subcommand|
        BITFIELD g GET u64 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|
        BITFIELD g GET i65 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|
        BITFIELD g GET x8 0 => -ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|
        BITFIELD g GET u8 -1 => -ERR bit offset is not an integer or out of range|
        BITFIELD g GET u8 #x => -ERR bit offset is not an integer or out of range|
        BITFIELD g OVERFLOW NONE => -ERR Invalid OVERFLOW type specified|
        BITFIELD g SET u8 0 => -ERR syntax error|
        BITFIELD g SET u8 0 x => -ERR value is not an integer or out of range|
        BITFIELD g NONSENSE => -ERR syntax error|
        ",
    );
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        SETBIT b -1 1 => -ERR bit offset is not an integer or out of range|
        SETBIT b x 1 => -ERR bit offset is not an integer or out of range|
        SETBIT b 4294967296 1 => -ERR bit offset is not an integer or out of range|
        SETBIT b 0 2 => -ERR bit is not an integer or out of range|
        SETBIT b 0 x => -ERR bit is not an integer or out of range|
        GETBIT b -1 => -ERR bit offset is not an integer or out of range|
        GETBIT b 4294967296 => -ERR bit offset is not an integer or out of range|
        BITCOUNT b 1 => -ERR syntax error|
        BITCOUNT b 0 1 HELLO => -ERR syntax error|
        BITCOUNT b x 1 => -ERR value is not an integer or out of range|
        BITPOS b 2 => -ERR The bit argument must be 1 or 0.|
        BITPOS b x => -ERR value is not an integer or out of range|
        BITPOS b 1 0 1 HELLO => -ERR syntax error|
        BITOP AND d => -ERR wrong number of arguments for 'bitop' command|
        RPUSH l a => :1|
        SETBIT l 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        GETBIT l 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BITCOUNT l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BITPOS l 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BITFIELD l GET u8 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        BITFIELD l SET u8 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        ",
    );
}

/// BITCOUNT and BITPOS for ranges agree with a check of each single bit.
#[test]
fn ranges_of_bits_are_what_single_bits_say() {
    on_both_stores(|node| {
        let client = node.connect();
        let bits: Vec<bool> = (0..40_u32).map(|at| at * at % 7 < 3).collect();
        for (at, bit) in bits.iter().enumerate() {
            node.say(client, &format!("SETBIT b {at} {}", u8::from(*bit)));
        }
        for (start, end) in [(0, 39), (3, 3), (5, 30), (8, 15), (7, 16), (39, 39), (20, 10)] {
            let range = start..end + 1;
            let found: Vec<usize> = range.filter(|at| bits[*at]).collect();
            let count = node.say(client, &format!("BITCOUNT b {start} {end} BIT"));
            assert_eq!(count, format!(":{}|", found.len()));
            let first = node.say(client, &format!("BITPOS b 1 {start} {end} BIT"));
            let expected = found.first().map_or("-1".to_owned(), usize::to_string);
            assert_eq!(first, format!(":{expected}|"));
        }
    });
}
