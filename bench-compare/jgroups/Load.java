// Sends messages to a group of JGroups, or counts the messages delivered: one member of `compare
// multicast`.
//
//     java Load ROLE MEMBERS BYTES WARMUP_MS TIME_MS STACK
//
// See ../README.md for its input and output.

import java.nio.ByteBuffer;
import java.util.concurrent.CountDownLatch;
import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.View;

public final class Load implements Receiver {
    private final boolean sends;
    private final int members;
    private final int size;
    private final long warmup;
    private final long time;
    private final CountDownLatch complete = new CountDownLatch(1);

    private long expected;
    private boolean heard;
    private long first;
    private boolean begun;
    private long begin;
    private long bytes;
    private volatile boolean told;

    private Load(String[] words) {
        sends = words[0].equals("sender");
        members = Integer.parseInt(words[1]);
        size = Integer.parseInt(words[2]);
        warmup = Long.parseLong(words[3]) * 1_000_000;
        time = Long.parseLong(words[4]) * 1_000_000;
    }

    @Override
    public void receive(Message message) {
        if (message.getLength() != size) {
            fail("a message of another size: " + message.getLength());
        }
        long number = ByteBuffer.wrap(message.getArray(), message.getOffset(), 8).getLong();
        if (number != expected++) {
            fail("a message out of order: " + number);
        }
        if (sends || told) {
            return;
        }
        long now = System.nanoTime();
        if (!heard) {
            heard = true;
            first = now;
        }
        if (!begun) {
            begun = now - first >= warmup;
            begin = now;
            return;
        }
        bytes += size;
        if (now - begin >= time) {
            say(bytes + " " + (now - begin));
            told = true;
        }
    }

    @Override
    public void viewAccepted(View view) {
        if (view.size() == members && complete.getCount() > 0) {
            complete.countDown();
            say("ready");
        } else if (view.size() < members && complete.getCount() == 0 && !told) {
            fail("a member was lost");
        }
    }

    private static void fail(String why) {
        System.err.println(why);
        Runtime.getRuntime().halt(1);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] words) throws Exception {
        Load load = new Load(words);
        JChannel channel = new JChannel(words[5]);
        channel.setReceiver(load);
        channel.setDiscardOwnMessages(false);
        channel.connect("compare");
        say("up");
        load.complete.await();
        // A line means begin; the end of the pipe means stop.
        boolean goes = System.in.read() >= 0;
        if (goes && load.sends) {
            Thread watch = new Thread(() -> {
                try {
                    while (System.in.read() >= 0) {}
                } catch (java.io.IOException error) {
                    fail(error.toString());
                }
                Runtime.getRuntime().halt(0);
            });
            watch.start();
            for (long number = 0;; number++) {
                // Sent messages are retained for repairs, so each message needs its own bytes.
                byte[] message = new byte[load.size];
                ByteBuffer.wrap(message).putLong(number);
                channel.send(new BytesMessage(null, message));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
