/* Sends messages to a closed process group of Corosync, or counts the messages delivered: one
 * member of `compare multicast`.
 *
 *     corosync-load ROLE MEMBERS BYTES WARMUP_MS TIME_MS
 *
 * See ../README.md for its input and output. */
#include <corosync/cpg.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Time allowed for a daemon to start. */
#define PATIENCE_NS 20000000000LL
#define MESSAGE_MAX (1 << 20)

static int sends;
static size_t members, joined, size;
static int64_t warmup_ns, time_ns, first_ns, begun_ns;
static uint64_t expected, bytes;
static int told;

static int64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fail(const char *what, int code)
{
	fprintf(stderr, "%s: %d\n", what, code);
	exit(1);
}

static void say(const char *line)
{
	puts(line);
	fflush(stdout);
}

static void delivered(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
		      size_t length)
{
	uint64_t number;
	(void)handle, (void)group, (void)node, (void)pid;
	if (length != size)
		fail("a message of another size", (int)length);
	memcpy(&number, message, sizeof number);
	if (number != expected++)
		fail("a message out of order", (int)number);
	if (sends || told)
		return;
	int64_t now = now_ns();
	if (!first_ns)
		first_ns = now;
	if (!begun_ns) {
		if (now - first_ns >= warmup_ns)
			begun_ns = now;
		return;
	}
	bytes += length;
	if (now - begun_ns >= time_ns) {
		printf("%llu %lld\n", (unsigned long long)bytes, (long long)(now - begun_ns));
		fflush(stdout);
		told = 1;
	}
}

static void changed(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *all, size_t count,
		    const struct cpg_address *left, size_t left_count, const struct cpg_address *come, size_t come_count)
{
	(void)handle, (void)group, (void)all, (void)left, (void)left_count, (void)come, (void)come_count;
	if (count == members && joined != members)
		say("ready");
	if (count < joined && !told && expected > 0)
		fail("a member was lost", (int)count);
	joined = count;
}

static cpg_handle_t enter(void)
{
	cpg_callbacks_t callbacks = { .cpg_deliver_fn = delivered, .cpg_confchg_fn = changed };
	struct cpg_name group = { .length = 7, .value = "compare" };
	struct timespec nap = { .tv_nsec = 20000000 };
	int64_t until = now_ns() + PATIENCE_NS;
	cpg_handle_t handle;
	cs_error_t error;
	while ((error = cpg_initialize(&handle, &callbacks)) != CS_OK) {
		if (now_ns() > until)
			fail("cpg_initialize", error);
		nanosleep(&nap, NULL);
	}
	while ((error = cpg_join(handle, &group)) != CS_OK) {
		if (error != CS_ERR_TRY_AGAIN || now_ns() > until)
			fail("cpg_join", error);
		nanosleep(&nap, NULL);
	}
	return handle;
}

int main(int count, char **words)
{
	if (count != 6)
		fail("usage: corosync-load sender|receiver MEMBERS BYTES WARMUP_MS TIME_MS", count);
	sends = strcmp(words[1], "sender") == 0;
	members = strtoul(words[2], NULL, 10);
	size = strtoul(words[3], NULL, 10);
	warmup_ns = strtoll(words[4], NULL, 10) * 1000000;
	time_ns = strtoll(words[5], NULL, 10) * 1000000;
	if (size < sizeof(uint64_t) || size > MESSAGE_MAX)
		fail("BYTES", (int)size);

	cpg_handle_t handle = enter();
	struct pollfd waits[] = { { .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
	cpg_fd_get(handle, &waits[0].fd);
	say("up");

	char *message = calloc(1, size);
	struct iovec part = { .iov_base = message, .iov_len = size };
	uint64_t number = 0;
	int goes = 0, timeout = -1;
	for (;;) {
		if (poll(waits, 2, timeout) < 0 && errno != EINTR)
			fail("poll", errno);
		if (waits[1].revents) {
			char word[16];
			/* A line means begin; the end of the pipe means stop. */
			if (read(STDIN_FILENO, word, sizeof word) <= 0)
				return 0;
			goes = sends;
		}
		cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ALL);
		if (error != CS_OK && error != CS_ERR_TRY_AGAIN)
			fail("cpg_dispatch", error);
		timeout = -1;
		/* Send a few messages between two polls for deliveries. */
		for (int left = 16; goes && left > 0; left--) {
			memcpy(message, &number, sizeof number);
			error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, &part, 1);
			timeout = error == CS_OK ? 0 : 1;
			if (error == CS_ERR_TRY_AGAIN)
				break;
			if (error != CS_OK)
				fail("cpg_mcast_joined", error);
			number++;
		}
	}
}
