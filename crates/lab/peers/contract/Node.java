import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.locks.LockSupport;

/**
 * The contract between the bench and a node, for systems in Java: arguments, messages, records, the
 * commands on the pipes, the report, and the loop that sends at a rate. See node.h.
 */
final class Node {
    /** The functions of a system. */
    interface Peer {
        /** Returns true once the node is set up, a sender once it sees all receivers. */
        boolean ready() throws Exception;

        /** Sends a message. Returns false if it is not accepted now; it is offered again. */
        boolean send(int group, byte[] message) throws Exception;

        /** Handles what is pending. Returns 0 if nothing was. */
        int serve() throws Exception;

        /** Returns the pause after a turn without work, in nanoseconds. */
        long idleNs();
    }

    private static final int HEADER_BYTES = 32;
    private static final int RECORD_BYTES = 16;
    private static final int SENDS_PER_TURN = 16;
    /** Time after which a message that was not accepted is offered again. */
    private static final long RETRY_NS = 50_000;
    private static final long SECOND_NS = 1_000_000_000;
    /** Warm-up messages per second. They differ in the magic, and count as foreign. */
    private static final int WARM_UP_RATE = 2000;

    final String role;
    final int index;
    final int nodes;
    final int groups;
    final int messages;
    final int size;
    /** Messages of the background transfer, which has the group after the others. */
    final int background;
    final double rate;
    final String address;
    final Path folder;
    final Path settings;

    private final long magic;
    private final ByteBuffer sent;
    private final ByteBuffer delivered;
    private final boolean[] seen;
    private final byte[] message;
    private long missing;
    private long foreign;
    private long backgroundBytes;
    private long backgroundFirstNs;
    private long backgroundLastNs;
    private int nextBackground;
    private byte[] backgroundMessage;
    private long unrecorded;
    private long beganNs;
    private int next;
    private boolean isPrepared;
    private volatile boolean isGoing;
    private volatile boolean isStopped;

    Node(String[] arguments) {
        Map<String, String> values = new HashMap<>();
        for (int at = 0; at + 1 < arguments.length; at += 2) {
            values.put(arguments[at], arguments[at + 1]);
        }
        role = values.get("--role");
        index = Integer.parseInt(values.get("--index"));
        nodes = Integer.parseInt(values.get("--nodes"));
        groups = Integer.parseInt(values.get("--groups"));
        messages = Integer.parseInt(values.get("--messages"));
        rate = Double.parseDouble(values.get("--rate"));
        size = Integer.parseInt(values.get("--size"));
        long backgroundMib = Long.parseLong(values.getOrDefault("--background-mib", "0"));
        background = (int) ((backgroundMib << 20) / size);
        address = values.get("--address");
        folder = Path.of(values.get("--dir"));
        settings = Path.of(values.get("--settings"));
        // The 8 bytes of the magic are written in the order of its digits.
        magic = Long.reverseBytes(Long.parseUnsignedLong(values.get("--magic"), 16));
        int expected = messages * senders();
        missing = isSender() ? 0 : expected;
        seen = new boolean[expected];
        message = new byte[size];
        sent = records(messages);
        // Room for one duplicate of each message.
        delivered = records(2 * expected);
    }

    boolean isSender() {
        return role.equals("sender");
    }

    boolean isReceiver() {
        return role.equals("receiver");
    }

    boolean isMember() {
        return role.equals("member");
    }

    /** Returns the number of groups, with that of a background transfer. */
    int allGroups() {
        return groups + (background > 0 ? 1 : 0);
    }

    private int senders() {
        return isMember() ? nodes : 1;
    }

    private static ByteBuffer records(int count) {
        return little(ByteBuffer.allocate(count * RECORD_BYTES));
    }

    private static ByteBuffer little(ByteBuffer buffer) {
        return buffer.order(ByteOrder.LITTLE_ENDIAN);
    }

    private void prepare(long magicNow, int number) {
        beganNs = System.nanoTime();
        little(ByteBuffer.wrap(message)).putLong(magicNow).putInt(index).putInt(number)
            .putLong(beganNs).putLong(0);
        for (int at = HEADER_BYTES; at < size; at++) {
            message[at] = (byte) (at - HEADER_BYTES + number);
        }
    }

    /** Records a delivery, from any thread. Foreign and damaged messages are counted instead. */
    synchronized void deliver(byte[] bytes, int offset, int length) {
        long now = System.nanoTime();
        if (isSender()) {
            return;
        }
        ByteBuffer header = little(ByteBuffer.wrap(bytes, offset, length));
        long found = length == size ? header.getLong() : 0;
        if (isGoing && background > 0 && length == size && found == ~magic) {
            backgroundFirstNs = backgroundBytes == 0 ? now : backgroundFirstNs;
            backgroundBytes += length;
            backgroundLastNs = now;
            return;
        }
        if (length != size || found != magic) {
            foreign++;
            return;
        }
        int sender = header.getInt();
        int number = header.getInt();
        if (!isIntact(bytes, offset, sender, number)) {
            foreign++;
            return;
        }
        if (delivered.remaining() < RECORD_BYTES) {
            unrecorded++;
        } else {
            delivered.putInt(sender).putInt(number).putLong(now);
        }
        int place = sender * messages + number;
        if (!seen[place]) {
            seen[place] = true;
            missing--;
            if (missing == 0) {
                print("complete");
            }
        }
    }

    private boolean isIntact(byte[] bytes, int offset, int sender, int number) {
        if (sender < 0 || sender >= senders() || number < 0 || number >= messages) {
            return false;
        }
        for (int at = HEADER_BYTES; at < size; at++) {
            if (bytes[offset + at] != (byte) (at - HEADER_BYTES + number)) {
                return false;
            }
        }
        return true;
    }

    private static void print(String line) {
        System.out.println(line);
        System.out.flush();
    }

    private void readCommands() {
        try (Scanner input = new Scanner(System.in)) {
            while (input.hasNextLine()) {
                String line = input.nextLine();
                isGoing |= line.equals("go");
                isStopped |= line.equals("stop");
            }
        }
        if (!isStopped) {
            System.err.println("error: standard input ended\nfix: write 'stop' before closing it");
            Runtime.getRuntime().halt(1);
        }
    }

    void run(Peer peer) throws Exception {
        Thread commands = new Thread(this::readCommands);
        commands.setDaemon(true);
        commands.start();
        while (!isStopped && !peer.ready()) {
            turn(peer, peer.idleNs());
        }
        if (!isReceiver()) {
            warmUp(peer);
        }
        print("ready");
        while (!isStopped && !isGoing) {
            turn(peer, peer.idleNs());
        }
        long startNs = System.nanoTime();
        while (!isStopped) {
            long waitNs = isReceiver() ? peer.idleNs() : sendDue(peer, startNs);
            turn(peer, isSender() && sendBackground(peer) ? 0 : waitNs);
        }
    }

    /** Offers the next messages of the background transfer. Returns true if one was accepted. */
    private boolean sendBackground(Peer peer) throws Exception {
        int before = nextBackground;
        for (int sends = 0; sends < SENDS_PER_TURN && nextBackground < background; sends++) {
            if (backgroundMessage == null) {
                backgroundMessage = new byte[size];
            }
            little(ByteBuffer.wrap(backgroundMessage)).putLong(~magic).putInt(index)
                .putInt(nextBackground);
            if (!peer.send(groups, backgroundMessage)) {
                break;
            }
            nextBackground++;
        }
        return nextBackground > before;
    }

    private static void turn(Peer peer, long waitNs) throws Exception {
        if (peer.serve() == 0 && waitNs > 0) {
            LockSupport.parkNanos(Math.min(waitNs, peer.idleNs()));
        }
    }

    /** Lets the compiler see the data path: seconds of messages that the receivers ignore. */
    private void warmUp(Peer peer) throws Exception {
        long startNs = System.nanoTime();
        long endNs = startNs + Integer.getInteger("carom.warm_up_s", 0) * SECOND_NS;
        int number = 0;
        while (!isStopped && System.nanoTime() < endNs) {
            long waitNs = RETRY_NS;
            if (System.nanoTime() - startNs >= number * SECOND_NS / WARM_UP_RATE) {
                prepare(~magic, number);
                if (peer.send(number % groups, message)) {
                    number++;
                    waitNs = 0;
                }
            }
            turn(peer, waitNs);
        }
    }

    /** Sends what is due. Returns the time until the next call. */
    private long sendDue(Peer peer, long startNs) throws Exception {
        for (int sends = 0; sends < SENDS_PER_TURN; sends++) {
            if (next == messages) {
                return peer.idleNs();
            }
            long waitNs = rate > 0 ? startNs + (long) (next * 1e9 / rate) - System.nanoTime() : 0;
            if (waitNs > 0) {
                return waitNs;
            }
            // A message that was not accepted keeps the time of the first attempt.
            if (!isPrepared) {
                prepare(magic, next);
                isPrepared = true;
            }
            if (!peer.send(next % groups, message)) {
                return RETRY_NS;
            }
            isPrepared = false;
            sent.putInt(index).putInt(next).putLong(beganNs);
            if (++next == messages) {
                print("sent");
            }
        }
        return 0;
    }

    void finish(String system) throws IOException {
        if (!isReceiver()) {
            write("sent.bin", sent);
        }
        synchronized (this) {
            write("delivered.bin", delivered);
        }
        String counters = String.format(
            "{\"foreign\": %d, \"unrecorded\": %d%s}", foreign, unrecorded, backgroundCounters());
        String report = String.format("{\"system\": \"%s\", \"counters\": %s}%n", system, counters);
        Files.writeString(folder.resolve("report.json"), report, StandardCharsets.UTF_8);
    }

    private synchronized String backgroundCounters() {
        return backgroundBytes == 0 ? "" : String.format(
            ", \"background_bytes\": %d, \"background_ns\": %d",
            backgroundBytes, backgroundLastNs - backgroundFirstNs);
    }

    private void write(String name, ByteBuffer records) throws IOException {
        byte[] bytes = new byte[records.position()];
        records.flip().get(bytes);
        Files.write(folder.resolve(name), bytes);
    }
}
