//! Workers that are reached through a NATS server.

use std::sync::Arc;

use anyhow::{Result, bail};
use autotune_fleet::transport::{Dial, FindWorkers, Listen};
use autotune_fleet::{NatsOptions, NatsServer};

use crate::args::NatsArgs;

/// Connects to the server; `None` if the command line names none.
fn server(args: &NatsArgs) -> Result<Option<Arc<NatsServer>>> {
    let Some(url) = args.nats.clone() else { return Ok(None) };
    let options = NatsOptions {
        url,
        team: args.team.clone(),
        credentials: args.creds.clone(),
        nkey: args.nkey.clone(),
        authorities: args.tlsca.clone(),
        certificate: args.tlscert.clone().zip(args.tlskey.clone()),
    };
    Ok(Some(NatsServer::connect(&options)?))
}

/// Offers this worker on the server.
pub(super) fn listen(args: &NatsArgs) -> Result<Option<Box<dyn Listen>>> {
    Ok(server(args)?.map(|server| server.listen()).transpose()?)
}

/// Offers this collector on the server. A team has one.
pub(super) fn listen_as_collector(args: &NatsArgs) -> Result<Option<Box<dyn Listen>>> {
    let Some(server) = server(args)? else { return Ok(None) };
    if server.has_collector()? {
        bail!("team {} has a collector already on this server: end it, or use another --team", args.team);
    }
    Ok(Some(server.listen_as_collector()?))
}

/// Returns the collector of the team; `None` if there is none.
pub(super) fn collector(args: &NatsArgs) -> Result<Option<Arc<dyn Dial>>> {
    let Some(server) = server(args)? else { return Ok(None) };
    Ok(server.collector()?)
}

/// Returns the search for workers that come later.
pub(in crate::commands) fn finder(args: &NatsArgs) -> Result<Option<FindWorkers>> {
    // While the server is away, nothing is found.
    let find = |server: Arc<NatsServer>| Box::new(move || server.find().unwrap_or_default()) as FindWorkers;
    Ok(server(args)?.map(find))
}

/// Returns the workers that the server knows.
pub(super) fn find(args: &NatsArgs) -> Result<Vec<Arc<dyn Dial>>> {
    let Some(server) = server(args)? else { return Ok(Vec::new()) };
    let found = server.find()?;
    if found.is_empty() {
        let url = args.nats.as_deref().unwrap_or_default();
        bail!(
            "no worker of team {} is connected to NATS server {url}: start one (autotune fleet worker --nats)",
            args.team
        );
    }
    Ok(found)
}
