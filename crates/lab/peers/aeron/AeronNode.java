import io.aeron.Aeron;
import io.aeron.AeronVersion;
import io.aeron.FragmentAssembler;
import io.aeron.Publication;
import io.aeron.Subscription;
import io.aeron.driver.MediaDriver;
import io.aeron.driver.ThreadingMode;
import java.io.Reader;
import java.nio.file.Files;
import java.util.Properties;
import org.agrona.concurrent.UnsafeBuffer;

/** Aeron: a group is a stream. Driver and client run in the node's loop, on one thread. */
final class AeronNode implements Node.Peer {
    /** Pause between two turns of the driver's and the client's agents without work. */
    private static final long IDLE_NS = 50_000;
    private static final int FRAGMENTS_PER_POLL = 32;
    private static final String ENDPOINT = "aeron:udp?endpoint=239.77.5.1:40456|interface=";

    private final Node node;
    private final MediaDriver driver;
    private final Aeron aeron;
    private final Publication[] publications;
    private final Subscription[] subscriptions;
    private final FragmentAssembler assembler;
    private final UnsafeBuffer outgoing = new UnsafeBuffer(0, 0);

    private AeronNode(Node node, Properties settings) {
        this.node = node;
        String folder = node.folder.resolve("aeron").toString();
        driver = MediaDriver.launch(new MediaDriver.Context()
            .aeronDirectoryName(folder)
            .threadingMode(ThreadingMode.INVOKER)
            .dirDeleteOnShutdown(true));
        aeron = Aeron.connect(new Aeron.Context()
            .aeronDirectoryName(folder)
            .driverAgentInvoker(driver.sharedAgentInvoker())
            .useConductorAgentInvoker(true));
        publications = new Publication[node.isSender() ? node.allGroups() : 0];
        subscriptions = new Subscription[node.isSender() ? 0 : node.allGroups()];
        String channel = ENDPOINT + node.address;
        String receivers = Integer.toString(node.nodes - 1);
        String publication =
            channel + settings.getProperty("carom.publication").replace("{receivers}", receivers);
        String subscription = channel + settings.getProperty("carom.subscription");
        for (int group = 0; group < publications.length; group++) {
            publications[group] = aeron.addExclusivePublication(publication, group + 1);
        }
        for (int group = 0; group < subscriptions.length; group++) {
            subscriptions[group] = aeron.addSubscription(subscription, group + 1);
        }
        byte[] bytes = new byte[node.size];
        assembler = new FragmentAssembler((buffer, offset, length, header) -> {
            if (length == bytes.length) {
                buffer.getBytes(offset, bytes);
                node.deliver(bytes, 0, length);
            }
        });
    }

    @Override
    public boolean ready() {
        for (Publication publication : publications) {
            if (!publication.isConnected()) {
                return false;
            }
        }
        for (Subscription subscription : subscriptions) {
            if (!subscription.isConnected()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public boolean send(int group, byte[] message) {
        outgoing.wrap(message);
        long result = publications[group].offer(outgoing);
        if (result == Publication.CLOSED || result == Publication.MAX_POSITION_EXCEEDED) {
            throw new IllegalStateException("the publication of group " + group + " is closed");
        }
        return result > 0;
    }

    @Override
    public int serve() {
        int work = driver.sharedAgentInvoker().invoke() + aeron.conductorAgentInvoker().invoke();
        for (Subscription subscription : subscriptions) {
            work += subscription.poll(assembler, FRAGMENTS_PER_POLL);
        }
        return work;
    }

    @Override
    public long idleNs() {
        return IDLE_NS;
    }

    public static void main(String[] arguments) throws Exception {
        Node node = new Node(arguments);
        Properties settings = new Properties();
        try (Reader reader = Files.newBufferedReader(node.settings)) {
            settings.load(reader);
        }
        settings.forEach((name, value) -> System.setProperty((String) name, (String) value));
        AeronNode peer = new AeronNode(node, settings);
        node.run(peer);
        node.finish("aeron " + AeronVersion.VERSION);
        peer.aeron.close();
        peer.driver.close();
    }
}
