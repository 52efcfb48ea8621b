//! Replies to `--nats` of a program that was built without NATS.

use std::sync::Arc;

use anyhow::{Result, ensure};
use autotune_fleet::transport::{Dial, FindWorkers, Listen};

use crate::args::NatsArgs;

fn check(args: &NatsArgs) -> Result<()> {
    let NatsArgs { nats, team: _, creds: _, nkey: _, tlsca: _, tlscert: _, tlskey: _ } = args;
    ensure!(nats.is_none(), "--nats: this program was built without NATS: build it with `--features nats`");
    Ok(())
}

/// Fails if the command line names a server.
pub(super) fn listen(args: &NatsArgs) -> Result<Option<Box<dyn Listen>>> {
    check(args).map(|()| None)
}

/// Fails if the command line names a server.
pub(in crate::commands) fn finder(args: &NatsArgs) -> Result<Option<FindWorkers>> {
    check(args).map(|()| None)
}

/// Fails if the command line names a server.
pub(super) fn find(args: &NatsArgs) -> Result<Vec<Arc<dyn Dial>>> {
    check(args).map(|()| Vec::new())
}

/// Fails if the command line names a server.
pub(super) fn listen_as_collector(args: &NatsArgs) -> Result<Option<Box<dyn Listen>>> {
    check(args).map(|()| None)
}

/// Fails if the command line names a server.
pub(super) fn collector(args: &NatsArgs) -> Result<Option<Arc<dyn Dial>>> {
    check(args).map(|()| None)
}
