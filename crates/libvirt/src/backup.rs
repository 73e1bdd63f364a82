//! Backups of the disks of a running guest, which libvirt makes by a job in the background.

use crate::connection::Call;
use crate::migrate::{MAX_PARAMETERS, Value, decode_value};
use crate::xdr::{Decoder, Encoder};
use crate::{Connection, Domain, Error, ProtocolError, procedure};

/// libvirt's number of the operation.
const BACKUP: u64 = 9;
/// The job that has ended last, which libvirt forgets when it is asked for it.
const COMPLETED: u32 = 1;

/// How far a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobPhase {
    /// There is none.
    Absent,
    Running,
    Completed,
    Failed,
    Cancelled,
}

/// A job that works on the disks of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskJob {
    pub phase: JobPhase,
    /// Whether it is a backup.
    pub is_backup: bool,
    /// Bytes to copy.
    pub total: u64,
    pub processed: u64,
    /// Why it failed.
    pub message: Option<String>,
}

impl DiskJob {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, ProtocolError> {
        let mut from = Decoder::new(body);
        let phase = match from.i32()? {
            0 => JobPhase::Absent,
            1 | 2 => JobPhase::Running,
            3 => JobPhase::Completed,
            5 => JobPhase::Cancelled,
            // An unknown end is none that went well.
            _ => JobPhase::Failed,
        };
        let mut job = Self {
            phase,
            is_backup: false,
            total: 0,
            processed: 0,
            message: None,
        };
        for _ in 0..from.count(MAX_PARAMETERS)? {
            let name = from.string()?;
            match (name.as_str(), decode_value(&mut from)?) {
                ("operation", Value::Number(number)) => job.is_backup = number == BACKUP,
                ("disk_total", Value::Number(number)) => job.total = number,
                ("disk_processed", Value::Number(number)) => job.processed = number,
                ("errmsg", Value::Text(text)) => job.message = Some(text),
                _ => {}
            }
        }
        from.finish()?;
        Ok(job)
    }
}

impl Connection {
    /// Starts a backup, as the XML describes it; all disks are copied as they are at this moment.
    pub async fn begin_backup(&self, domain: &Domain, xml: &str) -> Result<(), Error> {
        let call = Call::new(procedure::DOMAIN_BACKUP_BEGIN, arguments(domain, xml));
        self.call(call).await?;
        Ok(())
    }

    /// The job that runs for a domain.
    pub async fn disk_job(&self, domain: &Domain) -> Result<DiskJob, Error> {
        self.job_of(domain, 0).await
    }

    /// The job that has ended last, once.
    pub async fn take_ended_job(&self, domain: &Domain) -> Result<DiskJob, Error> {
        self.job_of(domain, COMPLETED).await
    }

    async fn job_of(&self, domain: &Domain, flags: u32) -> Result<DiskJob, Error> {
        let arguments = domain.encode(Encoder::new()).u32(flags);
        let call = Call::new(procedure::DOMAIN_GET_JOB_STATS, arguments);
        Ok(DiskJob::decode(&self.call(call).await?.body)?)
    }
}

/// Without a checkpoint.
fn arguments(domain: &Domain, xml: &str) -> Encoder {
    let arguments = domain.encode(Encoder::new()).string(xml);
    arguments.optional_string(None).u32(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DomainUuid;

    #[test]
    fn backup_has_no_checkpoint() {
        let domain = Domain {
            name: "n_a".to_owned(),
            uuid: DomainUuid::parse("69a61d3f-50cc-4611-b6e2-e53205a02bad").unwrap(),
            id: Some(1),
        };
        let expected = domain.encode(Encoder::new()).string("<x/>").u32(0).u32(0);
        assert_eq!(arguments(&domain, "<x/>").finish(), expected.finish());
    }

    #[test]
    fn job_is_decoded_with_its_operation_and_its_error() {
        let (int, ullong, boolean, string) = (1, 4, 6, 7);
        let body = |kind| {
            Encoder::new()
                .i32(kind)
                .u32(5)
                .string("operation")
                .i32(int)
                .i32(9)
                .string("disk_total")
                .i32(ullong)
                .u64(10)
                .string("disk_processed")
                .i32(ullong)
                .u64(7)
                .string("success")
                .i32(boolean)
                .i32(0)
                .string("errmsg")
                .i32(string)
                .string("no space")
                .finish()
        };
        for (kind, phase) in [
            (1, JobPhase::Running),
            (2, JobPhase::Running),
            (3, JobPhase::Completed),
            (4, JobPhase::Failed),
            (5, JobPhase::Cancelled),
            (99, JobPhase::Failed),
        ] {
            let expected = DiskJob {
                phase,
                is_backup: true,
                total: 10,
                processed: 7,
                message: Some("no space".to_owned()),
            };
            assert_eq!(DiskJob::decode(&body(kind)), Ok(expected));
        }
        let none = DiskJob::decode(&Encoder::new().i32(0).u32(0).finish()).unwrap();
        assert_eq!((none.phase, none.is_backup), (JobPhase::Absent, false));
    }
}
