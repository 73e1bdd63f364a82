//! Migrations between two VMIs, each of which has a migration object with the same `migrationID`.
//!
//! The VMIs may be in two namespaces. The end that receives creates the VMI's pod, in which nothing starts before the
//! guest has come; the end that sends has its guest copied there.
//!
//! - `peer` finds the other end;
//! - `match_up` compares the two guests;
//! - `receive` and `send` plan the two ends;
//! - `act` writes the states.
//!
//! **Invariants**: each end writes its own VMI alone, and only what it reads of the other one; the end of the copy is
//! what virt-handler of the old node reports, and if that VMI has ended without a report, the pod of the
//! other one is gone before it counts as failed.

mod act;
mod match_up;
mod peer;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use reconcile::Key;

pub(super) use self::peer::{Other, Peer, peers};
pub(super) use self::receive::plan as receive;
pub(super) use self::send::plan as send;

/// Why an end fails whose other end has failed before.
fn given_up(other: &Key) -> String {
    format!(
        "migration {other} of the other end has ended without a guest, and its events say why: create both again, with \
         another migrationID"
    )
}

/// Where this cluster is reached. There is no listener for other clusters in this version: the value names this one.
pub(super) const ADDRESS: &str = model::SYNCHRONIZATION_ADDRESS;
