//! Simulated workers: threads of one process, each with connections of its own.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use autotune_fleet::transport::{Dial, Listen, Wire};
use autotune_fleet::{FleetError, SocketPlace, WorkerOptions, serve_fleet};

use crate::Args;
use crate::sleeping::{SleepingDevice, target};

/// Process with the workers.
pub(crate) struct Crowd {
    pub(crate) child: Child,
    addresses: Vec<String>,
    team: String,
}

impl Crowd {
    pub(crate) fn start(workers: usize, args: &Args) -> anyhow::Result<Self> {
        let team = format!("scale-{}-{workers}", std::process::id());
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--serve", &workers.to_string()]);
        command.args(["--trial-ms", &args.trial_ms.to_string(), "--reference-ms", &args.reference_ms.to_string()]);
        if let Some(url) = &args.nats {
            command.args(["--nats", url]).env("FLEET_SCALE_TEAM", &team);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output of the workers")?).lines();
        let addresses: Vec<String> = lines.take(workers).collect::<Result<_, _>>()?;
        ensure!(addresses.len() == workers, "{} of {workers} workers started", addresses.len());
        Ok(Self { child, addresses, team })
    }

    pub(crate) fn dials(&self, args: &Args) -> anyhow::Result<Vec<Arc<dyn Dial>>> {
        match &args.nats {
            Some(url) => find(url, &self.team, self.addresses.len()),
            None => {
                let place = |address: &String| Ok(Arc::new(address.parse::<SocketPlace>()?) as Arc<dyn Dial>);
                self.addresses.iter().map(place).collect()
            }
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Serves as some workers, whose addresses are printed, until the input ends.
pub(crate) fn serve(count: usize, args: &Args) -> anyhow::Result<()> {
    let is_stopped = Arc::new(AtomicBool::new(false));
    let team = std::env::var("FLEET_SCALE_TEAM").unwrap_or_default();
    let mut threads = Vec::new();
    for number in 0..count {
        let listener = match &args.nats {
            Some(url) => listen(url, &team)?,
            None => SocketPlace::Tcp("127.0.0.1:0".into()).listen()?,
        };
        let listener = Box::new(RareListener { listener, has_tuner: false });
        println!("{}", listener.address());
        let (is_stopped, device) =
            (Arc::clone(&is_stopped), SleepingDevice { pauses: args.pauses(), target: target() });
        threads.push(thread::spawn(move || {
            let options = WorkerOptions::new(format!("w{number}"));
            let stopped = || is_stopped.load(Ordering::SeqCst);
            serve_fleet(vec![listener], Box::new(device), &options, &stopped, drop)
        }));
    }

    io::stdin().read_to_end(&mut Vec::new())?;
    is_stopped.store(true, Ordering::SeqCst);
    for thread in threads {
        let Ok(served) = thread.join() else { bail!("a worker panicked") };
        served?;
    }
    Ok(())
}

#[cfg(feature = "nats")]
fn server(url: &str, team: &str) -> Result<Arc<autotune_fleet::NatsServer>, FleetError> {
    let options = autotune_fleet::NatsOptions { url: url.into(), team: team.into(), ..Default::default() };
    autotune_fleet::NatsServer::connect(&options)
}

/// Offers a worker through a connection of its own.
#[cfg(feature = "nats")]
fn listen(url: &str, team: &str) -> Result<Box<dyn Listen>, FleetError> {
    server(url, team)?.listen()
}

/// Finds all workers of the team, asking again for those that do not reply in time.
#[cfg(feature = "nats")]
fn find(url: &str, team: &str, count: usize) -> anyhow::Result<Vec<Arc<dyn Dial>>> {
    let server = server(url, team)?;
    let mut found = std::collections::BTreeMap::new();
    for asked in 1..=10 {
        found.extend(server.find()?.into_iter().map(|dial| (dial.address(), dial)));
        if found.len() == count {
            return Ok(found.into_values().collect());
        }
        eprintln!("{} of {count} workers found when asked {asked} times", found.len());
    }
    bail!("{} of {count} workers found", found.len())
}

#[cfg(not(feature = "nats"))]
fn listen(url: &str, _team: &str) -> Result<Box<dyn Listen>, FleetError> {
    Err(FleetError::Server { url: url.into(), cause: "this program was built without the feature nats".into() })
}

#[cfg(not(feature = "nats"))]
fn find(url: &str, team: &str, _count: usize) -> anyhow::Result<Vec<Arc<dyn Dial>>> {
    Err(listen(url, team).err().context("no server")?.into())
}

/// Listener that seldom looks for connections once it has one. Real workers look at the cost of
/// their own machines.
struct RareListener {
    listener: Box<dyn Listen>,
    has_tuner: bool,
}

impl Listen for RareListener {
    fn address(&self) -> String {
        self.listener.address()
    }

    fn accept(&mut self, wait: Duration) -> io::Result<Option<Wire>> {
        if self.has_tuner {
            thread::sleep(Duration::from_secs(1));
            return Ok(None);
        }
        let accepted = self.listener.accept(wait)?;
        self.has_tuner = accepted.is_some();
        Ok(accepted)
    }
}
