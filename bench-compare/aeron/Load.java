// Sends messages to a multicast stream of Aeron, or counts the messages received: one process of
// `compare multicast`, with its own media driver.
//
//     java Load ROLE MEMBERS BYTES WARMUP_MS TIME_MS ADDRESS FOLDER
//
// See ../README.md for its input and output.

import io.aeron.Aeron;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import io.aeron.logbuffer.FragmentHandler;
import io.aeron.logbuffer.Header;
import java.io.IOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.agrona.DirectBuffer;
import org.agrona.concurrent.BackoffIdleStrategy;
import org.agrona.concurrent.IdleStrategy;
import org.agrona.concurrent.UnsafeBuffer;

public final class Load {
    private static final int STREAM = 15;
    private static final int FRAGMENTS = 64;
    /** Long enough that no peer is declared dead because many programs share the processors. */
    private static final long PATIENCE = TimeUnit.MINUTES.toNanos(1);
    private static final String GROUP = "aeron:udp?endpoint=239.81.84.73:7465|interface=";

    private final int size;
    private final long warmup;
    private final long time;

    private long expected;
    private boolean heard;
    private long first;
    private boolean begun;
    private long begin;
    private long bytes;
    private boolean told;

    private Load(String[] words) {
        size = Integer.parseInt(words[2]);
        warmup = Long.parseLong(words[3]) * 1_000_000;
        time = Long.parseLong(words[4]) * 1_000_000;
    }

    private void receive(DirectBuffer buffer, int offset, int length, Header header) {
        if (length != size) {
            fail("a message of another size: " + length);
        }
        long number = buffer.getLong(offset);
        if (number != expected++) {
            fail("a message out of order: " + number);
        }
        if (told) {
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

    private static void fail(String why) {
        System.err.println(why);
        Runtime.getRuntime().halt(1);
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** Yields soon, because other processes need the same processors. */
    private static IdleStrategy idle() {
        return new BackoffIdleStrategy(1, 1, 1_000, 100_000);
    }

    /** Exits when the input pipe closes. A line before that means begin. */
    private static AtomicBoolean listen() {
        AtomicBoolean goes = new AtomicBoolean();
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    goes.set(true);
                }
            } catch (IOException error) {
                fail(error.toString());
            }
            Runtime.getRuntime().halt(0);
        });
        listener.setDaemon(true);
        listener.start();
        return goes;
    }

    public static void main(String[] words) {
        Load load = new Load(words);
        boolean sends = words[0].equals("sender");
        int receivers = Integer.parseInt(words[1]) - 1;
        String channel = GROUP + words[5];
        MediaDriver.Context context = new MediaDriver.Context()
            .aeronDirectoryName(words[6])
            .dirDeleteOnStart(true)
            .threadingMode(ThreadingMode.SHARED)
            .sharedIdleStrategy(idle())
            .termBufferSparseFile(true)
            .mtuLength(1472)
            .publicationTermBufferLength(16 << 20)
            .initialWindowLength(512 << 10)
            .imageLivenessTimeoutNs(PATIENCE)
            .publicationConnectionTimeoutNs(PATIENCE)
            .socketRcvbufLength(16 << 20)
            .socketSndbufLength(1 << 20);
        MediaDriver driver = MediaDriver.launch(context);
        Aeron aeron = Aeron.connect(new Aeron.Context().aeronDirectoryName(driver.aeronDirectoryName()));
        AtomicBoolean goes = listen();
        IdleStrategy idle = idle();
        if (!sends) {
            Subscription subscription = aeron.addSubscription(channel, STREAM);
            say("up");
            while (!subscription.isConnected()) {
                idle.idle();
            }
            say("ready");
            FragmentHandler handler = new FragmentAssembler(load::receive);
            while (true) {
                idle.idle(subscription.poll(handler, FRAGMENTS));
            }
        }
        // Sends only once all receivers are present, and waits for the slowest.
        Publication publication = aeron.addPublication(channel + "|fc=min,g:/" + receivers, STREAM);
        say("up");
        while (!publication.isConnected()) {
            idle.idle();
        }
        say("ready");
        while (!goes.get()) {
            idle.idle();
        }
        UnsafeBuffer message = new UnsafeBuffer(new byte[load.size]);
        for (long number = 0;; number++) {
            message.putLong(0, number);
            while (true) {
                long position = publication.offer(message, 0, load.size);
                if (position > 0) {
                    idle.reset();
                    break;
                }
                if (position == Publication.CLOSED || position == Publication.MAX_POSITION_EXCEEDED) {
                    fail("the stream is gone: " + position);
                }
                // Waits for silent receivers: a receiver that missed something reports it.
                idle.idle();
            }
        }
    }
}
