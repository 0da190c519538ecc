//! Data planes, and the reactor that owns the sockets.
