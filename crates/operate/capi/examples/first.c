/*
 * A first program: a single node, and three values, each delivered to a callback.
 *
 *   first DATA
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "quorate.h"

static int open_submits;
static uint64_t last_delivered;

static void done(void *argument, int code, uint64_t slot)
{
    open_submits--;
    if (code == QUORATE_OK)
        printf("%s is in slot %" PRIu64 "\n", (const char *)argument, slot);
    else
        printf("%s: %s\n", (const char *)argument, quorate_last_error()->detail);
}

static int deliver(void *argument, uint64_t slot, const void *value, size_t length)
{
    (void)argument;
    printf("delivered %" PRIu64 ": %.*s\n", slot, (int)length, (const char *)value);
    last_delivered = slot;
    return 0;
}

int main(int count, char **arguments)
{
    static const char *const values[] = {"one", "two", "three"};
    quorate_options *options = quorate_options_new();
    quorate *node = NULL;
    if (quorate_options_set(options, "data", count > 1 ? arguments[1] : "first-data") != QUORATE_OK ||
        quorate_start(options, &node) != QUORATE_OK) {
        const quorate_error *error = quorate_last_error();
        fprintf(stderr, "%s: %s\n%s\n", error->what, error->detail, error->hint);
        return 1;
    }
    quorate_options_free(options);
    quorate_deliver_from(node, 0, deliver, NULL);
    for (size_t i = 0; i < 3; i++)
        if (quorate_submit(node, values[i], strlen(values[i]), done, (void *)values[i]) == QUORATE_OK)
            open_submits++;
    while (open_submits > 0 || last_delivered < 3)
        if (quorate_dispatch(node, 10000, 0, NULL) != QUORATE_OK)
            break;
    return quorate_close(node) == QUORATE_OK && last_delivered >= 3 ? 0 : 1;
}
