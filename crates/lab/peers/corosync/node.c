/* corosync: the node starts a daemon of its own, and a group is a closed process group (cpg). */
#define _GNU_SOURCE
#include "node.h"

#include <corosync/cpg.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_GROUPS 64

struct group {
    cpg_handle_t handle;
    size_t members;
};

static struct group groups[MAX_GROUPS];
static uint32_t opened;
static struct node node;
static pid_t daemon_pid;

/* Writes the daemon's configuration: the settings, followed by what depends on the lab. */
static void write_configuration(const char *path) {
    FILE *settings = fopen(node.settings, "r"), *file = fopen(path, "w");
    int byte;
    if (settings == NULL || file == NULL)
        node_fail("check --settings and --dir", "cannot copy '%s' to '%s': %s", node.settings, path,
                  strerror(errno));
    while ((byte = fgetc(settings)) != EOF)
        fputc(byte, file);
    fprintf(file, "system {\n    state_dir: %s\n}\nnodelist {\n", node.directory);
    for (uint32_t index = 0; index < node.nodes; index++)
        fprintf(file, "    node {\n        nodeid: %u\n        ring0_addr: %s\n    }\n", index + 1,
                node.peers[index]);
    fprintf(file, "}\n");
    fclose(settings);
    fclose(file);
}

/* The daemon locks /run/corosync.pid and leaves files in /dev/shm. Each node has its own of both. */
static void start_daemon(void) {
    static char path[4096];
    if (strncmp(node.directory, "/run/", 5) == 0 || strncmp(node.directory, "/dev/shm/", 9) == 0)
        node_fail("pass a folder outside of /run and /dev/shm", "--dir '%s' would be hidden",
                  node.directory);
    snprintf(path, sizeof path, "%s/corosync.conf", node.directory);
    write_configuration(path);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL) != 0 ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL) != 0)
        node_fail("run as root or in a user namespace", "cannot mount a folder: %s",
                  strerror(errno));
    daemon_pid = fork();
    if (daemon_pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execlp("corosync", "corosync", "-f", "-c", path, NULL);
        node_fail("install corosync", "cannot start corosync: %s", strerror(errno));
    }
}

static void on_delivery(cpg_handle_t handle, const struct cpg_name *name, uint32_t nodeid,
                        uint32_t pid, void *message, size_t size) {
    (void)handle, (void)name, (void)nodeid, (void)pid;
    node_deliver(&node, message, size);
}

static void on_change(cpg_handle_t handle, const struct cpg_name *name,
                      const struct cpg_address *members, size_t count,
                      const struct cpg_address *left, size_t left_count,
                      const struct cpg_address *joined, size_t joined_count) {
    (void)name, (void)members, (void)left, (void)left_count, (void)joined, (void)joined_count;
    for (uint32_t group = 0; group < opened; group++)
        if (groups[group].handle == handle)
            groups[group].members = count;
}

/* Joins one group. Returns false while the daemon is not ready. */
static bool open_group(uint32_t group) {
    static cpg_callbacks_t callbacks = {.cpg_deliver_fn = on_delivery, .cpg_confchg_fn = on_change};
    cpg_handle_t handle;
    struct cpg_name name;
    if (cpg_initialize(&handle, &callbacks) != CS_OK)
        return false;
    name.length = (uint32_t)snprintf(name.value, sizeof name.value, "group%u", group);
    if (cpg_join(handle, &name) != CS_OK) {
        cpg_finalize(handle);
        return false;
    }
    groups[opened++].handle = handle;
    return true;
}

/* Returns true when each group has all nodes. */
static bool ready(struct node *self) {
    if (waitpid(daemon_pid, NULL, WNOHANG) == daemon_pid)
        node_fail("repeat the run; see the log", "corosync ended before it was ready");
    while (opened < self->groups)
        if (!open_group(opened))
            return false;
    for (uint32_t group = 0; group < opened; group++)
        if (groups[group].members < self->nodes)
            return false;
    return true;
}

static bool send_message(struct node *self, uint32_t group, const uint8_t *message) {
    struct iovec part = {(void *)message, self->size};
    cs_error_t result = cpg_mcast_joined(groups[group].handle, CPG_TYPE_AGREED, &part, 1);
    if (result != CS_OK && result != CS_ERR_TRY_AGAIN)
        node_fail("see the log", "cannot send to group %u: cpg error %d", group, result);
    return result == CS_OK;
}

static int watch(struct pollfd *polled, int64_t *timeout_ns) {
    (void)timeout_ns;
    for (uint32_t group = 0; group < opened; group++) {
        polled[group].events = POLLIN;
        cpg_fd_get(groups[group].handle, &polled[group].fd);
    }
    return (int)opened;
}

static void serve(struct node *self) {
    (void)self;
    for (uint32_t group = 0; group < opened; group++)
        cpg_dispatch(groups[group].handle, CS_DISPATCH_ALL);
}

int main(int argc, char **argv) {
    const struct system system = {
        .ready = ready, .send = send_message, .watch = watch, .serve = serve};
    node_start(&node, argc, argv);
    if (node.groups > MAX_GROUPS)
        node_fail("use at most 64 groups", "--groups is %u", node.groups);
    start_daemon();
    node_run(&node, &system);
    kill(daemon_pid, SIGKILL);
    waitpid(daemon_pid, NULL, 0);
    node_finish(&node, "corosync " COROSYNC_VERSION);
    return 0;
}
