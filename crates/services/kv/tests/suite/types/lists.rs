//! Tests of the list commands, command by command.

use crate::common::{Node, check, on_both_stores};

#[test]
fn elements_are_pushed_and_popped_at_both_ends() {
    check(
        "
        RPUSH l a b c => :3|
        LPUSH l x y => :5|
        LRANGE l 0 -1 => *5|$1|y|$1|x|$1|a|$1|b|$1|c|
        LRANGE l 1 2 => *2|$1|x|$1|a|
        LRANGE l -2 100 => *2|$1|b|$1|c|
        LRANGE l 3 1 => *0|
        LRANGE nope 0 -1 => *0|
        LLEN l => :5|
        LLEN nope => :0|
        LINDEX l 0 => $1|y|
        LINDEX l -1 => $1|c|
        LINDEX l 5 => $-1|
        LINDEX l -6 => $-1|
        LPOP l => $1|y|
        RPOP l => $1|c|
        LPOP l 2 => *2|$1|x|$1|a|
        RPOP l 0 => *0|
        RPOP l 10 => *1|$1|b|
        EXISTS l => :0|
        LPOP l => $-1|
        RPOP l => $-1|
        LPOP l 1 => *-1|
        LPUSHX l a => :0|
        RPUSHX l a => :0|
        EXISTS l => :0|
        TYPE l => +none|
        RPUSH l a => :1|
        RPUSHX l b c => :3|
        LPUSHX l x => :4|
        TYPE l => +list|
        ",
    );
}

#[test]
fn the_middle_of_a_list_changes() {
    check(
        "
        RPUSH l a b c b d => :5|
        LSET l 1 B => +OK|
        LSET l -1 D => +OK|
        LSET l 5 x => -ERR index out of range|
        LSET nope 0 x => -ERR no such key|
        LINSERT l BEFORE c x => :6|
        LINSERT l after c y => :7|
        LINSERT l BEFORE nope x => :-1|
        LINSERT nope BEFORE c x => :0|
        LINSERT l BETWEEN c x => -ERR syntax error|
        LRANGE l 0 -1 => *7|$1|a|$1|B|$1|x|$1|c|$1|y|$1|b|$1|D|
        LINSERT l BEFORE a first => :8|
        LINSERT l AFTER D last => :9|
        LREM l 0 x => :1|
        LREM l 1 nope => :0|
        RPUSH l a a => :10|
        LREM l -2 a => :2|
        LRANGE l 0 -1 => *8|$5|first|$1|a|$1|B|$1|c|$1|y|$1|b|$1|D|$4|last|
        LTRIM l 1 -2 => +OK|
        LRANGE l 0 -1 => *6|$1|a|$1|B|$1|c|$1|y|$1|b|$1|D|
        LTRIM l 2 2 => +OK|
        LRANGE l 0 -1 => *1|$1|c|
        LTRIM l 5 6 => +OK|
        EXISTS l => :0|
        LTRIM l 0 1 => +OK|
        RPUSH l a a a => :3|
        LREM l 0 a => :3|
        EXISTS l => :0|
        ",
    );
}

#[test]
fn places_are_found() {
    check(
        "
        RPUSH l a b c 1 2 3 c c => :8|
        LPOS l c => :2|
        LPOS l c RANK 1 => :2|
        LPOS l c RANK 2 => :6|
        LPOS l c RANK 4 => $-1|
        LPOS l c RANK -1 => :7|
        LPOS l c RANK -2 => :6|
        LPOS l c COUNT 0 => *3|:2|:6|:7|
        LPOS l c COUNT 2 => *2|:2|:6|
        LPOS l c RANK -1 COUNT 2 => *2|:7|:6|
        LPOS l c COUNT 0 MAXLEN 3 => *1|:2|
        LPOS l c COUNT 0 MAXLEN 7 => *2|:2|:6|
        LPOS l c RANK -1 COUNT 0 MAXLEN 2 => *2|:7|:6|
        LPOS l x => $-1|
        LPOS l x COUNT 5 => *0|
        LPOS nope x => $-1|
        LPOS nope x COUNT 5 => *0|
        LPOS l c RANK 0 => -ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list|
        LPOS l c RANK -9223372036854775808 => -ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|
        LPOS l c COUNT -1 => -ERR COUNT can't be negative|
        LPOS l c MAXLEN -1 => -ERR MAXLEN can't be negative|
        LPOS l c RANK => -ERR syntax error|
        LPOS l c NONSENSE 1 => -ERR syntax error|
        ",
    );
}

#[test]
fn elements_move_between_lists() {
    check(
        "
        RPUSH l a b c => :3|
        LMOVE l m LEFT RIGHT => $1|a|
        LMOVE l m RIGHT LEFT => $1|c|
        LRANGE m 0 -1 => *2|$1|c|$1|a|
        RPOPLPUSH l m => $1|b|
        EXISTS l => :0|
        RPOPLPUSH l m => $-1|
        LMOVE m m LEFT RIGHT => $1|b|
        LRANGE m 0 -1 => *3|$1|c|$1|a|$1|b|
        RPUSH one x => :1|
        RPOPLPUSH one one => $1|x|
        LRANGE one 0 -1 => *1|$1|x|
        SET s x => +OK|
        LMOVE m s LEFT LEFT => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LMOVE s m LEFT LEFT => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LMOVE nope s LEFT LEFT => $-1|
        LLEN m => :3|
        LMOVE m n UP LEFT => -ERR syntax error|
        ",
    );
}

#[test]
fn the_first_list_that_has_some_is_popped() {
    check(
        "
        RPUSH l a b c => :3|
        RPUSH m x y => :2|
        LMPOP 2 nope l LEFT => *2|$1|l|*1|$1|a|
        LMPOP 3 nope l m RIGHT COUNT 5 => *2|$1|l|*2|$1|c|$1|b|
        LMPOP 2 l m RIGHT COUNT 1 => *2|$1|m|*1|$1|y|
        LMPOP 1 l LEFT => *-1|
        SET s x => +OK|
        LMPOP 2 s m LEFT => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LMPOP 0 m LEFT => -ERR numkeys should be greater than 0|
        LMPOP x m LEFT => -ERR numkeys should be greater than 0|
        LMPOP 2 m LEFT => -ERR syntax error|
        LMPOP 1 m => -ERR wrong number of arguments for 'lmpop' command|
        LMPOP 1 m UP => -ERR syntax error|
        LMPOP 1 m LEFT COUNT 0 => -ERR count should be greater than 0|
        LMPOP 1 m LEFT COUNT 1 COUNT 1 => -ERR syntax error|
        ",
    );
}

#[test]
fn requests_are_checked_as_redis_does() {
    check(
        "
        LPUSH l => -ERR wrong number of arguments for 'lpush' command|
        LPOP l -1 => -ERR value is out of range, must be positive|
        LPOP l x => -ERR value is out of range, must be positive|
        LPOP l 1 2 => -ERR wrong number of arguments for 'lpop' command|
        LINDEX l x => -ERR value is not an integer or out of range|
        LRANGE l 0 x => -ERR value is not an integer or out of range|
        LSET l x 1 => -ERR value is not an integer or out of range|
        LREM l x 1 => -ERR value is not an integer or out of range|
        SET s x => +OK|
        LPUSH s a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LPUSHX s a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LPOP s => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LPOP s 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LLEN s => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LINDEX s 0 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LRANGE s 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LSET s 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LTRIM s 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LREM s 0 1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LINSERT s BEFORE a b => -WRONGTYPE Operation against a key holding the wrong kind of value|
        LPOS s a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        RPUSH l a => :1|
        HGET l a => -WRONGTYPE Operation against a key holding the wrong kind of value|
        HLEN l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        GET l => -WRONGTYPE Operation against a key holding the wrong kind of value|
        ",
    );
}

/// RESP3 has only one null, even within a transaction.
#[test]
fn no_list_is_null_in_resp3_also_in_a_transaction() {
    let mut node = Node::memory();
    let client = node.connect();
    node.say(client, "HELLO 3");
    assert_eq!(node.say(client, "LPOP l 1"), "_|");
    node.say(client, "MULTI");
    node.say(client, "LMPOP 1 l LEFT");
    assert_eq!(node.say(client, "EXEC"), "*1|_|");
}

/// A long list keeps its order, whichever of its sides a change shifts.
#[test]
fn a_long_list_changes_at_its_nearer_end() {
    on_both_stores(|node| {
        let client = node.connect();
        let mut model: Vec<String> = Vec::new();
        for number in 0..400 {
            node.say(client, &format!("RPUSH l {number}"));
            model.push(number.to_string());
        }
        for pivot in [10, 390, 200] {
            node.say(client, &format!("LINSERT l AFTER {pivot} new:{pivot}"));
            let at = model.iter().position(|word| *word == pivot.to_string());
            model.insert(at.unwrap() + 1, format!("new:{pivot}"));
            node.say(client, &format!("LREM l 0 {}", pivot + 1));
            model.retain(|word| *word != (pivot + 1).to_string());
        }
        let words: String = model.iter().map(|word| format!("${}|{word}|", word.len())).collect();
        let expected = format!("*{}|{words}", model.len());
        assert_eq!(node.say(client, "LRANGE l 0 -1"), expected);
        for (index, word) in model.iter().enumerate() {
            let expected = format!("${}|{word}|", word.len());
            assert_eq!(node.say(client, &format!("LINDEX l {index}")), expected);
        }
    });
}
