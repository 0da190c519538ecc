/* Socket buffers as large as a program asks for, whatever the machine's limit is: preloaded by `compare multicast`, so that
 * nobody is measured with the buffers of a machine that was not set up for it. Needs CAP_NET_ADMIN. */
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
