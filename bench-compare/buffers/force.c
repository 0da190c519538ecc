/* Gives programs the socket buffers they request, whatever the machine's limit. Preloaded by
 * `compare multicast`, so that no program is limited by the defaults of a machine that was not
 * tuned for it. Needs CAP_NET_ADMIN. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>

int setsockopt(int socket, int level, int name, const void *value, socklen_t length)
{
	static int (*real)(int, int, int, const void *, socklen_t);
	if (!real)
		real = (int (*)(int, int, int, const void *, socklen_t))dlsym(RTLD_NEXT, "setsockopt");
	if (level == SOL_SOCKET && name == SO_RCVBUF && real(socket, level, SO_RCVBUFFORCE, value, length) == 0)
		return 0;
	if (level == SOL_SOCKET && name == SO_SNDBUF && real(socket, level, SO_SNDBUFFORCE, value, length) == 0)
		return 0;
	return real(socket, level, name, value, length);
}
