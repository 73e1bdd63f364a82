//! What an API server does to objects, as pure functions.
