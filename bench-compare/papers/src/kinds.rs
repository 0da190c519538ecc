//! Kinds of experiments, with one file per kind. Kinds that only repeat a load for each number of
//! clients are in [`run`](crate::run).

pub(crate) mod bare;
pub(crate) mod echo;
pub(crate) mod failure;
pub(crate) mod grid;
pub(crate) mod rates;
pub(crate) mod segment;
pub(crate) mod ways;
