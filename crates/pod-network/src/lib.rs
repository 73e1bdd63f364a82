//! A network for the pods of one host.
