//! The calls of a migration, which the client directs: it carries cookies and XML between the two
//! servers, and only QEMU's own data flows between the hosts.
//!
//! The order is begin (source), prepare (target), perform (source), finish (target), confirm
//! (source). The names are libvirt's.

use std::time::Duration;

use crate::connection::{Call, Reply};
use crate::xdr::{Decoder, Encoder};
use crate::{Connection, Domain, Error, ProtocolError, procedure};

/// Perform lasts as long as the copy; its progress is watched by [`Connection::job`].
const NO_LIMIT: Duration = Duration::from_hours(24 * 365);
/// Preparing starts a QEMU, and finishing waits for the last of its state.
const LIFECYCLE_LIMIT: Duration = Duration::from_mins(2);
/// The protocol's own bound on the parameters of job statistics.
pub(crate) const MAX_PARAMETERS: usize = 256;

/// How a guest is migrated. It stays paused at the target until it is resumed, unless it was switched to
/// post-copy, and the target defines the domain, so that it knows the reason of a stop afterwards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent flags of libvirt"
)]
pub struct MigrationFlags {
    /// The guest may be switched to post-copy.
    pub post_copy: bool,
    /// The guest is slowed down until its writes can be copied.
    pub auto_converge: bool,
    /// Disks that are not shared are copied, without the files that they are based on.
    pub copy_disks: bool,
    /// The caller knows that both ends see the same disks at any time, which libvirt cannot verify.
    pub trusts_disks: bool,
}

/// Memory that flows through several connections at once (multifd), which QEMU does not combine with post-copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parallel {
    /// At least 1, besides the connection for the rest of the guest's state.
    pub connections: u8,
    pub compression: Compression,
}

/// How memory is packed that flows through several connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Zstd,
}

impl Compression {
    /// libvirt's name of the method.
    fn method(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Zstd => Some("zstd"),
        }
    }
}

const LIVE: u32 = 1;
const PERSIST_DEST: u32 = 1 << 3;
const PAUSED: u32 = 1 << 5;
const NON_SHARED_INC: u32 = 1 << 7;
const UNSAFE: u32 = 1 << 9;
const COMPRESSED: u32 = 1 << 11;
const AUTO_CONVERGE: u32 = 1 << 13;
const POST_COPY: u32 = 1 << 15;
const PARALLEL: u32 = 1 << 17;

impl MigrationFlags {
    fn bits(self) -> u32 {
        let bit = |wanted, bit| if wanted { bit } else { 0 };
        // libvirt refuses to begin a copy that may be switched, and whose guest stays paused.
        LIVE | PERSIST_DEST
            | bit(!self.post_copy, PAUSED)
            | bit(self.copy_disks, NON_SHARED_INC)
            | bit(self.trusts_disks, UNSAFE)
            | bit(self.auto_converge, AUTO_CONVERGE)
            | bit(self.post_copy, POST_COPY)
    }
}

/// What both ends must agree on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MigrationParameters {
    /// Where the target's QEMU listens and the source's connects, such as `unix:///run/x.sock`.
    pub uri: Option<String>,
    /// Where copies of disks flow, a socket.
    pub disks_uri: Option<String>,
    /// The domain's name at the target.
    pub destination_name: Option<String>,
    /// The domain's XML at the target.
    pub destination_xml: Option<String>,
    /// The disks to copy, by their device names.
    pub disks: Vec<String>,
    /// At most that many MiB a second, also after a switch to post-copy.
    pub bandwidth_mib: Option<u64>,
    pub parallel: Option<Parallel>,
}

impl MigrationParameters {
    /// libvirt limits the time before and after a switch to post-copy each by a parameter of its own.
    fn encode(&self, mut to: Encoder, post_copy: bool) -> Encoder {
        let texts = [
            ("migrate_uri", &self.uri),
            ("disks_uri", &self.disks_uri),
            ("destination_name", &self.destination_name),
            ("destination_xml", &self.destination_xml),
        ];
        let method = self
            .parallel
            .and_then(|parallel| parallel.compression.method());
        let texts: Vec<_> = texts
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .chain(
                self.disks
                    .iter()
                    .map(|disk| ("migrate_disks", disk.as_str())),
            )
            .chain(method.map(|method| ("compression", method)))
            .collect();
        let limits = ["bandwidth", "bandwidth.postcopy"];
        let limits = &limits[..if post_copy { 2 } else { 1 }];
        let numbers = limits
            .iter()
            .filter_map(|name| Some((*name, self.bandwidth_mib?)));
        let count = texts.len() + numbers.clone().count() + usize::from(self.parallel.is_some());
        to = to.u32(u32::try_from(count).unwrap_or(u32::MAX));
        for (name, value) in texts {
            to = to.string(name).i32(Kind::STRING).string(value);
        }
        for (name, value) in numbers {
            to = to.string(name).i32(Kind::ULLONG).u64(value);
        }
        if let Some(parallel) = self.parallel {
            let connections = i32::from(parallel.connections);
            to = to
                .string("parallel.connections")
                .i32(Kind::INT)
                .i32(connections);
        }
        to
    }
}

/// libvirt's numbers of the types of parameters.
struct Kind;

impl Kind {
    const INT: i32 = 1;
    const UINT: i32 = 2;
    const LLONG: i32 = 3;
    const ULLONG: i32 = 4;
    const DOUBLE: i32 = 5;
    const BOOLEAN: i32 = 6;
    const STRING: i32 = 7;
}

/// What one step hands to the next, not to be interpreted.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Cookie(pub Vec<u8>);

impl std::fmt::Debug for Cookie {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Cookie({} bytes)", self.0.len())
    }
}

/// The progress of a migration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Job {
    pub elapsed_ms: Option<u64>,
    pub total_bytes: Option<u64>,
    pub processed_bytes: Option<u64>,
    pub remaining_bytes: Option<u64>,
    /// Bytes a second.
    pub rate: Option<u64>,
    /// Pages that the guest writes in a second.
    pub dirty_rate: Option<u64>,
    pub page_bytes: Option<u64>,
    /// How often all of memory was gone through.
    pub iterations: Option<u64>,
    pub downtime_ms: Option<u64>,
    pub auto_converge_percent: Option<i32>,
}

impl Job {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, ProtocolError> {
        let mut from = Decoder::new(body);
        let _kind = from.i32()?;
        let mut job = Self::default();
        for _ in 0..from.count(MAX_PARAMETERS)? {
            let name = from.string()?;
            let value = decode_number(&mut from)?;
            let field = match name.as_str() {
                "time_elapsed" => &mut job.elapsed_ms,
                "data_total" => &mut job.total_bytes,
                "data_processed" => &mut job.processed_bytes,
                "data_remaining" => &mut job.remaining_bytes,
                "memory_bps" => &mut job.rate,
                "memory_dirty_rate" => &mut job.dirty_rate,
                "memory_page_size" => &mut job.page_bytes,
                "memory_iteration" => &mut job.iterations,
                "downtime" => &mut job.downtime_ms,
                "auto_converge_throttle" => {
                    job.auto_converge_percent = value.and_then(|value| i32::try_from(value).ok());
                    continue;
                }
                _ => continue,
            };
            *field = value;
        }
        from.finish()?;
        Ok(job)
    }
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    Number(u64),
    Text(String),
    /// A number that is negative or no integer, or a truth value.
    Other,
}

pub(crate) fn decode_value(from: &mut Decoder<'_>) -> Result<Value, ProtocolError> {
    let number = |value: Option<u64>| value.map_or(Value::Other, Value::Number);
    Ok(match from.i32()? {
        Kind::INT => number(u64::try_from(from.i32()?).ok()),
        Kind::UINT => Value::Number(from.u32()?.into()),
        Kind::LLONG => number(
            i64::try_from(from.u64()?)
                .ok()
                .and_then(|value| u64::try_from(value).ok()),
        ),
        Kind::ULLONG => Value::Number(from.u64()?),
        Kind::DOUBLE => {
            from.u64()?;
            Value::Other
        }
        Kind::BOOLEAN => {
            from.i32()?;
            Value::Other
        }
        Kind::STRING => Value::Text(from.string()?),
        _ => return Err(ProtocolError::Malformed("a parameter has an unknown type")),
    })
}

/// The value of a parameter, if it is a number that is not negative.
fn decode_number(from: &mut Decoder<'_>) -> Result<Option<u64>, ProtocolError> {
    Ok(match decode_value(from)? {
        Value::Number(number) => Some(number),
        Value::Text(_) | Value::Other => None,
    })
}

/// Whether a step's predecessors went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Copied,
    /// The guest runs at the target from now on, and the rest of its memory follows.
    Switched,
    Cancelled,
}

impl Outcome {
    fn number(self) -> i32 {
        i32::from(self == Self::Cancelled)
    }
}

/// The migration of a guest, as both servers take it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Migration {
    pub flags: MigrationFlags,
    pub parameters: MigrationParameters,
}

impl Migration {
    fn bits(&self) -> u32 {
        let parallel = self.parameters.parallel;
        let is_packed = parallel.is_some_and(|one| one.compression != Compression::None);
        self.flags.bits()
            | if parallel.is_some() { PARALLEL } else { 0 }
            | if is_packed { COMPRESSED } else { 0 }
    }

    /// Those of the last step at the target, which decide whether libvirt runs the guest.
    fn finish_bits(&self, outcome: Outcome) -> u32 {
        match outcome {
            Outcome::Copied | Outcome::Cancelled => self.bits() | PAUSED,
            Outcome::Switched => self.bits() & !PAUSED,
        }
    }

    fn encode_parameters(&self, to: Encoder) -> Encoder {
        self.parameters.encode(to, self.flags.post_copy)
    }
}

impl Connection {
    /// At the source: the XML for the target.
    pub async fn begin(
        &self,
        domain: &Domain,
        with: &Migration,
    ) -> Result<(String, Cookie), Error> {
        let arguments = with
            .encode_parameters(domain.encode(Encoder::new()))
            .u32(with.bits());
        let call = Call::new(procedure::DOMAIN_MIGRATE_BEGIN3_PARAMS, arguments);
        let reply = self.call(call).await?;
        Ok(decode_begun(&reply.body)?)
    }

    /// At the target: starts a QEMU that waits for the guest.
    pub async fn prepare(&self, with: &Migration, cookie: &Cookie) -> Result<Cookie, Error> {
        let arguments = with
            .encode_parameters(Encoder::new())
            .opaque(&cookie.0)
            .u32(with.bits());
        let call = Call::new(procedure::DOMAIN_MIGRATE_PREPARE3_PARAMS, arguments);
        let reply = self.with_limit(LIFECYCLE_LIMIT).call(call).await?;
        Ok(decode_prepared(&reply.body)?)
    }

    /// At the source: copies the guest, which is paused at the end.
    pub async fn perform(
        &self,
        domain: &Domain,
        with: &Migration,
        cookie: &Cookie,
    ) -> Result<Cookie, Error> {
        let arguments = with
            .encode_parameters(domain.encode(Encoder::new()).optional_string(None))
            .opaque(&cookie.0)
            .u32(with.bits());
        let call = Call::new(procedure::DOMAIN_MIGRATE_PERFORM3_PARAMS, arguments);
        let reply = self.with_limit(NO_LIMIT).call(call).await?;
        Ok(decode_cookie(&reply)?)
    }

    /// At the target: takes the guest over, or ends the QEMU that waits for it. With [`Outcome::Switched`]
    /// this lasts until all memory is there; if the connection to the server ends before, the server goes on.
    pub async fn finish(
        &self,
        with: &Migration,
        cookie: &Cookie,
        outcome: Outcome,
    ) -> Result<(Domain, Cookie), Error> {
        let arguments = with
            .encode_parameters(Encoder::new())
            .opaque(&cookie.0)
            .u32(with.finish_bits(outcome))
            .i32(outcome.number());
        let call = Call::new(procedure::DOMAIN_MIGRATE_FINISH3_PARAMS, arguments);
        let limit = match outcome {
            Outcome::Switched => NO_LIMIT,
            Outcome::Copied | Outcome::Cancelled => LIFECYCLE_LIMIT,
        };
        let reply = self.with_limit(limit).call(call).await?;
        Ok(decode_finished(&reply.body)?)
    }

    /// At the source: ends the QEMU of a guest that was copied, or resumes a guest that was not.
    pub async fn confirm(
        &self,
        domain: &Domain,
        with: &Migration,
        cookie: &Cookie,
        outcome: Outcome,
    ) -> Result<(), Error> {
        let arguments = with
            .encode_parameters(domain.encode(Encoder::new()))
            .opaque(&cookie.0)
            .u32(with.bits())
            .i32(outcome.number());
        let call = Call::new(procedure::DOMAIN_MIGRATE_CONFIRM3_PARAMS, arguments);
        self.with_limit(LIFECYCLE_LIMIT).call(call).await?;
        Ok(())
    }

    /// The progress of the job that runs for a domain.
    pub async fn job(&self, domain: &Domain) -> Result<Job, Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        let call = Call::new(procedure::DOMAIN_GET_JOB_STATS, arguments);
        Ok(Job::decode(&self.call(call).await?.body)?)
    }

    /// Cancels the job that runs for a domain.
    pub async fn abort_job(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new());
        self.call(Call::new(procedure::DOMAIN_ABORT_JOB, arguments))
            .await?;
        Ok(())
    }

    /// Lets the rest of the memory follow while the guest runs at the target.
    pub async fn start_post_copy(&self, domain: &Domain) -> Result<(), Error> {
        let arguments = domain.encode(Encoder::new()).u32(0);
        let call = Call::new(procedure::DOMAIN_MIGRATE_START_POST_COPY, arguments);
        self.call(call).await?;
        Ok(())
    }

    /// How long the guest may pause at the end of the copy.
    pub async fn set_max_downtime(&self, domain: &Domain, limit: Duration) -> Result<(), Error> {
        let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let arguments = domain.encode(Encoder::new()).u64(milliseconds).u32(0);
        let call = Call::new(procedure::DOMAIN_MIGRATE_SET_MAX_DOWNTIME, arguments);
        self.call(call).await?;
        Ok(())
    }
}

pub(crate) fn decode_begun(body: &[u8]) -> Result<(String, Cookie), ProtocolError> {
    let mut from = Decoder::new(body);
    let cookie = Cookie(from.opaque()?.to_vec());
    let xml = from.string()?;
    from.finish()?;
    Ok((xml, cookie))
}

pub(crate) fn decode_prepared(body: &[u8]) -> Result<Cookie, ProtocolError> {
    let mut from = Decoder::new(body);
    let cookie = Cookie(from.opaque()?.to_vec());
    let _uri = from.optional_string()?;
    from.finish()?;
    Ok(cookie)
}

pub(crate) fn decode_finished(body: &[u8]) -> Result<(Domain, Cookie), ProtocolError> {
    let mut from = Decoder::new(body);
    let domain = Domain::decode(&mut from)?;
    let cookie = Cookie(from.opaque()?.to_vec());
    from.finish()?;
    Ok((domain, cookie))
}

fn decode_cookie(reply: &Reply) -> Result<Cookie, ProtocolError> {
    let mut from = Decoder::new(&reply.body);
    let cookie = Cookie(from.opaque()?.to_vec());
    from.finish()?;
    Ok(cookie)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_libvirts_bits() {
        assert_eq!(MigrationFlags::default().bits(), 1 | 8 | 32);
        let all = MigrationFlags {
            post_copy: true,
            auto_converge: true,
            copy_disks: true,
            trusts_disks: true,
        };
        assert_eq!(all.bits(), 1 | 8 | 128 | 512 | 8192 | 32768);
    }

    #[test]
    fn only_a_guest_that_was_switched_runs_at_once() {
        for post_copy in [false, true] {
            let migration = Migration {
                flags: MigrationFlags {
                    post_copy,
                    ..MigrationFlags::default()
                },
                parameters: MigrationParameters::default(),
            };
            for (outcome, stays_paused) in [
                (Outcome::Copied, true),
                (Outcome::Cancelled, true),
                (Outcome::Switched, false),
            ] {
                let bits = migration.finish_bits(outcome);
                assert_eq!(bits & PAUSED != 0, stays_paused, "{post_copy} {outcome:?}");
                assert_eq!(bits & POST_COPY != 0, post_copy, "{post_copy} {outcome:?}");
            }
        }
        assert_eq!(Outcome::Switched.number(), 0);
    }

    #[test]
    fn parameters_are_counted_and_typed() {
        let parameters = MigrationParameters {
            uri: Some("unix:///a".to_owned()),
            disks: vec!["vda".to_owned(), "vdb".to_owned()],
            bandwidth_mib: Some(3),
            ..MigrationParameters::default()
        };
        for (post_copy, limits) in [
            (false, &["bandwidth"][..]),
            (true, &["bandwidth", "bandwidth.postcopy"][..]),
        ] {
            let body = parameters.encode(Encoder::new(), post_copy).finish();
            let mut from = Decoder::new(&body);
            assert_eq!(from.u32(), Ok(if post_copy { 5 } else { 4 }));
            for (name, value) in [
                ("migrate_uri", "unix:///a"),
                ("migrate_disks", "vda"),
                ("migrate_disks", "vdb"),
            ] {
                assert_eq!(from.string().unwrap(), name);
                assert_eq!(from.i32(), Ok(7));
                assert_eq!(from.string().unwrap(), value);
            }
            for limit in limits {
                assert_eq!(from.string().unwrap(), *limit);
                assert_eq!((from.i32(), from.u64()), (Ok(4), Ok(3)));
            }
            assert_eq!(from.finish(), Ok(()));
        }
    }

    #[test]
    fn parallel_connections_are_a_flag_and_a_number() {
        for (compression, bits, method) in [
            (Compression::None, 1 << 17, None),
            (Compression::Zstd, 1 << 17 | 1 << 11, Some("zstd")),
        ] {
            let migration = Migration {
                flags: MigrationFlags::default(),
                parameters: MigrationParameters {
                    parallel: Some(Parallel {
                        connections: 8,
                        compression,
                    }),
                    ..MigrationParameters::default()
                },
            };
            let plain = Migration::default().bits();
            assert_eq!(migration.bits() & !plain, bits, "{compression:?}");
            let body = migration.encode_parameters(Encoder::new()).finish();
            let mut from = Decoder::new(&body);
            let count = 1 + u32::from(method.is_some());
            assert_eq!(from.u32(), Ok(count), "{compression:?}");
            if let Some(method) = method {
                assert_eq!(from.string().unwrap(), "compression");
                assert_eq!(from.i32(), Ok(Kind::STRING));
                assert_eq!(from.string().unwrap(), method);
            }
            assert_eq!(from.string().unwrap(), "parallel.connections");
            assert_eq!((from.i32(), from.i32()), (Ok(Kind::INT), Ok(8)));
            assert_eq!(from.finish(), Ok(()));
        }
    }

    #[test]
    fn job_takes_known_numbers_and_skips_the_rest() {
        let body = Encoder::new()
            .i32(2)
            .u32(5)
            .string("data_remaining")
            .i32(Kind::ULLONG)
            .u64(7)
            .string("auto_converge_throttle")
            .i32(Kind::INT)
            .i32(20)
            .string("errmsg")
            .i32(Kind::STRING)
            .string("none")
            .string("compression_x")
            .i32(Kind::DOUBLE)
            .u64(0)
            .string("downtime")
            .i32(Kind::LLONG)
            .u64(u64::MAX)
            .finish();
        let expected = Job {
            remaining_bytes: Some(7),
            auto_converge_percent: Some(20),
            ..Job::default()
        };
        assert_eq!(Job::decode(&body), Ok(expected));
    }

    #[test]
    fn unknown_type_is_refused_since_its_length_is_unknown() {
        let body = Encoder::new().i32(2).u32(1).string("x").i32(99).finish();
        assert!(matches!(
            Job::decode(&body),
            Err(ProtocolError::Malformed(_))
        ));
    }
}
