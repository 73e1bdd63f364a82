//! What our reconcilers share.
