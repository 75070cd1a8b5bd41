import org.jgroups.BytesMessage;
import org.jgroups.JChannel;
import org.jgroups.Message;
import org.jgroups.Receiver;
import org.jgroups.Version;
import org.jgroups.fork.ForkChannel;
import org.jgroups.protocols.FRAG2;
import org.jgroups.protocols.SEQUENCER;
import org.jgroups.protocols.pbcast.GMS;
import org.jgroups.stack.ProtocolStack;

/**
 * JGroups: one channel per node. With several groups, each is a fork channel of it. Members send
 * through SEQUENCER, which orders all messages at the coordinator.
 */
final class JGroupsNode implements Node.Peer {
    /** The first node must be alone when it starts, so that it becomes the only coordinator. */
    private static final int JOIN_DELAY_MS = 2500;

    private final Node node;
    private final JChannel channel;
    private final JChannel[] groups;

    private JGroupsNode(Node node) throws Exception {
        this.node = node;
        System.setProperty("jgroups.bind_addr", node.address);
        channel = new JChannel(node.settings.toString());
        if (node.isMember()) {
            ProtocolStack stack = channel.getProtocolStack();
            stack.insertProtocol(new SEQUENCER(), ProtocolStack.Position.ABOVE, GMS.class);
        }
        groups = new JChannel[node.groups];
        if (node.groups == 1) {
            groups[0] = channel;
            channel.setReceiver(new Deliveries());
        }
        Thread.sleep(node.index == 0 ? 0 : JOIN_DELAY_MS);
        channel.connect("carom");
        for (int group = 0; node.groups > 1 && group < node.groups; group++) {
            ForkChannel fork = new ForkChannel(channel, "groups", "group" + group, true,
                ProtocolStack.Position.ABOVE, FRAG2.class);
            fork.setReceiver(new Deliveries());
            fork.connect("carom");
            groups[group] = fork;
        }
    }

    /** Runs on threads of JGroups. */
    private final class Deliveries implements Receiver {
        @Override
        public void receive(Message message) {
            node.deliver(message.getArray(), message.getOffset(), message.getLength());
        }
    }

    @Override
    public boolean ready() {
        return channel.getView().size() == node.nodes;
    }

    @Override
    public boolean send(int group, byte[] bytes) throws Exception {
        // The channel keeps the array until the message is stable.
        Message message = new BytesMessage(null, bytes.clone());
        if (!node.isMember()) {
            message.setFlag(Message.TransientFlag.DONT_LOOPBACK);
        }
        groups[group].send(message);
        return true;
    }

    @Override
    public int serve() {
        return 0;
    }

    /** The threads of JGroups deliver: the loop of the node only waits for commands. */
    @Override
    public long idleNs() {
        return 10_000_000;
    }

    public static void main(String[] arguments) throws Exception {
        Node node = new Node(arguments);
        JGroupsNode peer = new JGroupsNode(node);
        node.run(peer);
        node.finish("jgroups " + Version.printVersion());
        // Threads of JGroups would delay the exit.
        Runtime.getRuntime().halt(0);
    }
}
