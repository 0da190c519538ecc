//! Trust: which datagrams are accepted ([pkt-2], [pkt-3]).
//!
//! [`seal`] makes tags, [`keys`] selects the key, [`window`] detects repeated numbers, and [`gate`]
//! joins them: what it admits is from a known peer in a known boot, for this node, and new.

pub mod gate;
pub mod keys;
pub mod refusal;
pub mod seal;
pub mod window;

pub use gate::{Admitted, Gate, Introduction};
pub use keys::{Key, Keys};
pub use refusal::{Refusal, Refusals};
pub use seal::{Group, Place, Seal};
