// Redisson's locks, unmodified, against the ports given as arguments.
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RTopic;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

public final class Locks {
    private static final ExecutorService OTHERS = Executors.newCachedThreadPool();
    private static int count;

    public static void main(String[] ports) throws Exception {
        List<RedissonClient> nodes = new ArrayList<>();
        for (String port : ports) {
            Config config = new Config();
            // Short, so that renewals can be observed: the lock is renewed every second.
            config.setLockWatchdogTimeout(3000);
            config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
            nodes.add(Redisson.create(config));
        }
        for (int node = 0; node < nodes.size(); node++) {
            RedissonClient other = nodes.get((node + 1) % nodes.size());
            reentrant(nodes.get(node), other, "redisson:" + node);
            waits(nodes.get(node).getLock("redisson:wait:" + node), other.getLock("redisson:wait:" + node));
            spins(nodes.get(node).getSpinLock("redisson:spin:" + node), other.getSpinLock("redisson:spin:" + node));
            topics(nodes.get(node), other, "redisson:topic:" + node);
        }
        several(nodes);
        counts(nodes);
        check(nodes.get(0).getReadWriteLock("redisson:rw").writeLock().tryLock(), "its scripts are executed");
        nodes.forEach(RedissonClient::shutdown);
        OTHERS.shutdown();
        System.out.println("redisson: locks on " + ports.length + " nodes");
    }

    /** A lock taken twice must be released twice, and another node respects it. */
    private static void reentrant(RedissonClient node, RedissonClient other, String name) throws Exception {
        RLock lock = node.getLock(name);
        RLock rival = other.getLock(name);
        check(lock.tryLock(), "it is free");
        check(lock.tryLock(0, 20, TimeUnit.SECONDS), "it is taken once more");
        check(lock.getHoldCount() == 2 && lock.isHeldByCurrentThread(), "it is held twice");
        long left = lock.remainTimeToLive();
        check(left > 10_000 && left <= 20_000, "it has its time: " + left);
        check(rival.isLocked() && !rival.isHeldByCurrentThread(), "it is seen on another node");
        check(!elsewhere(rival::tryLock), "another one does not get it");
        refused(rival::unlock, "not locked by current thread");
        lock.unlock();
        check(lock.isLocked() && lock.getHoldCount() == 1, "it is held once more");
        lock.unlock();
        check(!rival.isLocked(), "it is free again");
        refused(lock::unlock, "not locked by current thread");
        // Without a lease time, the lock is renewed for as long as it is held.
        check(lock.tryLock(), "it is free");
        for (int round = 0; round < 8; round++) {
            Thread.sleep(500);
            check(rival.isLocked(), "it is renewed");
        }
        check(rival.forceUnlock(), "it is broken");
        check(!lock.isLocked(), "it is free");
    }

    /** A waiting client is notified when the lock is released, long before the lock expires. */
    private static void waits(RLock lock, RLock rival) throws Exception {
        lock.lock(600, TimeUnit.SECONDS);
        check(!elsewhere(() -> rival.tryLock(300, 1000, TimeUnit.MILLISECONDS)), "it is taken");
        CountDownLatch asked = new CountDownLatch(1);
        Future<Boolean> waiter = OTHERS.submit(() -> {
            asked.countDown();
            rival.lock(60, TimeUnit.SECONDS);
            rival.unlock();
            return true;
        });
        asked.await();
        Thread.sleep(300);
        check(!waiter.isDone(), "it waits");
        lock.unlock();
        check(waiter.get(30, TimeUnit.SECONDS), "it is woken");
    }

    private static void spins(RLock lock, RLock rival) throws Exception {
        lock.lock();
        lock.lock();
        check(!elsewhere(rival::tryLock), "it is taken");
        Future<Boolean> waiter = OTHERS.submit(() -> rival.tryLock(30, TimeUnit.SECONDS));
        lock.unlock();
        lock.unlock();
        check(waiter.get(30, TimeUnit.SECONDS), "it is free");
        check(rival.forceUnlock(), "it is broken");
    }

    private static void topics(RedissonClient node, RedissonClient other, String name) throws Exception {
        CountDownLatch heard = new CountDownLatch(1);
        RTopic topic = other.getTopic(name, StringCodec.INSTANCE);
        topic.addListener(String.class, (channel, message) -> {
            check(message.equals("hello"), message);
            heard.countDown();
        });
        node.getTopic(name, StringCodec.INSTANCE).publish("hello");
        check(heard.await(30, TimeUnit.SECONDS), "what one node is told is heard on another");
        topic.removeAllListeners();
    }

    /** Takes all of several locks, or none. */
    private static void several(List<RedissonClient> nodes) throws Exception {
        RLock[] locks = new RLock[nodes.size()];
        for (int node = 0; node < locks.length; node++) {
            locks[node] = nodes.get(node).getLock("redisson:several:" + node);
        }
        RLock all = nodes.get(0).getMultiLock(locks);
        check(all.tryLock(), "all are free");
        check(!elsewhere(nodes.get(0).getLock("redisson:several:1")::tryLock), "one is taken");
        all.unlock();
        check(!locks[1].isLocked(), "all are free");
    }

    /** No thread loses an increment, whichever node it uses. */
    private static void counts(List<RedissonClient> nodes) throws Exception {
        List<Future<?>> workers = new ArrayList<>();
        for (RedissonClient node : nodes) {
            workers.add(OTHERS.submit(() -> {
                RLock lock = node.getLock("redisson:mutex");
                for (int round = 0; round < 20; round++) {
                    lock.lock();
                    int seen = count;
                    Thread.yield();
                    count = seen + 1;
                    lock.unlock();
                }
            }));
        }
        for (Future<?> worker : workers) {
            worker.get(60, TimeUnit.SECONDS);
        }
        check(count == 20 * nodes.size(), count + " counted");
    }

    private static boolean elsewhere(Callable<Boolean> call) throws Exception {
        return OTHERS.submit(call).get(60, TimeUnit.SECONDS);
    }

    private static void refused(Runnable call, String why) {
        try {
            call.run();
        } catch (RedisException | IllegalMonitorStateException error) {
            check(String.valueOf(error.getMessage()).contains(why), String.valueOf(error));
            return;
        }
        throw new AssertionError("it was not refused: " + why);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
