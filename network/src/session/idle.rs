//! Workspaces between runs.

use std::mem::{forget, take};
use std::process::id as process_id;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Workspaces between runs. A workspace has threads, which exist in one process only.
pub(crate) struct IdleWorkspaces<W>(Mutex<IdleIn<W>>);

struct IdleIn<W> {
    process: u32,
    workspaces: Vec<W>,
}

impl<W> IdleWorkspaces<W> {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(IdleIn { process: process_id(), workspaces: Vec::new() }))
    }

    /// Returns a workspace of this process, if one is idle.
    pub(crate) fn take(&self) -> Option<W> {
        self.here().workspaces.pop()
    }

    /// Adds a workspace of this process.
    pub(crate) fn put(&self, workspace: W) {
        self.here().workspaces.push(workspace);
    }

    fn here(&self) -> MutexGuard<'_, IdleIn<W>> {
        let mut idle = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let process = process_id();
        if idle.process != process {
            // Dropping the parent's threads would wait for them, and they do not exist here.
            forget(take(&mut idle.workspaces));
            idle.process = process;
        }
        idle
    }
}
