/*
 * An attached program: submits numbered values without waiting for each one, receives all values meanwhile, and
 * checks that each of its values is delivered once, and slots in order. One poll loop, no threads.
 *
 *   load ADDRESSES HOW_MANY NAME
 *
 * Prints "begun" after the first outcome, and at the end "acknowledged A unknown U delivered D slots FIRST-LAST".
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quorate.h"

static int acknowledged, unknown, delivered, wrong, open_submits;
static uint64_t last_slot, first_own, last_own;
static unsigned char *seen;
static int values;
static const char *name;

static void done(void *argument, int code, uint64_t slot)
{
    (void)argument;
    open_submits--;
    if (code == QUORATE_OK) {
        if (acknowledged++ == 0) {
            printf("begun\n");
            fflush(stdout);
        }
        if (first_own == 0 || slot < first_own)
            first_own = slot;
        if (slot > last_own)
            last_own = slot;
    } else {
        unknown++;
        fprintf(stderr, "%s: %s\n", quorate_code_name(code), quorate_last_error()->detail);
    }
}

static int deliver(void *argument, uint64_t slot, const void *value, size_t length)
{
    char text[256];
    (void)argument;
    if (last_slot != 0 && slot != last_slot + 1) {
        fprintf(stderr, "slot %" PRIu64 " after %" PRIu64 "\n", slot, last_slot);
        wrong++;
    }
    last_slot = slot;
    if (length >= sizeof text)
        return 0;
    memcpy(text, value, length);
    text[length] = 0;
    size_t named = strlen(name);
    if (strncmp(text, name, named) == 0 && text[named] == ' ') {
        int number = atoi(text + named);
        if (number < 0 || number >= values || seen[number]++) {
            fprintf(stderr, "%s again, in slot %" PRIu64 "\n", text, slot);
            wrong++;
        }
        delivered++;
    }
    return 0;
}

int main(int count, char **arguments)
{
    if (count < 4)
        return 2;
    values = atoi(arguments[2]);
    name = arguments[3];
    seen = calloc((size_t)values, 1);
    quorate_options *options = quorate_options_new();
    quorate *client = NULL;
    int fd;
    if (quorate_options_set(options, "attach", arguments[1]) != QUORATE_OK ||
        quorate_options_set(options, "request-ms", "20000") != QUORATE_OK ||
        quorate_attach(options, &client) != QUORATE_OK || quorate_fd(client, &fd) != QUORATE_OK ||
        quorate_deliver_from(client, 0, deliver, NULL) != QUORATE_OK) {
        const quorate_error *error = quorate_last_error();
        fprintf(stderr, "%s: %s\n%s\n", error->what, error->detail, error->hint);
        return 1;
    }
    quorate_options_free(options);
    int submitted = 0;
    while (submitted < values || open_submits > 0 || (unknown == 0 && delivered < values)) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        while (submitted < values && open_submits < 256) {
            char text[256];
            int length = snprintf(text, sizeof text, "%s %d", name, submitted);
            int code = quorate_submit(client, text, (size_t)length, done, NULL);
            if (code == QUORATE_BUSY)
                break;
            if (code != QUORATE_OK)
                return 1;
            submitted++;
            open_submits++;
        }
        if (poll(&poll_fd, 1, 30000) <= 0) {
            fprintf(stderr, "nothing for 30 s: %d acknowledged, %d delivered\n", acknowledged, delivered);
            return 1;
        }
        int code = quorate_dispatch(client, 0, 0, NULL);
        if (code != QUORATE_OK && code != QUORATE_TIMEOUT) {
            fprintf(stderr, "%s: %s\n", quorate_code_name(code), quorate_last_error()->detail);
            return 1;
        }
    }
    printf("acknowledged %d unknown %d delivered %d slots %" PRIu64 "-%" PRIu64 "\n", acknowledged, unknown,
           delivered, first_own, last_own);
    free(seen);
    return quorate_close(client) == QUORATE_OK && wrong == 0 ? 0 : 1;
}
