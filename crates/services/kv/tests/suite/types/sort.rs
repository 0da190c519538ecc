//! SORT and SORT_RO: replies as in Redis 7.0.

use crate::common::{Node, check, on_both_stores};

#[test]
fn sorting_is_as_in_redis() {
    check(
        "
        RPUSH l 3 1 10 2 -5 1.5 => :6|
        SORT l => *6|$2|-5|$1|1|$3|1.5|$1|2|$1|3|$2|10|
        SORT_RO l DESC => *6|$2|10|$1|3|$1|2|$3|1.5|$1|1|$2|-5|
        SORT l LIMIT 1 2 => *2|$1|1|$3|1.5|
        SORT l LIMIT -3 2 => *2|$2|-5|$1|1|
        SORT l LIMIT 4 -1 => *2|$1|3|$2|10|
        SORT l LIMIT 9 1 => *0|
        SORT l LIMIT 0 0 => *0|
        SORT l ALPHA => *6|$2|-5|$1|1|$3|1.5|$2|10|$1|2|$1|3|
        SORT l DESC ASC ALPHA LIMIT 0 3 => *3|$2|-5|$1|1|$3|1.5|
        SORT none => *0|
        SORT none STORE there => :0|
        EXISTS there => :0|
        MSET w1 30 w2 20 w3 10 w10 x w-5 5 => +OK|
        SORT l BY w* => -ERR One or more scores can't be converted into double|
        SET w10 1 => +OK|
        SORT l BY w* => *6|$3|1.5|$2|10|$2|-5|$1|3|$1|2|$1|1|
        SORT l BY w* DESC GET # GET w* GET none* => *18|$1|1|$2|30|$-1|$1|2|$2|20|$-1|$1|3|$2|10|$-1|$2|-5|$1|5|$-1|$2|10|$1|1|$-1|$3|1.5|$-1|$-1|
        SORT l BY w* ALPHA => *6|$3|1.5|$2|10|$1|3|$1|2|$1|1|$2|-5|
        SORT l BY w* ALPHA DESC GET # => *6|$2|-5|$1|1|$1|2|$1|3|$2|10|$3|1.5|
        SORT l BY nosort => *6|$1|3|$1|1|$2|10|$1|2|$2|-5|$3|1.5|
        SORT l BY nosort DESC LIMIT 1 2 => *2|$2|-5|$1|2|
        SORT l BY nosort GET # GET nostar => *12|$1|3|$-1|$1|1|$-1|$2|10|$-1|$1|2|$-1|$2|-5|$-1|$3|1.5|$-1|
        HSET h1 name one rank 4 => :2|
        HSET h2 name two rank 3 => :2|
        HSET h3 rank 1 => :1|
        SORT l BY h*->rank GET h*->name => *6|$-1|$-1|$-1|$-1|$3|two|$3|one|
        SORT l BY h*-> ALPHA LIMIT 0 2 => *2|$1|3|$1|1|
        RPUSH words b a C 10 9 => :5|
        SORT words => -ERR One or more scores can't be converted into double|
        SORT words ALPHA => *5|$2|10|$1|9|$1|C|$1|a|$1|b|
        SORT words ALPHA DESC => *5|$1|b|$1|a|$1|C|$1|9|$2|10|
        SADD s 3 1 2 => :3|
        SORT s DESC => *3|$1|3|$1|2|$1|1|
        SORT s BY nosort STORE out => :3|
        LRANGE out 0 -1 => *3|$1|1|$1|2|$1|3|
        ZADD z 3 a 1 b 2 c => :3|
        SORT z ALPHA => *3|$1|a|$1|b|$1|c|
        SORT z BY nosort => *3|$1|b|$1|c|$1|a|
        SORT z BY nosort DESC => *3|$1|a|$1|c|$1|b|
        SORT z BY nosort DESC LIMIT 1 1 => *1|$1|c|
        SORT z => -ERR One or more scores can't be converted into double|
        SORT l STORE out => :6|
        LRANGE out 0 -1 => *6|$2|-5|$1|1|$3|1.5|$1|2|$1|3|$2|10|
        SORT l BY w* GET w* GET h*->name STORE l => :12|
        LRANGE l 0 -1 => *12|$0||$0||$1|1|$0||$1|5|$0||$2|10|$0||$2|20|$3|two|$2|30|$3|one|
        SET str x => +OK|
        SORT str => -WRONGTYPE Operation against a key holding the wrong kind of value|
        SORT h1 => -WRONGTYPE Operation against a key holding the wrong kind of value|
        SORT words ALPHA STORE str => :5|
        TYPE str => +list|
        SORT words LIMIT 0 0 ALPHA STORE str => :0|
        EXISTS str => :0|
        SORT l LIMIT 0 => -ERR syntax error|
        SORT l LIMIT a 1 => -ERR value is not an integer or out of range|
        SORT l BY => -ERR syntax error|
        SORT l GET => -ERR syntax error|
        SORT l STORE => -ERR syntax error|
        SORT_RO words ALPHA STORE x => -ERR syntax error|
        SORT l FOO => -ERR syntax error|
        SORT => -ERR wrong number of arguments for 'sort' command|
        RPUSH ties 1 01 1.0 1 => :4|
        SORT ties => *4|$2|01|$1|1|$1|1|$3|1.0|
        SORT ties DESC => *4|$3|1.0|$1|1|$1|1|$2|01|
        RPUSH inf inf -inf 0 nan => :4|
        SORT inf => -ERR One or more scores can't be converted into double|
        LPOP inf => $3|inf|
        RPOP inf => $3|nan|
        SORT inf => *2|$4|-inf|$1|0|
        SADD t 10 9 2 => :3|
        SORT t BY nosort STORE out => :3|
        LRANGE out 0 -1 => *3|$2|10|$1|2|$1|9|
        RPUSH k a b => :2|
        SET v_a-> arrow => +OK|
        RPUSH v_a list => :1|
        SORT k BY nosort GET v_*-> GET v_* => *4|$5|arrow|$-1|$-1|$-1|
        SORT k ALPHA BY v_* => *2|$1|a|$1|b|
        DEL e => :0|
        RPUSH e '' 5 => :2|
        SORT e => *2|$0||$1|5|
        ",
    );
}

/// SORT may examine a limited number of elements, with or without STORE.
#[test]
fn too_much_is_refused() {
    on_both_stores(|node| {
        let client = node.connect();
        let refused = "-TOOBIG not executed: SORT may look at 262144 elements and keys, with 32 MiB together|";
        push(node, client, 200_000);
        assert!(node.say(client, "SORT l LIMIT 0 1").ends_with("|$1|0|"));
        assert_eq!(node.say(client, "SORT l BY w* LIMIT 0 1"), refused);
        assert_eq!(node.say(client, "SORT l GET # STORE out"), refused);
        assert_eq!(node.say(client, "EXISTS out"), ":0|");
        push(node, client, 100_000);
        assert_eq!(node.say(client, "SORT l BY nosort LIMIT 0 1"), refused);
        assert_eq!(node.say(client, "SORT l STORE out"), refused);
        assert_eq!(node.say(client, "DEL l"), ":1|");
        let long = "x".repeat(1 << 20);
        for _ in 0..33 {
            node.ask(client, &["RPUSH", "l", &long]);
        }
        assert_eq!(node.say(client, "SORT l ALPHA"), refused);
    });
}

fn push(node: &mut Node, client: quorate_replica::front::ConnectionId, count: usize) {
    for from in (0..count).step_by(10_000) {
        let numbers: Vec<String> = (from..from + 10_000).map(|n| n.to_string()).collect();
        node.say(client, &format!("RPUSH l {}", numbers.join(" ")));
    }
}
