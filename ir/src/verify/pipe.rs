//! Abstract model of the synchronisation between producer and consumers.

use super::Problem;
use crate::program::{BufferId, Store, WarpRole};

/// Access to shared memory, with the smallest and the largest index in each dimension.
#[derive(Clone)]
pub(super) struct SharedAccess {
    pub(super) buffer: BufferId,
    pub(super) store: *const Store,
    pub(super) writes: bool,
    pub(super) ranges: Vec<(i64, i64)>,
}

impl SharedAccess {
    pub(super) fn conflicts_with(&self, other: &SharedAccess) -> bool {
        let apart = self.ranges.iter().zip(&other.ranges).any(|(a, b)| a.1 < b.0 || b.1 < a.0);
        self.buffer == other.buffer && (self.writes || other.writes) && !apart
    }
}

/// Group of copies that the producer starts.
struct ProducerGroup {
    copies: Vec<SharedAccess>,
    /// Number of groups that all consumers have released when this group begins.
    after: usize,
}

/// State of the model. A first walk records all copy groups that the producer starts; a second
/// walk, from [`Pipe::turn`] on, follows a consumer.
///
/// At a point of the consumer, a group may be in progress if the consumer has not awaited it, and
/// has released as many groups as the producer awaits before it starts the group:
///
/// ```text
///     groups    0 .. released .. awaited ............ number of groups
///                                |-- after <= released --|
/// ```
pub(super) struct Pipe {
    pub(super) role: WarpRole,
    groups: Vec<ProducerGroup>,
    /// Number of releases that the producer has awaited.
    after: usize,
    awaited: usize,
    /// Number of groups that the consumer had awaited when it released each group, by group.
    released: Vec<usize>,
}

impl Pipe {
    pub(super) fn new(role: WarpRole) -> Self {
        Self { role, groups: Vec::new(), after: 0, awaited: 0, released: Vec::new() }
    }

    /// Switches from the producer to the consumers.
    pub(super) fn turn(&mut self) {
        self.role = WarpRole::Consumers;
    }

    pub(super) fn begin(&mut self, copies: Vec<SharedAccess>) {
        self.groups.push(ProducerGroup { copies, after: self.after });
    }

    pub(super) fn wait_empty(&mut self, pending: usize) {
        self.after = self.after.max(self.groups.len().saturating_sub(pending));
    }

    pub(super) fn wait_full(&mut self) -> Result<(), Problem> {
        if self.awaited == self.groups.len() {
            return Err(Problem::Nesting("a consumer awaits a group of copies that never begins".into()));
        }
        self.awaited += 1;
        Ok(())
    }

    pub(super) fn arrive_empty(&mut self, pending: usize) {
        while self.released.len() + pending < self.awaited {
            self.released.push(self.awaited);
        }
    }

    /// Returns true if a group that may be in progress at this point of a consumer writes an
    /// element of `touch`.
    pub(super) fn may_be_written(&self, touch: &SharedAccess) -> bool {
        let begins = |group: &&ProducerGroup| group.after <= self.released.len();
        // Groups begin in order: the first that must wait delays all later ones.
        self.role == WarpRole::Consumers
            && self.groups[self.awaited..]
                .iter()
                .take_while(begins)
                .any(|g| g.copies.iter().any(|c| c.conflicts_with(touch)))
    }

    /// Checks that every group begins, because its releases happen before it is awaited itself, and
    /// that every group is awaited.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.awaited < self.groups.len() {
            return Err(Problem::Nesting("no consumer awaits a group of copies".into()));
        }
        let begins = |(number, group): (usize, &ProducerGroup)| {
            group.after == 0 || self.released.get(group.after - 1).is_some_and(|&awaited| awaited <= number)
        };
        if self.groups.iter().enumerate().all(begins) {
            return Ok(());
        }
        Err(Problem::Nesting("a group of copies waits for a release that never comes".into()))
    }
}
