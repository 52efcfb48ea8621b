//! The command `autotune fleet up`: workers on this machine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use autotune_runtime::allowed_cores;

use crate::args::FleetUpArgs;
use crate::interrupt;
use crate::output::print;

/// Interval at which the command looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// Time that workers have to return their batches; soon after, an interrupted command is ended.
const STOP_LIMIT: Duration = Duration::from_millis(1500);

/// Starts workers, and ends them when the command is interrupted or one of them ends.
pub(super) fn run(args: &FleetUpArgs) -> Result<()> {
    let cancel = interrupt::service();
    let cores = allowed_cores();
    let workers = usize::from(args.workers);
    let each = (cores.len() / workers).max(1);
    let mut running = Running(Vec::new());
    let mut addresses = Vec::new();
    for worker in 0..workers {
        // With more workers than cores, some share one.
        let own: Vec<String> = (0..each).map(|n| cores[(worker * each + n) % cores.len()].to_string()).collect();
        let (child, address) = start(&format!("worker-{}", worker + 1), &own.join(","))?;
        running.0.push(child);
        addresses.push(format!("--connect {address}"));
    }

    print(&format!("{workers} worker(s) with {each} core(s) each. Tune on them, in another terminal:"))?;
    print(&format!("  autotune resnet18 --threads {each} {}", addresses.join(" ")))?;
    while !cancel.is_cancelled() {
        for child in &mut running.0 {
            if let Some(status) = child.try_wait()? {
                bail!("a worker ended: {status}");
            }
        }
        thread::sleep(POLL);
    }
    Ok(())
}

/// Starts a worker. Returns it with its address.
fn start(name: &str, cores: &str) -> Result<(Child, String)> {
    let program = std::env::current_exe().context("the path of this program is unknown")?;
    let mut command = Command::new(program);
    command.args(["fleet", "worker", "--listen", "127.0.0.1:0", "--name", name, "--cores", cores]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start a worker")?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).context("a worker says nothing")?;
    }
    match line.trim().rsplit_once("listening on ") {
        Some((_, address)) => Ok((child, address.to_string())),
        None => bail!("a worker did not start"),
    }
}

/// Workers that end with the command.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if matches!(child.try_wait(), Ok(None)) {
                // SAFETY: the child was not waited for, so its process id is still its own.
                unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
            }
        }
        let start = Instant::now();
        for child in &mut self.0 {
            while start.elapsed() < STOP_LIMIT && matches!(child.try_wait(), Ok(None)) {
                thread::sleep(POLL);
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
