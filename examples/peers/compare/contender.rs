//! What takes turns on the machine.

use anyhow::Result;
use autotune_measure::{Bench, Built};
use autotune_schedules::Workload;

use crate::gemm_crate::GemmCrate;
use crate::server::{Prepared, Server};

/// Rank of the repeat that stands for a turn: disturbances only ever add time.
const LOW_QUANTILE: f64 = 0.1;

/// A prepared kernel.
pub(crate) enum Contender<'a> {
    Ours(Box<Bench>),
    GemmCrate(Box<GemmCrate>),
    Peer(&'a mut Server, Prepared),
}

/// What came of a contender's turns.
pub(crate) struct Lane {
    pub(crate) name: String,
    pub(crate) how: String,
    pub(crate) max_rel_error: f64,
    /// Seconds a run in each round.
    pub(crate) round_secs: Vec<f64>,
}

impl<'a> Contender<'a> {
    /// A built kernel of the database's, checked.
    pub(crate) fn ours(built: &Built) -> Result<Self> {
        // SAFETY: the kernel is of a code generator's, and ran in a worker when it was tuned.
        Ok(Self::Ours(Box::new(unsafe { Bench::new(built) }?)))
    }

    /// The `gemm` crate, if it has the operator.
    pub(crate) fn gemm_crate(workload: &Workload, threads: usize) -> Result<Option<Self>> {
        Ok(GemmCrate::new(workload, threads)?.map(|made| Self::GemmCrate(Box::new(made))))
    }

    /// A library's operator, built and checked, if it has it.
    pub(crate) fn peer(server: &'a mut Server, workload: &Workload) -> Result<Option<Self>> {
        let prepared = server.prepare(workload)?;
        Ok(prepared.map(|prepared| Self::Peer(server, prepared)))
    }

    fn turn(&mut self, secs: f64) -> Result<Vec<f64>> {
        match self {
            Self::Ours(bench) => Ok(bench.turn(secs)?),
            Self::GemmCrate(gemm) => Ok(gemm.turn(secs)),
            Self::Peer(server, _) => server.turn(secs),
        }
    }

    fn lane(&self) -> Lane {
        let (name, how, max_rel_error) = match self {
            Self::Ours(bench) => ("autotune".into(), "tuned".into(), bench.max_rel_error()),
            Self::GemmCrate(gemm) => ("gemm crate 0.19".into(), "gemm".into(), gemm.max_rel_error),
            Self::Peer(server, prepared) => (server.name.clone(), prepared.how.clone(), prepared.max_rel_error),
        };
        Lane { name, how, max_rel_error, round_secs: Vec::new() }
    }
}

/// Gives every contender a turn in every round, each round beginning with another. One that fails is left out.
pub(crate) fn race(contenders: &mut [Contender<'_>], rounds: usize, turn_secs: f64) -> Result<Vec<Lane>> {
    let mut lanes: Vec<Lane> = contenders.iter().map(Contender::lane).collect();
    for round in 0..rounds {
        for offset in 0..contenders.len() {
            let index = (round + offset) % contenders.len();
            let lane = &mut lanes[index];
            if lane.round_secs.len() < round {
                continue;
            }
            match contenders[index].turn(turn_secs) {
                Ok(repeats) => lane.round_secs.push(low(repeats)),
                Err(why) => eprintln!("{} fails and is left out: {why:#}", lane.name),
            }
        }
    }
    for contender in contenders {
        if let Contender::Ours(bench) = contender {
            bench.recheck()?;
        }
    }
    lanes.retain(|lane| lane.round_secs.len() == rounds);
    Ok(lanes)
}

fn low(mut secs: Vec<f64>) -> f64 {
    secs.sort_by(f64::total_cmp);
    let rank = (LOW_QUANTILE * secs.len() as f64) as usize;
    secs.get(rank).copied().unwrap_or(f64::NAN)
}
