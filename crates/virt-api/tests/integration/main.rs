//! The webhooks behind a real API server, the rights of users to verbs, and the answers of the server to
//! requests for subresources of VMs and of templates.

mod facts;
mod rights;
mod server;
mod subresources;
mod templates;
mod uploads;
mod webhooks;
