//! Arguments of the commands `autotune fleet`.

use std::path::PathBuf;
use std::time::Duration;

use autotune_fleet::SocketPlace;
use clap::{Args, Subcommand};

const WORKER_EXAMPLES: &str = "\
Examples:
  autotune fleet worker --listen 127.0.0.1:9631      for tuners on this machine
  autotune fleet worker --listen 10.0.0.7:9631 --cores 0-3 --name rack7
  autotune fleet worker --listen unix:/run/user/1000/autotune.sock --exit-when-idle 10m
  autotune fleet worker --nats nats://10.0.0.1:4222 --team vision
  autotune fleet worker --listen 10.0.0.7:9631 --metrics 10.0.0.7:9632    for Prometheus

Then, on another machine: autotune resnet18 --connect 10.0.0.7:9631
                      or: autotune resnet18 --nats nats://10.0.0.1:4222 --team vision

Nothing else listens, and nobody is asked for a password: whoever reaches the address can make this machine measure. A worker executes nothing \
but kernels that this program generated and verified. SIGTERM and Ctrl-C return the present batch to its tuner; the exit code is 0.";

const UP_EXAMPLES: &str = "\
Examples:
  autotune fleet up --workers 2                      prints how to tune on them

The workers listen on loopback. They share memory and caches, so that they disturb one another more than workers on machines of their own.";

const STATUS_EXAMPLES: &str = "\
Examples:
  autotune fleet status --connect 10.0.0.7:9631 --connect 10.0.0.8:9631
  autotune fleet status --connect 10.0.0.7:9631 --json -
  autotune fleet status --nats nats://10.0.0.1:4222

Exit code 1 if a worker cannot be reached or is of another version.";

const COLLECT_EXAMPLES: &str = "\
Examples:
  autotune fleet collect --db team-db --listen 10.0.0.9:9633
  autotune fleet collect --db team-db --nats nats://10.0.0.1:4222 --team vision

Tuners then keep their own databases, and pass on what they store: autotune resnet18 --collector 10.0.0.9:9633
Deployed programs follow the best schedules: autotune snapshot follow 10.0.0.9:9633 -o tuning.snapshot

Through NATS, tuners of the team find their collector themselves. SIGTERM and Ctrl-C end it; the exit code is 0.";

const FOLLOW_EXAMPLES: &str = "\
Examples:
  autotune snapshot follow 10.0.0.9:9633 -o tuning.snapshot
  autotune snapshot follow --nats nats://10.0.0.1:4222 --team vision -o tuning.snapshot --every 1m
  autotune snapshot follow 10.0.0.9:9633 -o tuning.snapshot --once     (exit code 1 if there is no snapshot yet)";

#[derive(Debug, Subcommand)]
pub(crate) enum FleetAction {
    /// Offers this machine's devices to tuners on other machines
    #[command(after_help = WORKER_EXAMPLES)]
    Worker(FleetWorkerArgs),
    /// Starts workers on this machine, to try a fleet in one command; Ctrl-C ends them
    #[command(after_help = UP_EXAMPLES)]
    Up(FleetUpArgs),
    /// Appends the records of all tuners of a team to one database, and publishes its snapshots
    #[command(after_help = COLLECT_EXAMPLES)]
    Collect(FleetCollectArgs),
    /// Lists workers: target, version, tuners, queue, trials, health
    #[command(after_help = STATUS_EXAMPLES)]
    Status(FleetStatusArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FleetWorkerArgs {
    /// Address to wait for tuners at: HOST:PORT (port 0 takes a free one) or unix:PATH; may be
    /// repeated
    #[arg(long, value_name = "ADDRESS", required_unless_present = "nats", value_parser = parse_address)]
    pub(crate) listen: Vec<SocketPlace>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// Cores to use, such as 0-3 or 0,2 [default: all]
    #[arg(long, value_name = "CORES", value_parser = parse_cores)]
    pub(crate) cores: Option<Cores>,
    /// Name in the output of tuners [default: the host's name and the process id]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Address at which Prometheus scrapes metrics: HOST:PORT (port 0 takes a free one), page
    /// /metrics [default: none]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_metrics)]
    pub(crate) metrics: Option<String>,
    /// Exit after this time without tuners: 90s, 10m
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "60s", value_parser = parse_idle)]
    pub(crate) exit_when_idle: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct FleetCollectArgs {
    /// The team's database, created if absent
    #[arg(long, value_name = "DIR")]
    pub(crate) db: PathBuf,
    /// Address to wait for tuners and followers at: HOST:PORT (port 0 takes a free one) or
    /// unix:PATH; may be repeated
    #[arg(long, value_name = "ADDRESS", required_unless_present = "nats", value_parser = parse_address)]
    pub(crate) listen: Vec<SocketPlace>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// Name in the output of tuners [default: the host's name and the process id]
    #[arg(long)]
    pub(crate) name: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = FOLLOW_EXAMPLES)]
pub(crate) struct FollowArgs {
    /// Address of the collector: HOST:PORT or unix:PATH; with --nats that of the team is found
    #[arg(value_name = "SOURCE", required_unless_present = "nats", conflicts_with = "nats", value_parser = parse_address)]
    pub(crate) source: Option<SocketPlace>,
    /// The file, which is replaced atomically whenever the collector has better schedules
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Interval at which the collector is asked: 5s, 1m
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = autotune::parse_duration)]
    pub(crate) every: Duration,
    /// Fetch the present snapshot and exit
    #[arg(long)]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
}

#[derive(Debug, Args)]
pub(crate) struct FleetUpArgs {
    /// Number of workers, among which the cores are divided
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) workers: u16,
}

#[derive(Debug, Args)]
pub(crate) struct FleetStatusArgs {
    /// Address of a worker: HOST:PORT or unix:PATH; may be repeated
    #[arg(long, value_name = "ADDRESS", required_unless_present = "nats", value_parser = parse_address)]
    pub(crate) connect: Vec<SocketPlace>,
    #[command(flatten)]
    pub(crate) nats: NatsArgs,
    /// Write the result as one JSON object to this file ('-' for standard output)
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// Server through which workers and tuners of a team find each other.
#[derive(Debug, Args)]
pub(crate) struct NatsArgs {
    /// NATS server through which a team is reached, such as nats://10.0.0.1:4222 or tls://HOST
    #[arg(long, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// Team on the NATS server
    #[arg(long, requires = "nats", default_value = "default")]
    pub(crate) team: String,
    /// File with NATS credentials
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub(crate) creds: Option<PathBuf>,
    /// File with the seed of an NKey
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub(crate) nkey: Option<PathBuf>,
    /// File with certificates (PEM) of authorities that the server's may be signed by, besides
    /// those of the system
    #[arg(long, value_name = "FILE", requires = "nats")]
    pub(crate) tlsca: Option<PathBuf>,
    /// File with the certificate (PEM) that this program shows to the server
    #[arg(long, value_name = "FILE", requires_all = ["nats", "tlskey"])]
    pub(crate) tlscert: Option<PathBuf>,
    /// File with the key (PEM) of that certificate
    #[arg(long, value_name = "FILE", requires = "tlscert")]
    pub(crate) tlskey: Option<PathBuf>,
}

/// Logical processors that the user listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cores(pub(crate) Vec<usize>);

pub(super) fn parse_address(text: &str) -> Result<SocketPlace, String> {
    let hint = if text.contains("://") { "; a NATS server is named by --nats URL" } else { "" };
    text.parse().map_err(|error: autotune_fleet::FleetError| format!("{error}{hint}"))
}

/// Checks that an address is one of TCP.
fn parse_metrics(text: &str) -> Result<String, String> {
    match text.parse() {
        Ok(SocketPlace::Tcp(address)) => Ok(address),
        _ => Err(format!("--metrics '{text}' is not an address: expected HOST:PORT")),
    }
}

fn parse_idle(text: &str) -> Result<Duration, String> {
    autotune::parse_duration(text).map_err(|error| format!("--exit-when-idle {error}"))
}

/// Parses a list of numbers and ranges.
fn parse_cores(text: &str) -> Result<Cores, String> {
    let bad = || format!("--cores '{text}' is not a list of cores such as 0-3 or 0,2");
    let number = |text: &str| text.parse::<usize>().ok().filter(|core| *core < 4096).ok_or_else(bad);
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(bad());
        }
        cores.extend(first..=last);
    }
    cores.sort();
    cores.dedup();
    Ok(Cores(cores))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_numbers_and_ranges() {
        assert_eq!(parse_cores("0-3"), Ok(Cores(vec![0, 1, 2, 3])));
        assert_eq!(parse_cores("5,0-1,1"), Ok(Cores(vec![0, 1, 5])));
        for bad in ["", "3-1", "a", "0,", "-1", "0-99999999"] {
            assert!(parse_cores(bad).is_err_and(|error| error.contains("--cores")), "{bad}");
        }
    }
}
