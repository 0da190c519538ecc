//! Tests of places: replies of a Redis 7.0, and searches against a comparison of all members.

use quorate_core::level::Level;

use crate::common::{Node, Random, check_at, on_both_stores};

const LEVEL: Level = Level(10);

#[test]
fn places_are_those_of_redis() {
    check_at(
        LEVEL,
        "
        GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania => :2|
        GEOADD s CH 13.361389 38.115556 Palermo 12.758489 38.788135 edge1 => :1|
        GEOADD s NX 17.24151 38.788135 edge2 0 0 Palermo => :1|
        GEOADD s XX CH 17.241510 38.788135 edge2 0 0 none => :0|
        ZRANGE s 0 -1 WITHSCORES => *8|$7|Palermo|$16|3479099956230698|$5|edge1|$16|3479273021651468|$7|Catania|$16|3479447370796909|$5|edge2|$16|3481342659049484|
        ZSCORE s Catania => $16|3479447370796909|
        TYPE s => +zset|
        GEODIST s Palermo Catania => $11|166274.1516|
        GEODIST s Palermo Catania KM => $8|166.2742|
        GEODIST s Palermo Catania mi => $8|103.3182|
        GEODIST s Palermo Catania ft => $11|545518.8700|
        GEODIST s Palermo Palermo => $6|0.0000|
        GEODIST s Palermo none => $-1|
        GEODIST none a b => $-1|
        GEODIST s Palermo Catania yd => -ERR unsupported unit provided. please use M, KM, FT, MI|
        GEODIST s Palermo Catania km x => -ERR syntax error|
        GEOHASH s Palermo Catania none => *3|$11|sqc8b49rny0|$11|sqdtr74hyu0|$-1|
        GEOHASH none a => *1|$-1|
        GEOPOS s Palermo none => *2|*2|$20|13.36138933897018433|$20|38.11555639549629859|*-1|
        GEOPOS s => *0|
        GEOPOS none a => *1|*-1|
        GEOADD p 180 85.05112878 ne -180 -85.05112878 sw 0 0 mid => :3|
        GEOPOS p ne sw mid => *3|*2|$3|180|$19|85.0511287799999991|*2|$22|-179.99999731779098511|$21|-85.05112751263942528|*2|$19|0.00000268220901489|$19|0.00000126736058093|
        GEOHASH p ne sw => *2|$11|bp05b5048p0|$11|00bh0hbj200|
        ZADD p 9007199254740991.5 odd => :1|
        GEOPOS p odd => *1|*2|$3|180|$21|-85.05112751263942528|
        ",
    );
}

#[test]
fn places_that_are_none_are_refused() {
    check_at(
        LEVEL,
        "
        GEOADD s 181 0 x => -ERR invalid longitude,latitude pair 181.000000,0.000000|
        GEOADD s 0 85.1 x => -ERR invalid longitude,latitude pair 0.000000,85.100000|
        GEOADD s a 0 x => -ERR value is not a valid float|
        GEOADD s NX XX 0 0 x => -ERR syntax error|
        GEOADD s NX 0 0 => -ERR syntax error|
        GEOADD s 0 0 x 1 => -ERR syntax error|
        GEOADD s 0 0 => -ERR wrong number of arguments for 'geoadd' command|
        SET t text => +OK|
        GEOADD t 0 0 x => -WRONGTYPE Operation against a key holding the wrong kind of value|
        GEOPOS t x => -WRONGTYPE Operation against a key holding the wrong kind of value|
        GEOSEARCH t FROMLONLAT 0 0 BYRADIUS 1 m => -WRONGTYPE Operation against a key holding the wrong kind of value|
        ",
    );
}

#[test]
fn searches_find_what_redis_finds() {
    check_at(
        LEVEL,
        "
        GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania => :2|
        GEOADD s 12.758489 38.788135 edge1 17.241510 38.788135 edge2 => :2|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC => *2|$7|Catania|$7|Palermo|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km ASC WITHCOORD WITHDIST => *4|*3|$7|Catania|$7|56.4413|*2|$20|15.08726745843887329|$20|37.50266842333162032|*3|$7|Palermo|$8|190.4424|*2|$20|13.36138933897018433|$20|38.11555639549629859|*3|$5|edge2|$8|279.7403|*2|$20|17.24151045083999634|$20|38.78813451624225195|*3|$5|edge1|$8|279.7405|*2|$19|12.7584877610206604|$20|38.78813451624225195|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km DESC WITHHASH COUNT 2 => *2|*2|$5|edge1|:3479273021651468|*2|$5|edge2|:3481342659049484|
        GEOSEARCH s FROMMEMBER Palermo BYRADIUS 0 m => *1|$7|Palermo|
        GEOSEARCH s FROMMEMBER Palermo BYRADIUS 100 mi COUNT 1 ANY => *1|$7|Palermo|
        GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1000 km COUNT 2 WITHDIST => *2|*2|$7|Palermo|$6|0.0000|*2|$5|edge1|$7|91.4007|
        GEOSEARCH s FROMMEMBER none BYRADIUS 1 km => -ERR could not decode requested zset member|
        GEOSEARCH none FROMMEMBER none BYRADIUS 1 km => *0|
        GEOSEARCHSTORE d s FROMLONLAT 15 37 BYBOX 400 400 km COUNT 3 => :3|
        ZRANGE d 0 -1 WITHSCORES => *6|$7|Palermo|$16|3479099956230698|$7|Catania|$16|3479447370796909|$5|edge2|$16|3481342659049484|
        GEOSEARCHSTORE d s FROMLONLAT 15 37 BYBOX 400 400 km STOREDIST => :4|
        ZRANGE d 0 -1 => *4|$7|Catania|$7|Palermo|$5|edge2|$5|edge1|
        GEOSEARCHSTORE d s FROMLONLAT 100 37 BYBOX 4 4 km => :0|
        EXISTS d => :0|
        GEORADIUS s 15 37 200 km WITHDIST DESC => *2|*2|$7|Palermo|$8|190.4424|*2|$7|Catania|$7|56.4413|
        GEORADIUS_RO s 15 37 200 km COUNT 1 => *1|$7|Catania|
        GEORADIUSBYMEMBER s Catania 100 mi => *1|$7|Catania|
        GEORADIUSBYMEMBER_RO s Catania 300 km COUNT 9 DESC => *4|$5|edge1|$5|edge2|$7|Palermo|$7|Catania|
        GEORADIUS s 15 37 200 km STORE a STOREDIST b => :2|
        EXISTS a b => :1|
        ZRANGE b 0 -1 => *2|$7|Catania|$7|Palermo|
        GEORADIUSBYMEMBER s Catania 1 m STORE s => :1|
        ZRANGE s 0 -1 => *1|$7|Catania|
        GEORADIUS none 15 37 200 km STORE b => :0|
        EXISTS b => :0|
        GEOADD s 13.361389 38.115556 Palermo => :1|
        GEORADIUSBYMEMBER none Catania 1 m => *0|
        ",
    );
}

#[test]
fn searches_reach_across_the_edges_of_the_map() {
    check_at(
        LEVEL,
        "
        GEOADD e 180 0 edge 179.95 0 near => :2|
        GEOSEARCH e FROMLONLAT 180 0 BYRADIUS 10 km ASC => *2|$4|edge|$4|near|
        GEOSEARCH e FROMLONLAT 179.99 0 BYRADIUS 3 km => *1|$4|edge|
        GEOSEARCH e FROMLONLAT -179.99 0 BYBOX 10 10 km => *1|$4|edge|
        GEOSEARCH e FROMMEMBER near BYRADIUS 10000 km ASC => *2|$4|near|$4|edge|
        GEOADD n 0.1 85.05112878 edge 0.1 85 near 180 85.05112878 corner => :3|
        GEOSEARCH n FROMLONLAT 0.1 85.05112878 BYRADIUS 10 km ASC => *2|$4|edge|$4|near|
        GEOSEARCH n FROMLONLAT 0.1 85.05 BYRADIUS 3 km => *1|$4|edge|
        GEOSEARCH n FROMLONLAT -179.9 85 BYRADIUS 10 km => *1|$6|corner|
        GEOADD s 45.3 60 a => :1|
        GEOSEARCH s FROMLONLAT -0.001 60 BYBOX 5000 1 km => *1|$1|a|
        ",
    );
}

/// Coordinates are numbers of twenty digits, which take longer to write than a member to find.
#[test]
fn coordinates_are_visits() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        let places: Vec<String> = (0..3000).map(|number| format!("1 1 m{number}")).collect();
        node.say(client, &format!("GEOADD s {}", places.join(" ")));
        let search = "GEOSEARCH s FROMLONLAT 1 1 BYRADIUS 1 km";
        let members = " m1".repeat(3000);
        for (command, admitted) in [
            (search.to_owned(), true),
            (format!("{search} WITHCOORD"), false),
            (format!("GEOHASH s{members}"), true),
            (format!("GEOPOS s{members}"), false),
        ] {
            node.say(client, "MULTI");
            (0..25).for_each(|_| drop(node.say(client, &command)));
            let reply = node.say(client, "EXEC");
            assert_eq!(!reply.starts_with("-TOOBIG not executed: "), admitted, "{command:.60}");
        }
    });
}

#[test]
fn searches_that_make_no_sense_are_refused() {
    check_at(
        LEVEL,
        "
        GEORADIUS_RO s 15 37 200 km STORE a => -ERR syntax error|
        GEORADIUS s 15 37 200 km STORE a WITHDIST => -ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options|
        GEOSEARCHSTORE d s FROMLONLAT 15 37 BYBOX 4 4 km WITHHASH => -ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 4 4 km STOREDIST => -ERR syntax error|
        GEOSEARCH s BYBOX 4 4 km ASC DESC ANY => -ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for geosearch|
        GEOSEARCHSTORE d s FROMLONLAT 15 37 ASC ASC ASC => -ERR exactly one of BYRADIUS and BYBOX can be specified for geosearchstore|
        GEOSEARCH s FROMLONLAT 15 37 FROMMEMBER Palermo BYBOX 4 4 km => -ERR syntax error|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 4 4 km BYRADIUS 1 m => -ERR syntax error|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 4 -4 km => -ERR height or width cannot be negative|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX x 4 km => -ERR need numeric width|
        GEOSEARCH s FROMLONLAT 15 37 BYBOX 4 x km => -ERR need numeric height|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS x km => -ERR need numeric radius|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS -1 km => -ERR radius cannot be negative|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 1 parsec => -ERR unsupported unit provided. please use M, KM, FT, MI|
        GEOSEARCH s FROMLONLAT 15 91 BYRADIUS 1 km => -ERR invalid longitude,latitude pair 15.000000,91.000000|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 1 km ANY => -ERR the ANY argument requires COUNT argument|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 1 km COUNT 0 => -ERR COUNT must be > 0|
        GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 1 km COUNT x => -ERR value is not an integer or out of range|
        COMMAND GETKEYS GEORADIUS s 15 37 200 km COUNT 1 STORE a => *2|$1|s|$1|a|
        COMMAND GETKEYS GEORADIUSBYMEMBER s m 200 km STOREDIST a => *2|$1|s|$1|a|
        COMMAND GETKEYS GEOSEARCHSTORE d s FROMMEMBER m BYRADIUS 1 m => *2|$1|d|$1|s|
        ",
    );
}

/// Members that a search for everything finds, with their distances in meters.
fn all(
    node: &mut Node,
    client: quorate_replica::front::ConnectionId,
    center: &str,
) -> Vec<(String, f64)> {
    let members = node.say(client, "ZRANGE s 0 -1");
    let members = members.split('|').filter(|line| line.starts_with('m'));
    let distance = |node: &mut Node, member: &str| {
        let reply = node.say(client, &format!("GEODIST s {center} {member}"));
        reply.split('|').nth(1).unwrap().parse().unwrap()
    };
    members.map(|member| (member.to_owned(), distance(node, member))).collect()
}

/// Near the poles and where the longitude changes its sign, too.
#[test]
fn a_search_finds_all_members_inside() {
    let mut node = Node::memory();
    node.world.level = LEVEL;
    let client = node.connect();
    let mut random = Random::new(1);
    let mut degrees = |most: f64| {
        let part = (random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        (2.0 * part - 1.0) * most
    };
    for number in 0..120 {
        let (longitude, latitude) = match number % 3 {
            0 => (degrees(180.0), degrees(85.0)),
            1 => (degrees(180.0), 84.0 + degrees(1.0)),
            _ => ((degrees(8.0) + 360.0) % 360.0 - 180.0, degrees(9.0)),
        };
        let request = format!("GEOADD s {longitude} {latitude} m{number}");
        assert_eq!(node.say(client, &request), ":1|", "{request}");
    }
    let mut found = 0;
    for center in 0..60 {
        let distances = all(&mut node, client, &format!("m{center}"));
        for radius in [3e5, 6e5, 9e5, 1.5e6, 3e6, 9e6] {
            let mut expected: Vec<&str> = Vec::new();
            for (member, distance) in &distances {
                if *distance <= radius {
                    expected.push(member);
                }
            }
            let request = format!("GEOSEARCH s FROMMEMBER m{center} BYRADIUS {radius} m");
            let reply = node.say(client, &request);
            let mut members: Vec<&str> =
                reply.split('|').filter(|line| line.starts_with('m')).collect();
            members.sort_unstable();
            expected.sort_unstable();
            assert_eq!(members, expected, "{request}");
            found += members.len();
        }
    }
    assert!(found > 5000, "{found}");
}

/// A search of many members keeps the nearest ones, and a search of too many is refused.
#[test]
fn a_search_is_bounded() {
    let mut node = Node::memory();
    node.world.level = LEVEL;
    let client = node.connect();
    let add = |node: &mut Node, from: usize| {
        let place = |number: usize| {
            format!("{} {} m{number}", (number % 1000) as f64 / 1e4, (number / 1000) as f64 / 1e4)
        };
        let places: Vec<String> = (from..from + 5000).map(place).collect();
        node.say(client, &format!("GEOADD s {}", places.join(" ")));
    };
    (0..4).for_each(|part| add(&mut node, part * 5000));
    let near = "*3|*2|$2|m0|$6|0.0000|*2|$2|m1|$6|0.0107|*2|$5|m1000|$6|0.0110|";
    let request = "GEOSEARCH s FROMMEMBER m0 BYRADIUS 100 km";
    let nearest = node.say(client, &format!("{request} COUNT 3 WITHDIST"));
    assert_eq!(nearest, near);
    let store = "GEOSEARCHSTORE d s FROMMEMBER m0 BYRADIUS 100 km";
    assert_eq!(node.say(client, store), ":20000|");
    (4..54).for_each(|part| add(&mut node, part * 5000));
    for request in [request.to_owned(), format!("{request} COUNT 3"), store.to_owned()] {
        let reply = node.say(client, &request);
        assert!(reply.starts_with("-TOOBIG not executed: "), "{reply}");
    }
    let any = node.say(client, &format!("{request} COUNT 3 ANY"));
    assert!(any.starts_with("*3|"), "{any}");
}

#[test]
fn places_in_transactions_and_scripts() {
    on_both_stores(|node| {
        node.world.level = LEVEL;
        let client = node.connect();
        node.say(client, "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania");
        node.say(client, "MULTI");
        node.say(client, "GEODIST s Palermo Catania km");
        node.say(client, "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 200 km");
        node.say(client, "GEORADIUSBYMEMBER s Palermo 200 km STOREDIST d");
        assert_eq!(node.say(client, "EXEC"), "*3|$8|166.2742|*2|$7|Palermo|$7|Catania|:2|");
        let script =
            "redis.call('geosearchstore', 'd', 's', 'frommember', 'Palermo', 'bybox', 1, 1, 'm')
            return redis.call('geohash', 's', redis.call('zrange', 'd', 0, -1)[1])";
        assert_eq!(node.ask(client, &["EVAL", script, "0"]), "*1|$11|sqc8b49rny0|");
    });
}

/// Positions are level 8's sorted sets; what reads them as places is not.
#[test]
fn searches_need_a_feature_level() {
    let mut node = Node::memory();
    let client = node.connect();
    assert_eq!(node.say(client, "GEOADD s 13.361389 38.115556 Palermo"), ":1|");
    for command in [
        "GEOPOS s Palermo",
        "GEODIST s Palermo Palermo",
        "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m",
        "GEORADIUSBYMEMBER s Palermo 1 m STORE d",
    ] {
        let reply = node.say(client, command);
        assert!(
            reply.starts_with("-ERR not executed: geo commands need feature level 10"),
            "{reply}"
        );
    }
}
