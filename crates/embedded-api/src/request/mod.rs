//! Parses path, query, headers and body of requests.

pub(crate) mod body;
pub(crate) mod negotiate;
pub(crate) mod path;
pub(crate) mod query;

pub(crate) use body::{Format, Payload};
pub(crate) use negotiate::{Accepted, Encoding, Offer, Representation};
pub(crate) use path::ResourcePath;
pub(crate) use query::Query;
