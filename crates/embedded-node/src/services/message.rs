//! DNS messages: as much as it takes to read one question and to answer it. Pure.
//!
//! **Invariant.** Whatever bytes come, reading ends: a name is read once and forwards only.

use std::net::Ipv4Addr;

const HEADER: usize = 12;
const LONGEST_NAME: usize = 255;
/// What fits into an answer over UDP for those that do not say that they take more.
const PLAIN_LIMIT: usize = 512;
/// What fits into one packet everywhere.
const EXTENDED_LIMIT: usize = 1232;
/// Short, as services come and go.
const SECONDS_TO_LIVE: u32 = 5;

const RESPONSE: u8 = 0x80;
const AUTHORITATIVE: u8 = 0x04;
const TRUNCATED: u8 = 0x02;
const RECURSION_OFFERED: u8 = 0x80;

const CLASS_INTERNET: u16 = 1;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_PTR: u16 = 12;
const TYPE_SRV: u16 = 33;
const TYPE_ANY: u16 = 255;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Address,
    Alias,
    Pointer,
    Service,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    /// In small letters, without the dot at the end.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// Where the question ends in its message.
    end: usize,
    limit: usize,
}

impl Question {
    /// Is `answer` about what was asked in `message`?
    pub(crate) fn is_repeated_in(&self, message: &[u8], answer: &[u8]) -> bool {
        let asked = message.get(HEADER..self.end).unwrap_or_default();
        let repeated = answer.get(HEADER..self.end).unwrap_or_default();
        let is_response = answer.get(2).is_some_and(|flags| flags & RESPONSE != 0);
        is_response && asked.eq_ignore_ascii_case(repeated)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    Records(Vec<Record>),
    /// The name is there, and nothing of that kind.
    Empty,
    Unknown,
    /// Nobody could be asked.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Address(Ipv4Addr),
    Name(Kind, String),
    Service { name: String, port: u16 },
}

/// Over what the answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Carrier {
    Datagram,
    Stream,
}

/// The question of a message, if it is a query that can be answered at all.
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
        _ => Kind::Other,
    };
    Some(Question {
        name,
        kind,
        end: after + 4,
        // Whoever adds something to a question adds how much he takes.
        limit: if number(10)? > 0 {
            EXTENDED_LIMIT
        } else {
            PLAIN_LIMIT
        },
    })
}

/// Questions are not compressed: they are the first name in a message.
fn read_name(message: &[u8], mut at: usize) -> Option<(String, usize)> {
    let mut name = String::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() + length + 1 > LONGEST_NAME {
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

/// The whole answer to a message that asked this.
pub(crate) fn write(
    message: &[u8],
    question: &Question,
    answer: &Answer,
    carrier: Carrier,
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
        RECURSION_OFFERED | code,
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
        let full = carrier == Carrier::Datagram && out.len() > question.limit;
        if full || !written {
            out.truncate(before);
            if full && let Some(flags) = out.get_mut(2) {
                *flags |= TRUNCATED;
            }
            break;
        }
        count = count.saturating_add(1);
    }
    if let Some(place) = out.get_mut(6..8) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    out
}

/// False if a name cannot be written.
fn write_record(record: &Record, out: &mut Vec<u8>) -> bool {
    let mut data = Vec::new();
    let (kind, fine) = match record {
        Record::Address(address) => {
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
            // All are as good as each other.
            data.extend([0, 0, 0, 100]);
            data.extend(port.to_be_bytes());
            (TYPE_SRV, write_name(name, &mut data))
        }
    };
    let Ok(length) = u16::try_from(data.len()) else {
        return false;
    };
    // The name that was asked for.
    out.extend([0xc0, 0x0c]);
    out.extend(kind.to_be_bytes());
    out.extend(CLASS_INTERNET.to_be_bytes());
    out.extend(SECONDS_TO_LIVE.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(data);
    fine
}

fn write_name(name: &str, out: &mut Vec<u8>) -> bool {
    for label in name.trim_end_matches('.').split('.') {
        let Some(length) = u8::try_from(label.len()).ok().filter(|length| *length < 64) else {
            return false;
        };
        out.push(length);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    true
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
    fn question_is_read_and_repeated_in_the_answer() {
        let message = query("Web.n.SVC.cluster.local", TYPE_A);
        let question = read(&message).unwrap();
        assert_eq!(
            (&*question.name, question.kind),
            ("web.n.svc.cluster.local", Kind::Address)
        );
        let answer = Answer::Records(vec![Record::Address([10, 96, 0, 5].into())]);
        let out = write(&message, &question, &answer, Carrier::Datagram);
        assert_eq!(out[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(out[4..8], [0, 1, 0, 1]);
        assert_eq!(out[HEADER..question.end], message[HEADER..]);
        let record = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 5];
        assert_eq!(out[question.end..], record);
        let unknown = write(&message, &question, &Answer::Unknown, Carrier::Datagram);
        assert_eq!((unknown[3] & 0xf, unknown.len()), (3, question.end));
    }

    #[test]
    fn long_answers_are_cut_and_say_so() {
        let message = query("db.n.svc.cluster.local", TYPE_A);
        let question = read(&message).unwrap();
        let all = (0..100).map(|n| Record::Address([10, 0, 0, n].into()));
        let answer = Answer::Records(all.collect());
        let short = write(&message, &question, &answer, Carrier::Datagram);
        assert!(short.len() <= PLAIN_LIMIT && short[2] & TRUNCATED != 0);
        let whole = write(&message, &question, &answer, Carrier::Stream);
        assert_eq!((whole[7], whole[2] & TRUNCATED), (100, 0));
    }

    #[test]
    fn names_of_all_kinds_are_written() {
        for (record, kind) in [
            (Record::Name(Kind::Alias, "example.com".into()), TYPE_CNAME),
            (Record::Name(Kind::Pointer, "a.b".into()), TYPE_PTR),
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
        let long = Record::Name(Kind::Alias, "x".repeat(64));
        assert!(!write_record(&long, &mut Vec::new()));
    }

    #[test]
    fn strange_messages_are_survived() {
        let message = query("web.n.svc.cluster.local", TYPE_A);
        for length in 0..message.len() {
            assert_eq!(read(&message[..length]), None, "{length}");
        }
        for at in 0..message.len() {
            for bit in 0..8 {
                let mut broken = message.clone();
                broken[at] ^= 1 << bit;
                if let Some(question) = read(&broken) {
                    write(&broken, &question, &Answer::Empty, Carrier::Datagram);
                }
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
