/*
 * The node's half of the contract between the bench and a system under test: arguments, messages,
 * records, the commands on the pipes, the report, and the loop that sends at a rate.
 *
 * A program declares a `struct node` and a `struct system`. It calls `node_start`, opens its
 * system, calls `node_run`, closes its system, and calls `node_finish`.
 */
#ifndef CAROM_PEER_NODE_H
#define CAROM_PEER_NODE_H

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
#include <atomic>
using std::atomic_bool;
extern "C" {
#else
#include <stdatomic.h>
#endif

#define HEADER_BYTES 32
#define MAX_NODES 256
#define MAX_POLLED 1024
#define MAX_COUNTERS 16

enum role { SENDER, RECEIVER, MEMBER };

/* An entry of `sent.bin` and `delivered.bin`. */
struct record {
    uint32_t sender;
    uint32_t number;
    uint64_t time_ns;
};

struct records {
    struct record *entries;
    size_t count;
    size_t capacity;
};

struct counter {
    const char *name;
    uint64_t value;
};

struct node {
    enum role role;
    uint32_t index;
    uint32_t nodes;
    uint32_t groups;
    uint32_t messages;
    uint32_t size;
    /* Messages of the background transfer, which has the group after the others. */
    uint32_t background;
    double rate;
    uint8_t magic[8];
    const char *address;
    const char *directory;
    const char *settings;
    const char *peers[MAX_NODES];
    struct records sent;
    /* Guarded by `lock`, because some systems deliver on their own threads. */
    pthread_mutex_t lock;
    struct records delivered;
    uint8_t *seen;
    uint64_t missing;
    uint64_t overflowed;
    uint64_t foreign;
    uint64_t background_bytes;
    uint64_t background_first_ns;
    uint64_t background_last_ns;
    struct counter counters[MAX_COUNTERS];
    size_t counter_count;
    /* The fill pattern of message `n` begins at `pattern[n % 256]`. */
    uint8_t *pattern;
    uint8_t *message;
    uint64_t began_ns;
    uint32_t next;
    bool is_prepared;
    bool is_going;
    /* Also read by the thread of the background transfer. */
    atomic_bool is_stopped;
    char line[64];
    size_t line_length;
};

/* Functions of a system. Every pointer but `ready` may be null. */
struct system {
    /* Returns true once the node is set up. A sender is set up when it sees all receivers. */
    bool (*ready)(struct node *node);
    /* Sends a message. A background transfer calls it on a thread of its own. Returns false if the system does not accept it now; it is offered again. */
    bool (*send)(struct node *node, uint32_t group, const uint8_t *message);
    /* Adds descriptors to poll, lowers the timeout if a timer is due earlier, returns the count. */
    int (*watch)(struct pollfd *polled, int64_t *timeout_ns);
    /* Handles whatever is pending. Called after each poll. */
    void (*serve)(struct node *node);
};

void node_start(struct node *node, int argc, char **argv);
void node_run(struct node *node, const struct system *system);
void node_finish(struct node *node, const char *name);

/* Records a delivery, from any thread. Foreign and damaged messages are counted instead. */
void node_deliver(struct node *node, const uint8_t *message, size_t size);

/* Adds a counter to the report. */
void node_count(struct node *node, const char *name, uint64_t value);

/* Returns the number of groups, with that of a background transfer. */
uint32_t node_groups(const struct node *node);

/* Returns the number of nodes that send. */
uint32_t node_senders(const struct node *node);

/* Returns the value of `name` in a settings file with lines `name value`, or exits. */
double node_setting(const struct node *node, const char *name);

/* Returns the value of the first line `name N value` whose N is not below the receivers' number. */
double node_setting_by_receivers(const struct node *node, const char *name);

uint64_t node_now_ns(void);

/* Prints what failed and a line with the fix, and exits with 1. */
void node_fail(const char *fix, const char *format, ...)
    __attribute__((noreturn, format(printf, 2, 3)));

#ifdef __cplusplus
}
#endif

#endif
