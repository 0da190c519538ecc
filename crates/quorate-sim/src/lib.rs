//! A whole cluster in one thread, with everything that can go wrong.
