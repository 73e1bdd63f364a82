//! Reading and writing qcow2 headers.
