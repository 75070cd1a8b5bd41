/* The contract's arguments, messages, records, commands and report. See node.h. */
#define _GNU_SOURCE
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

/* Messages sent between two polls, so that a sender at full speed still serves repairs. */
#define SENDS_PER_POLL 16
/* Pause before a message that was not accepted is offered again, and between checks for `ready`. */
#define RETRY_NS 50000
#define READY_NS 1000000
#define IDLE_NS 100000000

uint64_t node_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void node_fail(const char *fix, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "error: ");
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\nfix: %s\n", fix);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count, size);
    if (memory == NULL)
        node_fail("send fewer messages", "cannot allocate %zu bytes", count * size);
    return memory;
}

static void parse_magic(struct node *node, const char *text) {
    for (int byte = 0; byte < 8; byte++) {
        unsigned value;
        if (strlen(text) != 16 || sscanf(text + 2 * byte, "%2x", &value) != 1)
            node_fail("pass 16 hexadecimal digits", "--magic '%s' is invalid", text);
        node->magic[byte] = (uint8_t)value;
    }
}

static enum role parse_role(const char *text) {
    const char *names[] = {"sender", "receiver", "member"};
    for (int role = SENDER; role <= MEMBER; role++)
        if (strcmp(text, names[role]) == 0)
            return (enum role)role;
    node_fail("pass sender, receiver or member", "--role '%s' is invalid", text);
}

static void parse_peers(struct node *node, char *text) {
    uint32_t count = 0;
    for (char *peer = strtok(text, ","); peer != NULL; peer = strtok(NULL, ","))
        if (count < MAX_NODES)
            node->peers[count++] = peer;
    if (count != node->nodes)
        node_fail("pass one address per node", "--peers has %u addresses, --nodes is %u", count,
                  node->nodes);
}

static void parse_option(struct node *node, const char *name, char *value, char **peers) {
    if (strcmp(name, "--role") == 0)
        node->role = parse_role(value);
    else if (strcmp(name, "--index") == 0)
        node->index = (uint32_t)atol(value);
    else if (strcmp(name, "--nodes") == 0)
        node->nodes = (uint32_t)atol(value);
    else if (strcmp(name, "--address") == 0)
        node->address = value;
    else if (strcmp(name, "--groups") == 0)
        node->groups = (uint32_t)atol(value);
    else if (strcmp(name, "--messages") == 0)
        node->messages = (uint32_t)atol(value);
    else if (strcmp(name, "--rate") == 0)
        node->rate = atof(value);
    else if (strcmp(name, "--size") == 0)
        node->size = (uint32_t)atol(value);
    else if (strcmp(name, "--background-mib") == 0)
        node->background = (uint32_t)atol(value);
    else if (strcmp(name, "--magic") == 0)
        parse_magic(node, value);
    else if (strcmp(name, "--dir") == 0)
        node->directory = value;
    else if (strcmp(name, "--settings") == 0)
        node->settings = value;
    else if (strcmp(name, "--peers") == 0)
        *peers = value;
    else
        node_fail("see README.md for the arguments", "argument '%s' is unknown", name);
}

void node_start(struct node *node, int argc, char **argv) {
    char *peers = NULL;
    memset(node, 0, sizeof *node);
    for (int index = 1; index + 1 < argc; index += 2)
        parse_option(node, argv[index], argv[index + 1], &peers);
    if (peers == NULL || node->address == NULL || node->directory == NULL || node->settings == NULL)
        node_fail("pass --peers, --address, --dir and --settings", "an argument is missing");
    if (node->groups == 0 || node->size < HEADER_BYTES || node->nodes == 0)
        node_fail("pass at least 1 group, 1 node and 32 bytes", "--groups, --nodes or --size");
    parse_peers(node, peers);
    node->background = (uint32_t)(((uint64_t)node->background << 20) / node->size);
    uint64_t expected = (uint64_t)node->messages * node_senders(node);
    node->missing = node->role == SENDER ? 0 : expected;
    node->seen = allocate(expected + 1, 1);
    node->sent.capacity = node->messages;
    node->sent.entries = allocate(node->sent.capacity + 1, sizeof(struct record));
    /* Room for one duplicate of each message. */
    node->delivered.capacity = 2 * expected;
    node->delivered.entries = allocate(node->delivered.capacity + 1, sizeof(struct record));
    node->message = allocate(node->size, 1);
    node->pattern = allocate(node->size + 256, 1);
    for (uint32_t byte = 0; byte < node->size + 256; byte++)
        node->pattern[byte] = (uint8_t)byte;
    pthread_mutex_init(&node->lock, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
    prctl(PR_SET_TIMERSLACK, 1L);
}

uint32_t node_groups(const struct node *node) {
    return node->groups + (node->background > 0 ? 1 : 0);
}

uint32_t node_senders(const struct node *node) {
    return node->role == MEMBER ? node->nodes : 1;
}

/* A message: magic, sender, number, time of the send call, 8 reserved bytes, fill pattern. */
static void prepare(struct node *node) {
    uint8_t *message = node->message;
    node->began_ns = node_now_ns();
    memcpy(message, node->magic, 8);
    memcpy(message + 8, &node->index, 4);
    memcpy(message + 12, &node->next, 4);
    memcpy(message + 16, &node->began_ns, 8);
    memset(message + 24, 0, 8);
    memcpy(message + HEADER_BYTES, node->pattern + node->next % 256, node->size - HEADER_BYTES);
    node->is_prepared = true;
}

static bool is_intact(const struct node *node, const uint8_t *message, size_t size) {
    uint32_t sender, number;
    if (size != node->size || memcmp(message, node->magic, 8) != 0)
        return false;
    memcpy(&sender, message + 8, 4);
    memcpy(&number, message + 12, 4);
    return sender < node_senders(node) && number < node->messages &&
           memcmp(message + HEADER_BYTES, node->pattern + number % 256, size - HEADER_BYTES) == 0;
}

/* Messages of a background transfer have the inverted magic. */
static bool is_background(const struct node *node, const uint8_t *message, size_t size) {
    if (node->background == 0 || size != node->size)
        return false;
    for (int byte = 0; byte < 8; byte++)
        if ((uint8_t)(message[byte] ^ node->magic[byte]) != 0xff)
            return false;
    return true;
}

static void deliver_background(struct node *node, size_t size, uint64_t now_ns) {
    if (node->background_bytes == 0)
        node->background_first_ns = now_ns;
    node->background_bytes += size;
    node->background_last_ns = now_ns;
}

void node_deliver(struct node *node, const uint8_t *message, size_t size) {
    struct record record = {.time_ns = node_now_ns()};
    bool is_complete = false;
    if (node->role == SENDER)
        return;
    pthread_mutex_lock(&node->lock);
    if (is_background(node, message, size)) {
        deliver_background(node, size, record.time_ns);
    } else if (!is_intact(node, message, size)) {
        node->foreign++;
    } else {
        memcpy(&record.sender, message + 8, 4);
        memcpy(&record.number, message + 12, 4);
        if (node->delivered.count < node->delivered.capacity)
            node->delivered.entries[node->delivered.count++] = record;
        else
            node->overflowed++;
        uint8_t *seen = &node->seen[(uint64_t)record.sender * node->messages + record.number];
        is_complete = *seen == 0 && --node->missing == 0;
        *seen = 1;
    }
    pthread_mutex_unlock(&node->lock);
    if (is_complete)
        puts("complete");
}

/* Sends what is due. Returns the time until the next call. */
static int64_t send_due(struct node *node, const struct system *system, uint64_t start_ns) {
    for (int sends = 0; sends < SENDS_PER_POLL; sends++) {
        if (node->next == node->messages)
            return IDLE_NS;
        if (node->rate > 0) {
            uint64_t due_ns = start_ns + (uint64_t)(node->next * 1e9 / node->rate);
            uint64_t now_ns = node_now_ns();
            if (due_ns > now_ns)
                return (int64_t)(due_ns - now_ns);
        }
        /* A message that was not accepted keeps the time of the first attempt. */
        if (!node->is_prepared)
            prepare(node);
        if (!system->send(node, node->next % node->groups, node->message))
            return RETRY_NS;
        node->is_prepared = false;
        node->sent.entries[node->sent.count++] =
            (struct record){node->index, node->next, node->began_ns};
        if (++node->next == node->messages)
            puts("sent");
    }
    return 0;
}

static void accept_line(struct node *node) {
    if (strcmp(node->line, "go") == 0)
        node->is_going = true;
    else if (strcmp(node->line, "stop") == 0)
        node->is_stopped = true;
}

static void read_commands(struct node *node) {
    char byte;
    ssize_t length;
    while ((length = read(STDIN_FILENO, &byte, 1)) == 1) {
        if (byte == '\n') {
            node->line[node->line_length] = 0;
            node->line_length = 0;
            accept_line(node);
        } else if (node->line_length + 1 < sizeof node->line) {
            node->line[node->line_length++] = byte;
        }
    }
    if (!node->is_stopped && (length == 0 || errno != EAGAIN))
        node_fail("write 'stop' before closing it", "standard input ended");
}

/* Waits for commands and for the system, at most for the timeout, and serves both. */
static void wait_and_serve(struct node *node, const struct system *system, int64_t timeout_ns) {
    struct pollfd polled[MAX_POLLED] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    int count = 1;
    if (system->watch != NULL)
        count += system->watch(polled + 1, &timeout_ns);
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    ppoll(polled, (nfds_t)count, &timeout, NULL);
    if (polled[0].revents != 0)
        read_commands(node);
    if (system->serve != NULL)
        system->serve(node);
}

struct background {
    struct node *node;
    const struct system *system;
};

static void *send_background(void *argument) {
    const struct background *background = argument;
    struct node *node = background->node;
    const struct timespec pause = {0, RETRY_NS};
    uint8_t *message = allocate(node->size, 1);
    for (int byte = 0; byte < 8; byte++)
        message[byte] = (uint8_t)~node->magic[byte];
    for (uint32_t number = 0; number < node->background && !node->is_stopped;) {
        memcpy(message + 12, &number, 4);
        if (background->system->send(node, node->groups, message))
            number++;
        else
            nanosleep(&pause, NULL);
    }
    free(message);
    return NULL;
}

void node_run(struct node *node, const struct system *system) {
    struct background background = {node, system};
    pthread_t thread;
    while (!node->is_stopped && !system->ready(node))
        wait_and_serve(node, system, READY_NS);
    puts("ready");
    while (!node->is_stopped && !node->is_going)
        wait_and_serve(node, system, IDLE_NS);
    bool has_background = node->role == SENDER && node->background > 0;
    if (has_background && pthread_create(&thread, NULL, send_background, &background) != 0)
        node_fail("permit more threads", "cannot start the background transfer");
    uint64_t start_ns = node_now_ns();
    while (!node->is_stopped) {
        int64_t timeout_ns = IDLE_NS;
        if (node->role != RECEIVER)
            timeout_ns = send_due(node, system, start_ns);
        wait_and_serve(node, system, timeout_ns);
    }
    if (has_background)
        pthread_join(thread, NULL);
}

void node_count(struct node *node, const char *name, uint64_t value) {
    if (node->counter_count < MAX_COUNTERS)
        node->counters[node->counter_count++] = (struct counter){name, value};
}

static FILE *create(const struct node *node, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", node->directory, name);
    FILE *file = fopen(path, "w");
    if (file == NULL)
        node_fail("pass a folder that can be written", "cannot create '%s': %s", path,
                  strerror(errno));
    return file;
}

static void write_records(const struct node *node, const char *name,
                          const struct records *records) {
    FILE *file = create(node, name);
    size_t written = fwrite(records->entries, sizeof(struct record), records->count, file);
    if (fclose(file) != 0 || written != records->count)
        node_fail("free disk space", "cannot write %zu records to '%s'", records->count, name);
}

void node_finish(struct node *node, const char *name) {
    if (node->role != RECEIVER)
        write_records(node, "sent.bin", &node->sent);
    write_records(node, "delivered.bin", &node->delivered);
    node_count(node, "foreign", node->foreign);
    if (node->background_bytes > 0) {
        node_count(node, "background_bytes", node->background_bytes);
        node_count(node, "background_ns", node->background_last_ns - node->background_first_ns);
    }
    node_count(node, "unrecorded", node->overflowed);
    FILE *file = create(node, "report.json");
    fprintf(file, "{\"system\": \"%s\", \"counters\": {", name);
    for (size_t index = 0; index < node->counter_count; index++)
        fprintf(file, "%s\"%s\": %lu", index == 0 ? "" : ", ", node->counters[index].name,
                node->counters[index].value);
    fprintf(file, "}}\n");
    fclose(file);
}
