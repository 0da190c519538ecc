/* The C library's standard streams would call these. Nothing opens or flushes one. */
#include <wasi/api.h>

__wasi_errno_t __wrap___wasi_fd_close(__wasi_fd_t file) {
  (void)file;
  __builtin_trap();
}
__wasi_errno_t __wrap___wasi_fd_read(__wasi_fd_t file, const __wasi_iovec_t *list, size_t count,
                              __wasi_size_t *done) {
  (void)file, (void)list, (void)count, (void)done;
  __builtin_trap();
}
__wasi_errno_t __wrap___wasi_fd_write(__wasi_fd_t file, const __wasi_ciovec_t *list, size_t count,
                               __wasi_size_t *done) {
  (void)file, (void)list, (void)count, (void)done;
  __builtin_trap();
}
__wasi_errno_t __wrap___wasi_fd_seek(__wasi_fd_t file, __wasi_filedelta_t offset, __wasi_whence_t whence,
                              __wasi_filesize_t *position) {
  (void)file, (void)offset, (void)whence, (void)position;
  __builtin_trap();
}
