//! `filesystemlist`: what is mounted, by the guest's agent.

use super::AgentVerb;

#[derive(Debug)]
pub(super) struct FileSystemList;

impl AgentVerb for FileSystemList {
    const NAME: &'static str = "filesystemlist";
    const REPORT: &'static str = "VirtualMachineInstanceFileSystemList";
}
