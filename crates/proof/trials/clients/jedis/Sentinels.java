// Jedis in Sentinel mode, unmodified, over a change of leader. The ports are those of the nodes,
// which reply as Sentinels would. Jedis switches to a new master only when a Sentinel announces it.
// Prints `ready` when the leader may be killed.
import java.util.HashSet;
import java.util.Set;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisSentinelPool;
import redis.clients.jedis.exceptions.JedisException;

public final class Sentinels {
    private static final String KEY = "java:sentinel";

    public static void main(String[] ports) throws Exception {
        Set<String> nodes = new HashSet<>();
        for (String port : ports) nodes.add("127.0.0.1:" + port);
        // Name chosen by the application. The nodes are not configured with it.
        try (JedisSentinelPool pool = new JedisSentinelPool("orders", nodes)) {
            long acknowledged = 0;
            HostAndPort first = pool.getCurrentHostMaster();
            while (acknowledged < 100) acknowledged = increment(pool, acknowledged);
            System.out.println("ready");
            long deadline = System.currentTimeMillis() + 30_000;
            long before = acknowledged;
            while (acknowledged < before + 100 || pool.getCurrentHostMaster().equals(first)) {
                check(System.currentTimeMillis() < deadline, "the new leader is not found");
                acknowledged = increment(pool, acknowledged);
            }
            try (Jedis client = pool.getResource()) {
                check(Long.parseLong(client.get(KEY)) >= acknowledged, "a write is lost");
            }
            System.out.println("Jedis by Sentinel: " + acknowledged + " writes, none lost, over a change of leader");
        }
    }

    /** Returns the number of acknowledged writes, one more than before unless this one failed. */
    private static long increment(JedisSentinelPool pool, long acknowledged) throws InterruptedException {
        try (Jedis client = pool.getResource()) {
            client.incr(KEY);
            return acknowledged + 1;
        } catch (JedisException lost) {
            Thread.sleep(20);
            return acknowledged;
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) throw new AssertionError(what);
    }
}
