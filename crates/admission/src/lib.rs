//! Defaults and checks of the API, as pure functions.
