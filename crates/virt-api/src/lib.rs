//! Webhooks and the subresource API.
