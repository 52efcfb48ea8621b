//! Measures how many workers one tuner can keep busy: real connections, messages, leases and
//! batches, and devices that sleep instead of running kernels.
//!
//! `cargo run --release -p autotune-lab --features nats --example fleet_scale -- [--nats URL]`
//!
//! The workers are threads of one other process, each with connections of its own. Prints a line of
//! Markdown for each number of workers; `--help` explains the options.

mod crowd;
mod figures;
mod sleeping;
mod traffic;

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use autotune::Cancel;
use autotune_charts::{Chart, ChartAxis, Colour, Mark, Scale, standalone};
use autotune_fleet::transport::Dial;
use autotune_fleet::{DeviceWish, Fleet, FleetOptions};
use autotune_ir::Target;
use autotune_lab::median;
use autotune_measure::Measurer;
use autotune_measurement::Backend;
use autotune_schedules::{Candidate, ScheduleSpace};
use clap::Parser;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::crowd::{Crowd, serve};
use crate::figures::Figures;
use crate::sleeping::{SleepingMeasurer, WORKLOAD, target};
use crate::traffic::{CountedDial, Traffic};

/// Number of distinct schedules, which are proposed again and again.
const SCHEDULES: usize = 512;

/// Time between opening the devices and the first wish, in which the cost of idling is measured.
const IDLE: Duration = Duration::from_secs(3);

/// Measures how many workers one tuner can keep busy.
#[derive(Clone, Parser)]
struct Args {
    /// Numbers of workers, one run for each.
    #[arg(long, value_delimiter = ',', default_value = "1,2,10,100,1000")]
    workers: Vec<usize>,
    /// Time of a trial, in milliseconds: the device sleeps for so long.
    #[arg(long, default_value_t = 33.0)]
    trial_ms: f64,
    /// Time of the reference kernel, in milliseconds (`--reference` tells).
    #[arg(long, default_value_t = 6.0)]
    reference_ms: f64,
    /// Schedules that the searcher proposes at a time.
    #[arg(long, default_value_t = 32)]
    proposed: usize,
    /// Time over which trials are counted, in seconds.
    #[arg(long, default_value_t = 10.0)]
    secs: f64,
    /// Time before it, in which the batches find their size.
    #[arg(long, default_value_t = 5.0)]
    warm_up_secs: f64,
    /// NATS server, with which all runs are repeated.
    #[arg(long)]
    nats: Option<String>,
    /// Process of that server, whose CPU time is to be counted.
    #[arg(long, requires = "nats")]
    server_pid: Option<u32>,
    /// SVG file with the trials per second.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// Time the reference kernel and random trials on this machine's CPU, instead of a fleet.
    #[arg(long)]
    reference: bool,
    /// Number of workers to serve as, until the input ends.
    #[arg(long, hide = true)]
    serve: Option<usize>,
}

impl Args {
    /// Returns the times of a trial and of the reference kernel.
    fn pauses(&self) -> [Duration; 2] {
        [self.trial_ms, self.reference_ms].map(|millis| Duration::from_secs_f64(millis * 1e-3))
    }
}

fn main() -> anyhow::Result<()> {
    autotune::serve_if_worker();
    let args = Args::parse();
    raise_limit()?;
    match args.serve {
        Some(count) => serve(count, &args),
        None if args.reference => time_reference(),
        None => measure(&args),
    }
}

/// Permits as many files as the system does: a connection is two in the tuner, and three with the
/// listener in a worker.
fn raise_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both calls get a pointer to a live structure of the type that they expect.
    let is_raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 && {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit) == 0
        }
    };
    if is_raised { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn measure(args: &Args) -> anyhow::Result<()> {
    let candidates = candidates()?;
    let local_secs = local_secs(args, &candidates)?;
    println!("Without a fleet a trial takes {:.3} ms.\n", local_secs * 1e3);
    println!(
        "| transport, workers | trials/s | of the ideal | CPU µs a trial: loop, rest of the tuner, workers, server \
         | messages, bytes a trial | MiB: tuner, workers | threads, files of the tuner \
         | CPU ms/s before the first wish: tuner, workers | s to connect | idle cores |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");

    let mut curves = Vec::new();
    for (name, nats) in [("TCP", None), ("NATS", args.nats.as_deref())] {
        if name == "NATS" && nats.is_none() {
            continue;
        }
        let mut curve = Vec::new();
        for &workers in &args.workers {
            let rate = measure_with(
                name,
                workers,
                &Args { nats: nats.map(Into::into), ..args.clone() },
                &candidates,
                local_secs,
            )?;
            curve.push([workers as f64, rate]);
        }
        curves.push((name, curve));
    }
    args.plot.as_ref().map_or(Ok(()), |file| std::fs::write(file, plot(&curves, 1.0 / local_secs)))?;
    Ok(())
}

/// Returns a chart of the trials per second against the number of workers, next to the ideal.
fn plot(curves: &[(&str, Vec<[f64; 2]>)], ideal: f64) -> String {
    let ends = || curves.iter().flat_map(|(_, curve)| curve);
    let (workers, rates) = (ends().map(|end| end[0]), ends().map(|end| end[1]));
    let axes = [
        ChartAxis::new("workers", Scale::log(workers)),
        ChartAxis::new("trials per second", Scale::log(rates.chain(ends().map(|end| end[0] * ideal)))),
    ];
    let points =
        curves.first().map_or(Vec::new(), |(_, curve)| curve.iter().map(|end| [end[0], end[0] * ideal]).collect());
    let ideal = Mark::Line { points, colour: Colour::Quiet, dashed: true, name: String::new() };
    let mut chart = Chart::new("Trials per second of one tuner", [720.0, 420.0], axes);
    chart = chart.mark(ideal).legend("ideal", Colour::Quiet);

    for (number, (name, curve)) in curves.iter().enumerate() {
        let colour = Colour::Series(number);
        let line = Mark::Line { points: curve.clone(), colour, dashed: false, name: String::new() };
        chart = chart.mark(line).legend(*name, colour);
    }
    standalone(chart.draw())
}

fn candidates() -> anyhow::Result<Vec<Candidate>> {
    let space = ScheduleSpace::new(&WORKLOAD.parse()?, &target());
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    Ok((0..SCHEDULES).map(|_| space.sample(&mut rng)).collect())
}

/// Returns a searcher that proposes schedules at no cost, without an end.
fn searcher(candidates: &[Candidate], proposed: usize) -> impl FnMut() -> Vec<Candidate> + Send {
    let mut next = 0;
    move || {
        let batch = (next..next + proposed).map(|number| candidates[number % candidates.len()].clone()).collect();
        next += proposed;
        batch
    }
}

/// Returns the seconds of a trial on the simulated device itself.
fn local_secs(args: &Args, candidates: &[Candidate]) -> anyhow::Result<f64> {
    let mut device = SleepingMeasurer { pauses: args.pauses(), is_unwanted: Arc::new(|| false) };
    let (start, mut trials) = (Instant::now(), 0);
    device.measure_batches(&mut searcher(candidates, args.proposed), &mut |_, _| {
        trials += 1;
        if start.elapsed().as_secs_f64() < args.secs { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(start.elapsed().as_secs_f64() / f64::from(trials))
}

/// Measures with some workers, prints the line of the table, and returns the trials per second.
fn measure_with(
    name: &str,
    workers: usize,
    args: &Args,
    candidates: &[Candidate],
    local_secs: f64,
) -> anyhow::Result<f64> {
    let crowd = Crowd::start(workers, args)?;
    let traffic = Arc::new(Traffic::default());
    let dials = crowd.dials(args)?.into_iter();
    let dials = dials.map(|dial| Arc::new(CountedDial { dial, traffic: Arc::clone(&traffic) }) as Arc<dyn Dial>);
    let wish = DeviceWish { target: "cpu".into(), threads: Some(1), backend: Backend::Assembler };

    let connecting = Instant::now();
    let notice = Box::new(|line| eprintln!("{line}"));
    let mut fleet = Fleet::connect(dials.collect(), &wish, FleetOptions { notice, ..FleetOptions::default() })?;
    let connect_secs = connecting.elapsed().as_secs_f64();
    ensure!(fleet.workers().len() == workers, "not all workers joined");
    let look = |trials| Figures::now(trials, &crowd, args.server_pid, &traffic);
    let before_idling = look(0)?;
    thread::sleep(IDLE);
    let after_idling = look(0)?;

    let start = Instant::now();
    let (mut trials, mut first, mut last) = (0, None, None);
    fleet.measure_batches(&mut searcher(candidates, args.proposed), &mut |_, _| {
        trials += 1;
        let elapsed = start.elapsed().as_secs_f64();
        if first.is_none() && elapsed >= args.warm_up_secs {
            first = Some(look(trials));
        }
        if elapsed < args.warm_up_secs + args.secs {
            return ControlFlow::Continue(());
        }
        last = Some(look(trials));
        ControlFlow::Break(())
    })?;
    let (first, last) = (first.context("no trial")??, last.context("no trial")??);

    let idle = after_idling.since(&before_idling);
    let run = last.since(&first);
    let rate = run.trials as f64 / run.secs;
    print!("| {name}, {workers} | {rate:.0} | {:.1} % ", 100.0 * rate * local_secs / workers as f64);
    print_figures(&last, &run, &idle, connect_secs);
    Ok(rate)
}

/// Prints the rest of a line: the state at the end, the run, and the time before the first wish.
fn print_figures(end: &Figures, run: &Figures, idle: &Figures, connect_secs: f64) {
    let per_trial = |value: f64| value / run.trials.max(1) as f64;
    let micros = |secs: f64| per_trial(secs * 1e6);
    let Figures { loop_secs, tuner, workers: crowd, server, .. } = run;

    println!(
        "| {:.0}, {:.0}, {:.0}, {:.0} | {:.2}, {:.0} | {:.0}, {:.0} | {}, {} | {:.0}, {:.0} | {connect_secs:.1} | {:.2} |",
        micros(*loop_secs),
        micros(tuner.cpu_secs - loop_secs),
        micros(crowd.cpu_secs),
        micros(server.cpu_secs),
        per_trial(run.messages as f64),
        per_trial(run.bytes as f64),
        end.tuner.mebibytes,
        end.workers.mebibytes,
        end.tuner.threads,
        end.tuner.files,
        1e3 * idle.tuner.cpu_secs / idle.secs,
        1e3 * idle.workers.cpu_secs / idle.secs,
        run.machine_idle_secs / run.secs,
    );
}

/// Times the reference kernel of a worker, and random trials of a layer of ResNet-18.
fn time_reference() -> anyhow::Result<()> {
    let device =
        autotune::LocalDevice::open(&Target::detect("cpu", Some(1))?, &[], Backend::Assembler, &Cancel::default());
    let mut measurer = device?.measurer;
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let target = Target::detect("cpu", Some(1))?;
    let layer = ScheduleSpace::new(&"conv2d:c=64,h=56,w=56,o=64,k=3,p=1,bias,act=relu".parse()?, &target);
    let reference = ScheduleSpace::new(&"matmul:m=128,n=128,k=128".parse()?, &target).default_candidate().clone();

    let (mut trials, mut looks) = (Vec::new(), Vec::new());
    for _ in 0..20 {
        let batch: Vec<Candidate> = (0..8).map(|_| layer.sample(&mut rng)).collect();
        for (times, batch) in [(&mut trials, batch), (&mut looks, vec![reference.clone()])] {
            let start = Instant::now();
            measurer.measure(&batch, &mut |_, _| ControlFlow::Continue(()))?;
            times.push(1e3 * start.elapsed().as_secs_f64() / batch.len() as f64);
        }
    }
    println!("reference kernel {:.1} ms, trial {:.1} ms (medians)", median(looks), median(trials));
    Ok(())
}
