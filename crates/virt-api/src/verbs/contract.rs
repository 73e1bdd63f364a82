//! What a request takes and returns: its body, its query and its codes. The `OpenAPI` documents are made
//! from it, and a test compares it with the list of facts.

/// What a request takes and returns.
#[derive(Debug, Clone, Copy)]
pub struct Contract {
    /// The type of the body, if there is one.
    pub body: Option<&'static str>,
    /// The parameters of the query, each with its type.
    pub query: &'static [(&'static str, &'static str)],
    pub answer: Answer,
    /// The codes of refusals of this verb, besides those of every verb.
    pub refusals: &'static [u16],
}

/// The answer to a request that succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Done, without a body.
    Done,
    /// To be done, without a body.
    Accepted,
    /// An object of this type.
    Object(&'static str),
    /// An object of no declared type.
    Json,
    Png,
    Websocket,
}

impl Answer {
    pub const fn code(self) -> u16 {
        match self {
            Self::Websocket => 101,
            Self::Done | Self::Object(_) | Self::Json | Self::Png => 200,
            Self::Accepted => 202,
        }
    }

    /// The media type of the body, if there is one.
    pub(crate) const fn media_type(self) -> Option<&'static str> {
        match self {
            Self::Object(_) | Self::Json => Some("application/json"),
            Self::Png => Some("image/png"),
            Self::Done | Self::Accepted | Self::Websocket => None,
        }
    }
}

impl Contract {
    pub(super) const fn new(answer: Answer, refusals: &'static [u16]) -> Self {
        Self {
            body: None,
            query: &[],
            answer,
            refusals,
        }
    }

    pub(super) const fn with_body(self, body: &'static str) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    pub(super) const fn with_query(self, query: &'static [(&'static str, &'static str)]) -> Self {
        Self { query, ..self }
    }
}
