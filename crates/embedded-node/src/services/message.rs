//! Parses DNS messages with one question, and renders queries and responses. Pure.
//!
//! **Invariant.** Parsing terminates for any input: names are read forwards; compressed ones are skipped.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const MAX_NAME: usize = 255;
/// UDP response size without EDNS.
const PLAIN_LIMIT: usize = 512;
/// UDP response size with EDNS that avoids fragmentation.
const EXTENDED_LIMIT: usize = 1232;
/// Seconds; short, as services change.
const TTL: u32 = 5;

const RESPONSE: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_AVAILABLE: u8 = 0x80;

const CLASS_INTERNET: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_PTR: u16 = 12;
const TYPE_TXT: u16 = 16;
const TYPE_SRV: u16 = 33;
const TYPE_ANY: u16 = 255;

/// The type of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Address,
    Alias,
    Pointer,
    Service,
    Text,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// Lowercase, without trailing dot.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Offset of the question's end in its message.
    end: usize,
    limit: usize,
}

impl Question {
    /// Whether `response` repeats the question of `query`.
    pub(crate) fn is_repeated_in(&self, query: &[u8], response: &[u8]) -> bool {
        let asked = query.get(HEADER..self.end).unwrap_or_default();
        let repeated = response.get(HEADER..self.end).unwrap_or_default();
        let is_response = response.get(2).is_some_and(|flags| flags & RESPONSE != 0);
        is_response && asked.eq_ignore_ascii_case(repeated)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Records(Vec<Record>),
    /// The name exists without records of that type.
    Empty,
    /// The name does not exist.
    Unknown,
    /// No server could be queried.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Address(Ipv4Addr),
    Name(Kind, String),
    Service {
        name: String,
        port: u16,
    },
    Text(&'static str),
    /// The address of another name than that of the question.
    AddressOf {
        name: String,
        address: Ipv4Addr,
    },
}

/// The transport of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Datagram,
    Stream,
}

/// Parses a query with one question; `None` for any other message.
pub(crate) fn read(message: &[u8]) -> Option<Question> {
    let header = message.get(..HEADER)?;
    let number = |at: usize| Some(u16::from_be_bytes([*header.get(at)?, *header.get(at + 1)?]));
    let is_query = header.get(2)? & 0xf8 == 0;
    if !is_query || number(4)? != 1 {
        return None;
    }
    let (name, after) = read_name(message, HEADER)?;
    let kind = message.get(after..after + 4)?;
    let (kind, class) = (
        u16::from_be_bytes([*kind.first()?, *kind.get(1)?]),
        u16::from_be_bytes([*kind.get(2)?, *kind.get(3)?]),
    );
    let kind = match (kind, class) {
        (TYPE_A | TYPE_ANY, CLASS_INTERNET) => Kind::Address,
        (TYPE_CNAME, CLASS_INTERNET) => Kind::Alias,
        (TYPE_PTR, CLASS_INTERNET) => Kind::Pointer,
        (TYPE_SRV, CLASS_INTERNET) => Kind::Service,
        (TYPE_TXT, CLASS_INTERNET) => Kind::Text,
        _ => Kind::Other,
    };
    Some(Question {
        name,
        kind,
        end: after + 4,
        // Additional records of a query are assumed to be EDNS.
        limit: if number(10)? > 0 {
            EXTENDED_LIMIT
        } else {
            PLAIN_LIMIT
        },
    })
}

/// A query for the addresses of a name.
pub(crate) fn query(id: u16, name: &str) -> Option<Vec<u8>> {
    const RECURSION_WANTED: u8 = 0x01;
    let [high, low] = id.to_be_bytes();
    let mut out = vec![high, low, RECURSION_WANTED, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    let valid = write_name(name, &mut out);
    out.extend(TYPE_A.to_be_bytes());
    out.extend(CLASS_INTERNET.to_be_bytes());
    valid.then_some(out)
}

/// The addresses in a response to [`query`], of any name: aliases have been followed.
pub(crate) fn addresses(response: &[u8]) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let number = |at: usize| {
        Some(u16::from_be_bytes([
            *response.get(at)?,
            *response.get(at + 1)?,
        ]))
    };
    let mut read = || {
        let (questions, answers) = (number(4)?, number(6)?);
        let mut at = HEADER;
        for _ in 0..questions {
            at = skip_name(response, at)? + 4;
        }
        for _ in 0..answers {
            at = skip_name(response, at)?;
            let (kind, class, length) = (number(at)?, number(at + 2)?, number(at + 8)?);
            let data = response.get(at + 10..at + 10 + usize::from(length))?;
            if (kind, class) == (TYPE_A, CLASS_INTERNET) {
                found.push(Ipv4Addr::from(<[u8; 4]>::try_from(data).ok()?));
            }
            at += 10 + data.len();
        }
        Some(())
    };
    // What was found before the end of a broken message counts.
    let _complete = read().is_some();
    found
}

/// The offset behind a name, which may end with a pointer.
fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        match *message.get(at)? {
            0 => return Some(at + 1),
            pointer if pointer & 0xc0 == 0xc0 => return Some(at + 2),
            length => at += usize::from(length) + 1,
        }
    }
}

/// The first name of a message is never compressed.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        // With a dot before the label, the length of the first label and the end.
        if length > 63 || name.len() + length + 3 > MAX_NAME {
            return None;
        }
        let label = std::str::from_utf8(message.get(at..at + length)?).ok()?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&label.to_ascii_lowercase());
        at += length;
    }
}

/// Renders the response to a query.
pub(crate) fn write(
    message: &[u8],
    question: &Question,
    answer: &Answer,
    transport: Transport,
) -> Vec<u8> {
    let (code, records) = match answer {
        Answer::Records(records) => (0, records.as_slice()),
        Answer::Empty => (0, &[][..]),
        Answer::Failed => (2, &[][..]),
        Answer::Unknown => (3, &[][..]),
    };
    let byte = |at: usize| message.get(at).copied().unwrap_or_default();
    let recursion_wanted = byte(2) & 0x01;
    let mut out = vec![
        byte(0),
        byte(1),
        RESPONSE | AUTHORITATIVE | recursion_wanted,
        RECURSION_AVAILABLE | code,
        0,
        1,
        0,
        0,
        0,
        0,
        0,
        0,
    ];
    out.extend_from_slice(message.get(HEADER..question.end).unwrap_or_default());
    let mut count = 0_u16;
    for record in records {
        let before = out.len();
        let written = write_record(record, &mut out);
        let full = transport == Transport::Datagram && out.len() > question.limit;
        if full || !written {
            out.truncate(before);
            if full && let Some(flags) = out.get_mut(2) {
                *flags |= TRUNCATED;
            }
            break;
        }
        count = count.saturating_add(1);
    }
    if let Some(field) = out.get_mut(6..8) {
        field.copy_from_slice(&count.to_be_bytes());
    }
    out
}

/// Returns `false` if a name is invalid.
fn write_record(record: &Record, out: &mut Vec<u8>) -> bool {
    let mut data = Vec::new();
    let (kind, valid) = match record {
        Record::Address(address) | Record::AddressOf { address, .. } => {
            data.extend(address.octets());
            (TYPE_A, true)
        }
        Record::Name(kind, name) => {
            let number = if *kind == Kind::Pointer {
                TYPE_PTR
            } else {
                TYPE_CNAME
            };
            (number, write_name(name, &mut data))
        }
        Record::Service { name, port } => {
            // Equal priorities and weights.
            data.extend([0, 0, 0, 100]);
            data.extend(port.to_be_bytes());
            (TYPE_SRV, write_name(name, &mut data))
        }
        Record::Text(text) => {
            let length = u8::try_from(text.len());
            data.push(length.unwrap_or_default());
            data.extend(text.bytes());
            (TYPE_TXT, length.is_ok())
        }
    };
    let Ok(length) = u16::try_from(data.len()) else {
        return false;
    };
    let named = if let Record::AddressOf { name, .. } = record {
        write_name(name, out)
    } else {
        // A pointer to the name of the question.
        out.extend([0xc0, 0x0c]);
        true
    };
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_INTERNET.to_be_bytes());
    out.extend(TTL.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(data);
    valid && named
}

fn write_name(name: &str, out: &mut Vec<u8>) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    // The root has no labels.
    let labels = name.split('.').filter(|_| !name.is_empty());
    for label in labels {
        // A label without characters would end the name.
        let length = u8::try_from(label.len()).unwrap_or_default();
        if !(1..64).contains(&length) {
            return false;
        }
        out.push(length);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    // A dot for each label but the last, and the length of the first.
    name.len() + 2 <= MAX_NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        assert!(write_name(name, &mut message));
        message.extend(kind.to_be_bytes());
        message.extend([0, 1]);
        message
    }

    #[test]
    fn response_repeats_the_question() {
        let message = query("Web.n.SVC.cluster.local", TYPE_A);
        let question = read(&message).unwrap();
        assert_eq!(
            (&*question.name, question.kind),
            ("web.n.svc.cluster.local", Kind::Address)
        );
        let answer = Answer::Records(vec![Record::Address([10, 96, 0, 5].into())]);
        let out = write(&message, &question, &answer, Transport::Datagram);
        assert_eq!(out[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(out[4..8], [0, 1, 0, 1]);
        assert_eq!(out[HEADER..question.end], message[HEADER..]);
        let record = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 5];
        assert_eq!(out[question.end..], record);
        let unknown = write(&message, &question, &Answer::Unknown, Transport::Datagram);
        assert_eq!((unknown[3] & 0xf, unknown.len()), (3, question.end));
    }

    #[test]
    fn long_responses_are_truncated_over_udp() {
        let message = query("db.n.svc.cluster.local", TYPE_A);
        let question = read(&message).unwrap();
        let all = (0..100).map(|n| Record::Address([10, 0, 0, n].into()));
        let answer = Answer::Records(all.collect());
        let short = write(&message, &question, &answer, Transport::Datagram);
        assert!(short.len() <= PLAIN_LIMIT && short[2] & TRUNCATED != 0);
        let whole = write(&message, &question, &answer, Transport::Stream);
        assert_eq!((whole[7], whole[2] & TRUNCATED), (100, 0));
    }

    #[test]
    fn all_record_types_are_rendered() {
        for (record, kind) in [
            (Record::Name(Kind::Alias, "example.com".into()), TYPE_CNAME),
            (Record::Name(Kind::Pointer, "a.b".into()), TYPE_PTR),
            (Record::Text("1.1.0"), TYPE_TXT),
            (
                Record::Service {
                    name: "a.b".into(),
                    port: 80,
                },
                TYPE_SRV,
            ),
        ] {
            let mut out = Vec::new();
            assert!(write_record(&record, &mut out));
            assert_eq!(out[2..4], kind.to_be_bytes());
            assert_eq!(usize::from(out[11]), out.len() - 12);
        }
    }

    #[test]
    fn name_that_no_reader_would_understand_is_not_rendered() {
        let long = ["x".repeat(64), ["x"; 128].join(".")];
        let broken = ["a..b", ".a", "a..", ".", ".."].map(str::to_owned);
        for name in long.into_iter().chain(broken) {
            let record = Record::Name(Kind::Alias, name.clone());
            let valid = name == ".";
            assert_eq!(write_record(&record, &mut Vec::new()), valid, "{name:?}");
            assert_eq!(super::query(1, &name).is_some(), valid, "{name:?}");
        }
        for name in ["", ".", "a", "a.b.", &["x"; 127].join(".")] {
            let message = super::query(1, name).unwrap();
            let read = read(&message).unwrap();
            assert_eq!(read.name, name.trim_end_matches('.'));
        }
    }

    #[test]
    fn addresses_are_found_in_a_response_with_aliases() {
        let message = super::query(7, "a.example").unwrap();
        let question = read(&message).unwrap();
        assert_eq!(
            (&*question.name, question.kind),
            ("a.example", Kind::Address)
        );
        let expected = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];
        let mut records = vec![Record::Name(Kind::Alias, "b.example".into())];
        records.extend(expected.map(|address| Record::AddressOf {
            name: "b.example".into(),
            address,
        }));
        let answer = Answer::Records(records);
        let response = write(&message, &question, &answer, Transport::Datagram);
        assert_eq!(addresses(&response), expected);
        for length in 0..response.len() {
            assert!(addresses(&response[..length]).len() < 3);
        }
        assert!(super::query(7, &"x".repeat(64)).is_none());
    }

    #[test]
    fn malformed_messages_do_not_panic() {
        let message = query("web.n.svc.cluster.local", TYPE_A);
        for length in 0..message.len() {
            assert_eq!(read(&message[..length]), None, "{length}");
        }
        for at in 0..message.len() {
            for bit in 0..8 {
                let mut broken = message.clone();
                broken[at] ^= 1 << bit;
                if let Some(question) = read(&broken) {
                    write(&broken, &question, &Answer::Empty, Transport::Datagram);
                }
                addresses(&broken);
            }
        }
        let mut answer = message.clone();
        answer[2] |= RESPONSE;
        assert_eq!(read(&answer), None);
        let mut endless = vec![0; HEADER];
        endless[5] = 1;
        endless.extend([63; 4096]);
        assert_eq!(read(&endless), None);
    }
}
