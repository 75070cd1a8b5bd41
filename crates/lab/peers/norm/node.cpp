// NORM: a group is a session with a multicast address and port of its own, and one stream.
#include "node.h"

#include <normApi.h>

#include <cstring>
#include <vector>

namespace {

constexpr unsigned FIRST_PORT = 6100;
constexpr unsigned MEGABYTE = 1 << 20;

// A session, and the message that is written to or read from its stream.
struct Group {
    NormSessionHandle session;
    NormObjectHandle stream = NORM_OBJECT_INVALID;
    std::vector<char> message;
    unsigned done = 0;
};

NormInstanceHandle instance;
std::vector<Group> groups;
NormFlushMode flush_mode;

unsigned setting(const node *node, const char *name) {
    return static_cast<unsigned>(node_setting(node, name));
}

void check(bool is_done, const char *what) {
    if (!is_done)
        node_fail("check the settings file and the interface", "cannot %s", what);
}

// Starts the sending half. A segment carries one message: a datagram lost is a message lost.
void start_sender(const node *node, Group &group) {
    double rate = node_setting_by_receivers(node, "tx_rate_mbit");
    // At full speed the groups share the rate that the lab can carry.
    NormSetTxRate(group.session, rate * 1e6 / (node->rate > 0 ? 1 : node->groups));
    if (double grtt_ms = node_setting(node, "grtt_ms"); grtt_ms > 0) {
        NormSetGrttEstimate(group.session, grtt_ms / 1e3);
        NormSetGrttMax(group.session, node_setting(node, "grtt_max_ms") / 1e3);
        NormSetGrttProbingInterval(group.session, 0.1, 1.0);
    }
    if (double factor = node_setting(node, "backoff_factor"); factor >= 0)
        NormSetBackoffFactor(group.session, factor);
    if (unsigned size = setting(node, "group_size"); size > 0)
        NormSetGroupSize(group.session, size);
    unsigned buffer = setting(node, "buffer_mb") * MEGABYTE;
    check(NormStartSender(group.session, static_cast<NormSessionId>(node->index + 1), buffer,
                          static_cast<UINT16>(node->size),
                          static_cast<UINT16>(setting(node, "block_data")),
                          static_cast<UINT16>(setting(node, "block_parity"))),
          "start a sender");
    NormSetAutoParity(group.session, static_cast<unsigned char>(setting(node, "auto_parity")));
    check(NormSetTxSocketBuffer(group.session, 2 * MEGABYTE), "set the send buffer");
    group.stream = NormStreamOpen(group.session, buffer);
    check(group.stream != NORM_OBJECT_INVALID, "open a stream");
}

void open_groups(const node *node) {
    flush_mode = setting(node, "flush_active") ? NORM_FLUSH_ACTIVE : NORM_FLUSH_PASSIVE;
    instance = NormCreateInstance();
    groups.resize(node->groups);
    for (unsigned index = 0; index < node->groups; index++) {
        Group &group = groups[index];
        char address[32];
        snprintf(address, sizeof address, "239.77.%u.%u", 1 + index / 250, 1 + index % 250);
        auto port = static_cast<UINT16>(FIRST_PORT + index);
        group.session = NormCreateSession(instance, address, port, node->index + 1);
        check(group.session != NORM_SESSION_INVALID, "create a session");
        NormSetUserData(group.session, &group);
        check(NormSetMulticastInterface(group.session, "eth0"), "use the interface eth0");
        if (node->role == SENDER) {
            start_sender(node, group);
            continue;
        }
        group.message.resize(node->size);
        NormSetDefaultSyncPolicy(group.session, NORM_SYNC_STREAM);
        check(NormStartReceiver(group.session, setting(node, "buffer_mb") * MEGABYTE),
              "start a receiver");
        check(NormSetRxSocketBuffer(group.session, 4 * MEGABYTE), "set the receive buffer");
    }
}

// A partly accepted message is continued when it is offered again.
bool send_message(node *node, uint32_t index, const uint8_t *message) {
    Group &group = groups[index];
    const char *rest = reinterpret_cast<const char *>(message) + group.done;
    group.done += NormStreamWrite(group.stream, rest, node->size - group.done);
    if (group.done < node->size)
        return false;
    group.done = 0;
    NormStreamFlush(group.stream, true, flush_mode);
    return true;
}

void read_stream(node *node, Group &group, NormObjectHandle stream) {
    for (;;) {
        unsigned length = node->size - group.done;
        if (!NormStreamRead(stream, group.message.data() + group.done, &length)) {
            // The stream has a gap: continue with the next message.
            group.done = 0;
            if (!NormStreamSeekMsgStart(stream))
                return;
            continue;
        }
        group.done += length;
        if (length == 0)
            return;
        if (group.done == node->size) {
            group.done = 0;
            node_deliver(node, reinterpret_cast<uint8_t *>(group.message.data()), node->size);
        }
    }
}

void serve(node *node) {
    NormEvent event;
    pollfd pending = {NormGetDescriptor(instance), POLLIN, 0};
    while (poll(&pending, 1, 0) > 0 && NormGetNextEvent(instance, &event, false)) {
        if (event.type == NORM_RX_OBJECT_UPDATED) {
            auto *group = static_cast<Group *>(const_cast<void *>(NormGetUserData(event.session)));
            read_stream(node, *group, event.object);
        }
    }
}

int watch(pollfd *polled, int64_t *) {
    polled[0] = {NormGetDescriptor(instance), POLLIN, 0};
    return 1;
}

// A sender of NORM does not see its receivers.
bool ready(node *) {
    return true;
}

} // namespace

int main(int argc, char **argv) {
    static node node;
    const struct system system = {
        .ready = ready, .send = send_message, .watch = watch, .serve = serve};
    node_start(&node, argc, argv);
    open_groups(&node);
    node_run(&node, &system);
    NormDestroyInstance(instance);
    node_finish(&node, "norm " NORM_VERSION);
    return 0;
}
