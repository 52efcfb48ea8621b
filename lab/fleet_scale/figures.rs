//! CPU time, memory and messages of all processes.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context;

use crate::crowd::Crowd;
use crate::traffic::Traffic;

/// State of all processes at some time, or the change between two.
#[derive(Clone, Default)]
pub(crate) struct Figures {
    at: Option<Instant>,
    pub(crate) secs: f64,
    pub(crate) trials: u64,
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// CPU seconds of the thread that deals with all messages.
    pub(crate) loop_secs: f64,
    pub(crate) tuner: ProcessFigures,
    pub(crate) workers: ProcessFigures,
    pub(crate) server: ProcessFigures,
    /// Seconds in which cores of the machine had nothing to do.
    pub(crate) machine_idle_secs: f64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct ProcessFigures {
    pub(crate) cpu_secs: f64,
    pub(crate) mebibytes: f64,
    pub(crate) threads: usize,
    pub(crate) files: usize,
}

impl Figures {
    pub(crate) fn now(trials: u64, crowd: &Crowd, server: Option<u32>, traffic: &Traffic) -> anyhow::Result<Self> {
        let idle = std::fs::read_to_string("/proc/stat")?;
        let idle = idle.split_whitespace().nth(4).context("no idle time of the machine")?.parse::<f64>()?;
        Ok(Self {
            at: Some(Instant::now()),
            secs: 0.0,
            trials,
            messages: traffic.messages.load(Ordering::Relaxed),
            bytes: traffic.bytes.load(Ordering::Relaxed),
            loop_secs: thread_cpu_secs()?,
            tuner: ProcessFigures::of(std::process::id())?,
            workers: ProcessFigures::of(crowd.child.id())?,
            server: server.map_or(Ok(ProcessFigures::default()), ProcessFigures::of)?,
            machine_idle_secs: idle / TICKS,
        })
    }

    pub(crate) fn since(&self, start: &Self) -> Self {
        let cpu = |now: ProcessFigures, then: ProcessFigures| ProcessFigures {
            cpu_secs: now.cpu_secs - then.cpu_secs,
            ..ProcessFigures::default()
        };
        Self {
            at: None,
            secs: self.at.zip(start.at).map_or(0.0, |(now, then)| (now - then).as_secs_f64()),
            trials: self.trials - start.trials,
            messages: self.messages - start.messages,
            bytes: self.bytes - start.bytes,
            loop_secs: self.loop_secs - start.loop_secs,
            tuner: cpu(self.tuner, start.tuner),
            workers: cpu(self.workers, start.workers),
            server: cpu(self.server, start.server),
            machine_idle_secs: self.machine_idle_secs - start.machine_idle_secs,
        }
    }
}

/// Units of CPU time in a second, in the files of `/proc`.
const TICKS: f64 = 100.0;

impl ProcessFigures {
    fn of(process: u32) -> anyhow::Result<Self> {
        let folder = format!("/proc/{process}");
        let stat = std::fs::read_to_string(format!("{folder}/stat"))?;
        let behind_name = stat.rsplit(") ").next().context("no state of the process")?;
        let fields: Vec<&str> = behind_name.split(' ').collect();
        let number = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).context("no such number");
        let status = std::fs::read_to_string(format!("{folder}/status"))?;
        let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no memory")?;
        let kibibytes: f64 = rss.trim().trim_end_matches(" kB").parse()?;

        Ok(Self {
            cpu_secs: (number(11)? + number(12)?) / TICKS,
            mebibytes: kibibytes / 1024.0,
            threads: number(17)? as usize,
            files: std::fs::read_dir(format!("{folder}/fd"))?.count(),
        })
    }
}

fn thread_cpu_secs() -> io::Result<f64> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call gets a pointer to a live structure of the type that it expects.
    match unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) } {
        0 => Ok(time.tv_sec as f64 + 1e-9 * time.tv_nsec as f64),
        _ => Err(io::Error::last_os_error()),
    }
}
