//! Contenders that run interleaved on the machine, and their race.

use std::time::Instant;

use anyhow::Result;

use crate::copying::{self, Copying};
use crate::ours;
use crate::report::LeftOut;
use crate::server::{Prepared, Server};

/// Quantile of the repeats that represents a turn. It is low, as disturbances only add time.
const LOW_QUANTILE: f64 = 0.1;

/// Minimum seconds of a repeat.
const REPEAT_SECS: f64 = 20e-6;

/// Kernel that is prepared to run.
pub(crate) enum Contender<'a> {
    Served(&'a mut Server, Prepared),
    Copying(Copying),
    #[cfg(feature = "peers")]
    GemmCrate(Box<crate::gemm_crate::GemmCrate>),
}

/// Parameters of the interleaved runs.
pub(crate) struct Turns {
    pub(crate) rounds: usize,
    pub(crate) secs: f64,
    /// True if the device replays graphs of runs.
    pub(crate) has_graphs: bool,
}

/// Results of a contender's turns.
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) max_rel_error: f64,
    /// Seconds per run, for each round.
    pub(crate) round_secs: Vec<f64>,
}

impl Contender<'_> {
    fn turn(&mut self, secs: f64) -> Result<Vec<f64>> {
        match self {
            Self::Served(server, _) => server.turn(secs),
            Self::Copying(copying) => Ok(copying.turn(secs)),
            #[cfg(feature = "peers")]
            Self::GemmCrate(gemm) => Ok(gemm.turn(secs)),
        }
    }

    fn lane(&self) -> Lane {
        let (name, how, max_rel_error) = match self {
            Self::Served(server, prepared) => (server.name.clone(), prepared.how.clone(), prepared.max_rel_error),
            Self::Copying(_) => (copying::NAME.into(), "memcpy".into(), 0.0),
            #[cfg(feature = "peers")]
            Self::GemmCrate(gemm) => ("gemm crate 0.19".into(), "gemm".into(), gemm.max_rel_error),
        };
        Lane { name, how, max_rel_error, round_secs: Vec::new() }
    }

    /// Checks the output of this library's kernel again after its turns.
    fn recheck(&mut self, lane: &mut Lane, has_graphs: bool) -> Result<()> {
        if let Self::Served(server, _) = self
            && server.name == ours::NAME
        {
            let rechecked = server.recheck()?;
            lane.max_rel_error = rechecked.max_rel_error;
            if has_graphs && rechecked.graph_runs == 0 {
                lane.how += ", without a graph";
            }
        }
        Ok(())
    }
}

/// Runs every contender once in every round; each round begins with another contender. A contender
/// that fails is left out, with the reason.
pub(crate) fn race(contenders: &mut [Contender<'_>], turns: &Turns) -> (Vec<Lane>, Vec<LeftOut>) {
    let mut lanes: Vec<Lane> = contenders.iter().map(Contender::lane).collect();
    let mut failures: Vec<Option<String>> = vec![None; lanes.len()];
    for round in 0..turns.rounds {
        for offset in 0..contenders.len() {
            let index = (round + offset) % contenders.len();
            if failures[index].is_some() {
                continue;
            }
            match contenders[index].turn(turns.secs) {
                Ok(repeats) => lanes[index].round_secs.push(low(repeats)),
                Err(why) => failures[index] = Some(format!("{why:#}")),
            }
        }
    }

    for ((contender, lane), failure) in contenders.iter_mut().zip(&mut lanes).zip(&mut failures) {
        if failure.is_none() {
            *failure = contender.recheck(lane, turns.has_graphs).err().map(|why| format!("{why:#}"));
        }
    }

    let (mut finished, mut left_out) = (Vec::new(), Vec::new());
    for (lane, failure) in lanes.into_iter().zip(failures) {
        match failure {
            None => finished.push(lane),
            Some(why) => left_out.push(LeftOut { name: lane.name, why }),
        }
    }
    (finished, left_out)
}

/// Returns the seconds per run of each repeat, over at least `floor_secs` with warm caches. `run`
/// performs the given number of runs and returns their seconds.
pub(crate) fn repeats(floor_secs: f64, mut run: impl FnMut(usize) -> f64) -> Vec<f64> {
    run(1);
    let runs = (REPEAT_SECS / run(1)).ceil().clamp(1.0, 1e4) as usize;
    let (start, mut repeats) = (Instant::now(), Vec::new());
    while repeats.len() < 3 || start.elapsed().as_secs_f64() < floor_secs {
        repeats.push(run(runs) / runs as f64);
    }
    repeats
}

fn low(mut secs: Vec<f64>) -> f64 {
    secs.sort_by(f64::total_cmp);
    let rank = (LOW_QUANTILE * secs.len() as f64) as usize;
    secs.get(rank).copied().unwrap_or(f64::NAN)
}
