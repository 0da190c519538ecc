//! Every schedule within small bounds.
