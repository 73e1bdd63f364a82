//! The webhooks behind a real API server, and the rights of users to verbs.

mod rights;
mod webhooks;
