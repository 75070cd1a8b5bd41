/* OpenPGM over UDP: a group is a socket with a multicast address and ports of its own. */
#include "node.h"

#include <pgm/pgm.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define MAX_GROUPS 64
#define FIRST_PORT 7500
#define HEARTBEATS 8
#define MAX_TPDU 1500
/* Messages taken from a socket at a time. */
#define BATCH 32

static pgm_sock_t *sockets[MAX_GROUPS];
static struct pgm_msgv_t batch[BATCH];
/* Losses that the library gave up. */
static uint64_t resets;

static void set(pgm_sock_t *socket, int option, int value) {
    if (!pgm_setsockopt(socket, IPPROTO_PGM, option, &value, sizeof value))
        node_fail("check the settings file", "option %d of OpenPGM refuses %d", option, value);
}

static int milliseconds(const struct node *node, const char *name) {
    return (int)(node_setting(node, name) * 1000);
}

static void set_buffers(pgm_sock_t *socket) {
    const int send = 2 << 20, receive = 4 << 20;
    pgm_setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &send, sizeof send);
    pgm_setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &receive, sizeof receive);
}

static void set_sender(const struct node *node, pgm_sock_t *socket) {
    double rate = node_setting_by_receivers(node, "tx_rate_mbit") * 1e6 / 8;
    int heartbeats[HEARTBEATS];
    for (int index = 0; index < HEARTBEATS; index++)
        heartbeats[index] = milliseconds(node, "heartbeat_first_ms") << index;
    set(socket, PGM_SEND_ONLY, 1);
    set(socket, PGM_TXW_SQNS, (int)node_setting(node, "window_messages"));
    /* At full speed the groups share the rate that the lab can carry. */
    set(socket, PGM_TXW_MAX_RTE, (int)(rate / (node->rate > 0 ? 1 : node->groups)));
    set(socket, PGM_AMBIENT_SPM, milliseconds(node, "ambient_spm_ms"));
    if (!pgm_setsockopt(socket, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeats, sizeof heartbeats))
        node_fail("check heartbeat_first_ms", "OpenPGM refuses the heartbeats");
}

static void set_receiver(const struct node *node, pgm_sock_t *socket) {
    set(socket, PGM_RECV_ONLY, 1);
    set(socket, PGM_PASSIVE, 0);
    set(socket, PGM_RXW_SQNS, (int)node_setting(node, "window_messages"));
    set(socket, PGM_PEER_EXPIRY, 300 * 1000000);
    set(socket, PGM_SPMR_EXPIRY, milliseconds(node, "spmr_expiry_ms"));
    set(socket, PGM_NAK_BO_IVL, milliseconds(node, "nak_backoff_ms"));
    set(socket, PGM_NAK_RPT_IVL, milliseconds(node, "nak_repeat_ms"));
    set(socket, PGM_NAK_RDATA_IVL, milliseconds(node, "nak_rdata_ms"));
    set(socket, PGM_NAK_DATA_RETRIES, (int)node_setting(node, "nak_retries"));
    set(socket, PGM_NAK_NCF_RETRIES, (int)node_setting(node, "nak_retries"));
}

static void join(pgm_sock_t *socket, const struct node *node, uint32_t group) {
    char network[64];
    struct pgm_addrinfo_t *found = NULL;
    pgm_error_t *error = NULL;
    snprintf(network, sizeof network, "%s;239.77.%u.%u", node->address, 3 + group / 250,
             1 + group % 250);
    if (!pgm_getaddrinfo(network, NULL, &found, &error))
        node_fail("check the interface", "cannot use '%s': %s", network, error->message);
    struct pgm_sockaddr_t address = {.sa_port = 7500, .sa_addr.sport = 0};
    struct pgm_interface_req_t interface = {.ir_interface = found->ai_recv_addrs[0].gsr_interface};
    pgm_gsi_create_from_data(&address.sa_addr.gsi, (const uint8_t *)node->address,
                             strlen(node->address));
    memcpy(&interface.ir_address, &found->ai_send_addrs[0].gsr_addr, sizeof(struct sockaddr_in));
    if (!pgm_bind3(socket, &address, sizeof address, &interface, sizeof interface, &interface,
                   sizeof interface, &error))
        node_fail("check the ports", "cannot bind a socket: %s", error->message);
    pgm_setsockopt(socket, IPPROTO_PGM, PGM_JOIN_GROUP, &found->ai_recv_addrs[0],
                   sizeof(struct group_req));
    pgm_setsockopt(socket, IPPROTO_PGM, PGM_SEND_GROUP, &found->ai_send_addrs[0],
                   sizeof(struct group_req));
    pgm_freeaddrinfo(found);
}

static pgm_sock_t *open_group(const struct node *node, uint32_t group) {
    pgm_sock_t *socket = NULL;
    pgm_error_t *error = NULL;
    if (!pgm_socket(&socket, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error))
        node_fail("see the log", "cannot open a socket: %s", error->message);
    set(socket, PGM_UDP_ENCAP_UCAST_PORT, FIRST_PORT + (int)group);
    set(socket, PGM_UDP_ENCAP_MCAST_PORT, FIRST_PORT + (int)group);
    set_buffers(socket);
    set(socket, PGM_MTU, MAX_TPDU);
    if (node->role == SENDER)
        set_sender(node, socket);
    else
        set_receiver(node, socket);
    join(socket, node, group);
    set(socket, PGM_MULTICAST_LOOP, 0);
    set(socket, PGM_MULTICAST_HOPS, 16);
    set(socket, PGM_NOBLOCK, 1);
    if (!pgm_connect(socket, &error))
        node_fail("see the log", "cannot connect a socket: %s", error->message);
    return socket;
}

static bool send_message(struct node *node, uint32_t group, const uint8_t *message) {
    return pgm_send(sockets[group], message, node->size, NULL) == PGM_IO_STATUS_NORMAL;
}

/* Joins the parts of a message. With 1 KiB there is one. */
static void deliver(struct node *node, const struct pgm_msgv_t *message) {
    static uint8_t bytes[65536];
    size_t length = 0;
    for (uint32_t part = 0; part < message->msgv_len; part++) {
        const struct pgm_sk_buff_t *buffer = message->msgv_skb[part];
        if (length + buffer->len > sizeof bytes)
            return;
        memcpy(bytes + length, buffer->data, buffer->len);
        length += buffer->len;
    }
    node_deliver(node, bytes, length);
}

/* Receives messages at a receiver and NAKs at a sender, and lets timers expire. */
static void serve(struct node *node) {
    for (uint32_t group = 0; group < node->groups; group++) {
        size_t length;
        int status;
        do {
            pgm_error_t *error = NULL;
            memset(batch, 0, sizeof batch);
            status = pgm_recvmsgv(sockets[group], batch, BATCH, MSG_ERRQUEUE, &length, &error);
            for (int index = 0; status == PGM_IO_STATUS_NORMAL && index < BATCH; index++)
                if (batch[index].msgv_len > 0)
                    deliver(node, &batch[index]);
            if (error != NULL) {
                fprintf(stderr, "group %u: %s\n", group, error->message);
                pgm_error_free(error);
            }
            if (status == PGM_IO_STATUS_RESET)
                resets++;
        } while (status == PGM_IO_STATUS_NORMAL);
    }
}

static uint32_t group_count;

static int watch(struct pollfd *polled, int64_t *timeout_ns) {
    int count = 0;
    for (uint32_t group = 0; group < group_count; group++) {
        struct timeval left;
        socklen_t size = sizeof left;
        int added = 8;
        pgm_poll_info(sockets[group], polled + count, &added, POLLIN);
        count += added;
        if (pgm_getsockopt(sockets[group], IPPROTO_PGM, PGM_TIME_REMAIN, &left, &size)) {
            int64_t left_ns = (int64_t)left.tv_sec * 1000000000 + left.tv_usec * 1000;
            if (left_ns < *timeout_ns)
                *timeout_ns = left_ns;
        }
    }
    return count;
}

/* A sender of OpenPGM does not see its receivers. */
static bool ready(struct node *node) {
    (void)node;
    return true;
}

int main(int argc, char **argv) {
    static struct node node;
    const struct system system = {
        .ready = ready, .send = send_message, .watch = watch, .serve = serve};
    pgm_error_t *error = NULL;
    node_start(&node, argc, argv);
    if (node.groups > MAX_GROUPS)
        node_fail("use at most 64 groups", "--groups is %u", node.groups);
    if (!pgm_init(&error))
        node_fail("see the log", "cannot start OpenPGM: %s", error->message);
    for (uint32_t group = 0; group < node.groups; group++)
        sockets[group] = open_group(&node, group);
    group_count = node.groups;
    node_run(&node, &system);
    for (uint32_t group = 0; group < node.groups; group++)
        pgm_close(sockets[group], false);
    node_count(&node, "unrecoverable_losses", resets);
    node_finish(&node, "openpgm " OPENPGM_VERSION);
    return 0;
}
