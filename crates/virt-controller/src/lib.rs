//! Reconcilers from VM to VMI to pod.
