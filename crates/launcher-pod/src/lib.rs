//! From a VMI to the pod it runs in.
