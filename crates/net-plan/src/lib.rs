//! From a VMI to the interfaces and rules of its pod.
