/*
 * A replicated key-value table in plain C: each process has the whole table, and runs a node.
 *
 *   kv NODE DATA CLUSTER [LISTEN]
 *
 * It reads commands from standard input, one per line, and answers each with a line:
 *   set KEY VALUE    ok SLOT
 *   get KEY          value VALUE, or none; sees every set that was acknowledged before
 *   count            count KEYS
 *   save             ok SLOT; writes the table to DATA/table, up to SLOT
 *   again            ok; rebuilds the table from the saved table and the retained values
 *   trim SLOT        ok FIRST
 *   status           a JSON document
 *   quit
 *
 * Why it is correct: the table changes only in deliver(), in slot order; the saved table includes its position, and a
 * restart continues delivery from there.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "quorate.h"

#define KEYS_MAX 4096
#define TEXT_MAX 256
#define PATH_SIZE 4096

struct entry {
    char key[TEXT_MAX];
    char value[TEXT_MAX];
};

static struct entry table[KEYS_MAX];
static size_t keys;
/* All slots below this one are in the table. */
static uint64_t next_slot = 1;

static struct entry *find(const char *key)
{
    for (size_t i = 0; i < keys; i++)
        if (strcmp(table[i].key, key) == 0)
            return &table[i];
    return NULL;
}

static void put(const char *key, const char *value)
{
    struct entry *entry = find(key);
    if (entry == NULL) {
        if (keys == KEYS_MAX)
            return; /* the same on every node, since the order is the same */
        entry = &table[keys++];
        snprintf(entry->key, TEXT_MAX, "%s", key);
    }
    snprintf(entry->value, TEXT_MAX, "%s", value);
}

/* A value is KEY, a zero, VALUE. The log may also contain other values, which are ignored on every node. */
static int deliver(void *argument, uint64_t slot, const void *value, size_t length)
{
    const char *text = value;
    const char *middle = length > 0 ? memchr(text, 0, length) : NULL;
    (void)argument;
    if (middle != NULL) {
        char key[TEXT_MAX], content[TEXT_MAX];
        snprintf(key, sizeof key, "%s", text);
        size_t rest = length - (size_t)(middle - text) - 1;
        if (rest >= sizeof content)
            rest = sizeof content - 1;
        memcpy(content, middle + 1, rest);
        content[rest] = 0;
        put(key, content);
    }
    next_slot = slot + 1;
    return 0;
}

static void fail(const char *doing)
{
    const quorate_error *error = quorate_last_error();
    printf("error %s %s: %s%s%s\n", quorate_code_name(error->code), doing, error->detail,
           error->hint[0] ? "; " : "", error->hint);
    fflush(stdout);
}

/* Delivers values until all slots below `end` are in the table. */
static int catch_up(quorate *node, uint64_t end)
{
    while (next_slot < end) {
        int code = quorate_dispatch(node, 10000, 0, NULL);
        if (code != QUORATE_OK)
            return code;
    }
    return QUORATE_OK;
}

static int save(const char *data)
{
    char path[PATH_SIZE], fresh[PATH_SIZE];
    snprintf(path, sizeof path, "%s/table", data);
    snprintf(fresh, sizeof fresh, "%s/table.new", data);
    FILE *file = fopen(fresh, "w");
    if (file == NULL)
        return -1;
    fprintf(file, "%" PRIu64 "\n", next_slot);
    for (size_t i = 0; i < keys; i++)
        fprintf(file, "%s\t%s\n", table[i].key, table[i].value);
    /* Leaves the old table or the new one, even after a crash, and syncs it before anything is trimmed. */
    int bad = fflush(file) != 0 || fsync(fileno(file)) != 0;
    bad |= fclose(file) != 0;
    return bad || rename(fresh, path) != 0 ? -1 : 0;
}

static void load(const char *data)
{
    char path[PATH_SIZE], line[2 * TEXT_MAX + 2];
    snprintf(path, sizeof path, "%s/table", data);
    keys = 0;
    next_slot = 1;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return;
    if (fgets(line, sizeof line, file) != NULL)
        next_slot = strtoull(line, NULL, 10);
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        char *tab = strchr(line, '\t');
        if (tab != NULL) {
            *tab = 0;
            put(line, tab + 1);
        }
    }
    fclose(file);
}

int main(int count, char **arguments)
{
    if (count < 4) {
        fprintf(stderr, "usage: kv NODE DATA CLUSTER [LISTEN]\n");
        return 2;
    }
    const char *data = arguments[2];
    char folder[PATH_SIZE];
    mkdir(data, 0777);
    snprintf(folder, sizeof folder, "%s/node", data);
    if (getenv("KV_LOG") != NULL)
        quorate_log_to_stderr(getenv("KV_LOG"));

    quorate_options *options = quorate_options_new();
    int bad = quorate_options_set(options, "data", folder);
    bad |= quorate_options_set(options, "node", arguments[1]);
    bad |= quorate_options_set(options, "cluster", arguments[3]);
    if (count > 4)
        bad |= quorate_options_set(options, "listen", arguments[4]);
    quorate *node = NULL;
    if (bad || quorate_start(options, &node) != QUORATE_OK) {
        fail("start");
        return 1;
    }
    quorate_options_free(options);

    load(data);
    if (quorate_deliver_from(node, next_slot, deliver, NULL) != QUORATE_OK) {
        fail("deliver");
        return 1;
    }
    printf("up %s\n", arguments[1]);
    fflush(stdout);

    char line[3 * TEXT_MAX];
    while (fgets(line, sizeof line, stdin) != NULL) {
        char key[TEXT_MAX] = "", value[TEXT_MAX] = "";
        uint64_t slot = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "set %255s %255s", key, value) == 2) {
            char bytes[2 * TEXT_MAX];
            size_t length = strlen(key) + 1 + strlen(value);
            memcpy(bytes, key, strlen(key) + 1);
            memcpy(bytes + strlen(key) + 1, value, strlen(value));
            if (quorate_submit_wait(node, bytes, length, 10000, &slot) != QUORATE_OK)
                fail("set");
            else
                printf("ok %" PRIu64 "\n", slot);
        } else if (sscanf(line, "get %255s", key) == 1) {
            struct entry *entry;
            if (quorate_sync(node, 10000, &slot) != QUORATE_OK || catch_up(node, slot) != QUORATE_OK)
                fail("get");
            else if ((entry = find(key)) != NULL)
                printf("value %s\n", entry->value);
            else
                printf("none\n");
        } else if (strcmp(line, "count") == 0) {
            if (quorate_sync(node, 10000, &slot) != QUORATE_OK || catch_up(node, slot) != QUORATE_OK)
                fail("count");
            else
                printf("count %zu\n", keys);
        } else if (strcmp(line, "save") == 0) {
            if (quorate_sync(node, 10000, &slot) != QUORATE_OK || catch_up(node, slot) != QUORATE_OK)
                fail("save");
            else if (save(data) != 0)
                printf("error save: %s\n", strerror(errno));
            else
                printf("ok %" PRIu64 "\n", next_slot);
        } else if (strcmp(line, "again") == 0) {
            load(data);
            if (quorate_recover(node, next_slot) != QUORATE_OK)
                fail("again");
            else
                printf("ok\n");
        } else if (sscanf(line, "trim %" SCNu64, &slot) == 1) {
            if (quorate_trim_wait(node, slot, 10000, &slot) != QUORATE_OK)
                fail("trim");
            else
                printf("ok %" PRIu64 "\n", slot);
        } else if (strcmp(line, "status") == 0) {
            static char text[65536];
            if (quorate_status(node, 2000, text, sizeof text, NULL) != QUORATE_OK)
                fail("status");
            else
                printf("%s\n", text);
        } else if (strcmp(line, "quit") == 0) {
            break;
        } else {
            printf("error: no such command\n");
        }
        fflush(stdout);
    }
    if (quorate_close(node) != QUORATE_OK) {
        fail("close");
        return 1;
    }
    return 0;
}
