//! DNS messages of pods and of other servers: a response has the requested addresses as far as they fit,
//! repeats its question and is no query; a name that is rendered is read back.

use std::net::Ipv4Addr;

// A file of the embedded node is included: the whole crate would bring a client and the network.
#[path = "../../embedded-node/src/services/message.rs"]
mod message;

use message::{Answer, Kind, Question, Record, Transport};

/// The most that the node sends in a datagram.
const DATAGRAM: usize = 1232;

pub fn run(bytes: &[u8]) {
    // Each address takes a header of 12 bytes and its own four.
    assert!(message::addresses(bytes).len() <= bytes.len() / 14);
    let Some(question) = message::read(bytes) else {
        return;
    };
    renders_its_name(&question);
    let addresses = (0..200).map(Ipv4Addr::from_bits);
    let addresses: Vec<Ipv4Addr> = addresses.take(bytes.len() % 200).collect();
    let named = |address: &Ipv4Addr| Record::AddressOf {
        name: "a.example".to_owned(),
        address: *address,
    };
    for records in [
        addresses.iter().copied().map(Record::Address).collect(),
        addresses.iter().map(named).collect(),
    ] {
        responds(bytes, &question, records, &addresses);
    }
    for answer in [Answer::Empty, Answer::Unknown, Answer::Failed] {
        let response = message::write(bytes, &question, &answer, Transport::Datagram);
        assert!(message::addresses(&response).is_empty());
    }
    let name = question.name.clone();
    let records = [Kind::Alias, Kind::Pointer].map(|kind| Record::Name(kind, name.clone()));
    let service = Record::Service { name, port: 80 };
    let records = [&records[..], &[service, Record::Text("text")]].concat();
    message::write(
        bytes,
        &question,
        &Answer::Records(records),
        Transport::Stream,
    );
}

fn responds(query: &[u8], question: &Question, records: Vec<Record>, addresses: &[Ipv4Addr]) {
    let answer = Answer::Records(records);
    for transport in [Transport::Datagram, Transport::Stream] {
        let response = message::write(query, question, &answer, transport);
        assert!(question.is_repeated_in(query, &response), "the question");
        assert_eq!(message::read(&response), None, "a response is no query");
        let found = message::addresses(&response);
        assert!(addresses.starts_with(&found), "addresses of the answer");
        match transport {
            Transport::Datagram => assert!(response.len() <= DATAGRAM, "{}", response.len()),
            Transport::Stream => assert_eq!(found, addresses, "all of them"),
        }
    }
}

/// A label may have a dot in it, so not every name can be rendered, and a last dot is lost.
fn renders_its_name(question: &Question) {
    let Some(query) = message::query(7, &question.name) else {
        return;
    };
    let again = message::read(&query).expect("what was rendered can be read");
    let name = question.name.strip_suffix('.').unwrap_or(&question.name);
    assert_eq!(again.name, name);
    assert_eq!(again.kind, Kind::Address);
}
