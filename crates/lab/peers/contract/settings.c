/* Settings files of systems without a format of their own: lines `name value`, `#` for comments. */
#include "node.h"

#include <errno.h>
#include <string.h>

static FILE *open_settings(const struct node *node) {
    FILE *file = fopen(node->settings, "r");
    if (file == NULL)
        node_fail("pass a file of this system's folder", "cannot read --settings '%s': %s",
                  node->settings, strerror(errno));
    return file;
}

double node_setting(const struct node *node, const char *name) {
    FILE *file = open_settings(node);
    char line[512], key[64];
    double value = 0;
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, file) != NULL)
        is_found = sscanf(line, "%63s %lf", key, &value) == 2 && strcmp(key, name) == 0;
    fclose(file);
    if (!is_found)
        node_fail("add a line with its name and a number", "'%s' lacks the setting %s",
                  node->settings, name);
    return value;
}

double node_setting_by_receivers(const struct node *node, const char *name) {
    FILE *file = open_settings(node);
    char line[512], key[64];
    double value = 0;
    unsigned limit;
    bool is_found = false;
    while (!is_found && fgets(line, sizeof line, file) != NULL)
        is_found = sscanf(line, "%63s %u %lf", key, &limit, &value) == 3 &&
                   strcmp(key, name) == 0 && limit + 1 >= node->nodes;
    fclose(file);
    if (!is_found)
        node_fail("add a line with its name, a number of receivers and the value",
                  "'%s' lacks the setting %s for %u receivers", node->settings, name,
                  node->nodes - 1);
    return value;
}
