/* Cyclone DDS: a group is a topic with a reliable writer at the sender and a reader elsewhere. */
#include "node.h"

#include <dds/dds.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"

#define MAX_GROUPS 1024
#define BATCH 16

static dds_entity_t participant;
static dds_entity_t writers[MAX_GROUPS];
static dds_entity_t readers[MAX_GROUPS];

static dds_entity_t checked(dds_entity_t entity, const char *what) {
    if (entity < 0)
        node_fail("check the settings file and the interface", "cannot create a %s: %s", what,
                  dds_strretcode(entity));
    return entity;
}

/* Runs on a receive thread of Cyclone. */
static void on_data(dds_entity_t reader, void *node) {
    void *samples[BATCH];
    dds_sample_info_t infos[BATCH];
    int count;
    samples[0] = NULL;
    while ((count = dds_take(reader, samples, infos, BATCH, BATCH)) > 0) {
        for (int index = 0; index < count; index++) {
            const Message *message = samples[index];
            if (infos[index].valid_data)
                node_deliver(node, message->bytes._buffer, message->bytes._length);
        }
        dds_return_loan(reader, samples, count);
    }
}

static void open_groups(struct node *node) {
    participant = checked(dds_create_participant(DDS_DOMAIN_DEFAULT, NULL, NULL), "participant");
    dds_qos_t *qos = dds_create_qos();
    dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(60));
    dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
    dds_qset_durability(qos, DDS_DURABILITY_VOLATILE);
    dds_listener_t *listener = dds_create_listener(node);
    dds_lset_data_available(listener, on_data);
    for (uint32_t group = 0; group < node_groups(node); group++) {
        char name[32];
        snprintf(name, sizeof name, "group%u", group);
        dds_entity_t topic =
            checked(dds_create_topic(participant, &Message_desc, name, qos, NULL), "topic");
        if (node->role != RECEIVER)
            writers[group] = checked(dds_create_writer(participant, topic, qos, NULL), "writer");
        if (node->role != SENDER)
            readers[group] =
                checked(dds_create_reader(participant, topic, qos, listener), "reader");
    }
    dds_delete_listener(listener);
    dds_delete_qos(qos);
}

/* Returns true when each writer sees all receivers and each reader the senders. */
static bool ready(struct node *node) {
    uint32_t readers_expected = node->role == MEMBER ? node->nodes : node->nodes - 1;
    for (uint32_t group = 0; group < node_groups(node); group++) {
        dds_publication_matched_status_t publication;
        dds_subscription_matched_status_t subscription;
        if (node->role != RECEIVER &&
            (dds_get_publication_matched_status(writers[group], &publication) < 0 ||
             publication.current_count < readers_expected))
            return false;
        if (node->role != SENDER &&
            (dds_get_subscription_matched_status(readers[group], &subscription) < 0 ||
             subscription.current_count < node_senders(node)))
            return false;
    }
    return true;
}

static bool send_message(struct node *node, uint32_t group, const uint8_t *bytes) {
    Message message = {{node->size, node->size, (uint8_t *)bytes, false}};
    dds_return_t result = dds_write(writers[group], &message);
    if (result < 0 && result != DDS_RETCODE_TIMEOUT)
        node_fail("see the log", "cannot write to group %u: %s", group, dds_strretcode(result));
    return result == DDS_RETCODE_OK;
}

static bool has_write_batching(const struct node *node) {
    char text[4096];
    FILE *file = fopen(node->settings, "r");
    if (file == NULL)
        node_fail("pass a readable file", "cannot read '%s'", node->settings);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    return strstr(text, "<WriteBatch>true<") != NULL;
}

/* Batches have no timer. */
static void flush(struct node *node) {
    if (node->role == RECEIVER)
        return;
    for (uint32_t group = 0; group < node_groups(node); group++)
        dds_write_flush(writers[group]);
}

int main(int argc, char **argv) {
    static struct node node;
    struct system system = {.ready = ready, .send = send_message};
    node_start(&node, argc, argv);
    if (has_write_batching(&node))
        system.serve = flush;
    if (node.groups > MAX_GROUPS)
        node_fail("use at most 1024 groups", "--groups is %u", node.groups);
    char uri[4096];
    snprintf(uri, sizeof uri, "file://%s", node.settings);
    setenv("CYCLONEDDS_URI", uri, 1);
    open_groups(&node);
    node_run(&node, &system);
    dds_delete(participant);
    node_finish(&node, "cyclone " CYCLONE_VERSION);
    return 0;
}
