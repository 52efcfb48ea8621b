//! Choice of schedules by timing them within the network.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use autotune::{Cancel, Query, Tuned};
use autotune_db::{DbError, TuningDb};
use autotune_ir::Target;
use autotune_schedules::Config;
use autotune_workloads::Workload;
use thiserror::Error;

use crate::choose::{Choice, Schedules};
use crate::compiled::{Compiled, Workspace};
use crate::cut::Cut;
use crate::error::{CompileError, RunError};
use crate::interleaved::{WARM_UP, time_interleaved};
use crate::options::Options;
use crate::quantile::quantile;
use autotune_graph::Graph;
use autotune_graph::Tensor;

mod alike;
mod record;

use alike::StepsByWorkload;

/// Minimum and maximum number of rounds of a comparison; each network runs once in a round.
const ROUNDS: [usize; 2] = [7, 60];
/// Rivals of a workload: schedules whose separately measured time is at most [`SLOWER`] times the
/// best one's, and no more than [`MOST_RIVALS`].
const SLOWER: f64 = 1.5;
const MOST_RIVALS: usize = 4;
/// Maximum number of alternative plans in a race, and the fraction of the time limit after which no
/// further plan starts.
const MOST_PLANS: usize = 6;
const PLANS_SHARE: f64 = 0.4;
/// Fraction of the time limit after which no more untuned schedules are predicted, unless the
/// search has done so.
const UNTUNED_SHARE: f64 = 0.2;
/// Conditions for a schedule to be tried in the whole network: the median ratio of its step's times
/// is below [`STEP_GAIN`], and it is faster in at least a fraction [`STEP_SHARE`] of the rounds.
const STEP_GAIN: f64 = 0.97;
const STEP_SHARE: f64 = 0.7;
/// A network becomes the leader if the ratio of its time to the leader's is below this.
const GAIN: f64 = 0.995;
/// Durations of a race's parts, in units of a comparison of two networks: such a comparison, one
/// that times steps, and the last one, which decides what is stored.
const DUEL: f64 = 1.0;
const STEPS_DUEL: f64 = 2.0;
const KEEPING: f64 = 1.0;

/// Reason that a race failed.
#[derive(Debug, Error)]
pub enum RaceError {
    /// A network cannot be compiled.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A network cannot run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The results cannot be stored.
    #[error(transparent)]
    Db(#[from] DbError),
    /// The caller cancelled the race.
    #[error("interrupted")]
    Interrupted,
}

/// Result of a race.
pub struct RaceOutcome {
    /// The network with the schedules that the database has now.
    pub network: Arc<Compiled>,
    /// True if new records were stored.
    pub is_new: bool,
}

/// A competing network, and the schedules that it was compiled with.
struct Entrant {
    choice: Choice,
    workspace: Workspace,
}

struct NetworkRace<'a> {
    graph: &'a Graph,
    cut: Cut,
    /// Steps by their workloads: a workload may occur several times in the network.
    by_workload: StepsByWorkload,
    db: &'a TuningDb,
    target: &'a Target,
    inputs: &'a [Tensor],
    cancel: &'a Cancel,
    /// Untuned schedules of workloads, by the thorough prediction; only those that were measured,
    /// since only these can be recorded.
    untuned: HashMap<Workload, Tuned>,
}

/// Time limit of a race.
struct RaceClock {
    start: Instant,
    limit: Duration,
    /// Seconds of the last comparison of two networks, including the compilation of one.
    duel_secs: f64,
}

impl RaceClock {
    /// True if there is time for `duels` comparisons.
    fn has_time_for(&self, duels: f64) -> bool {
        self.start.elapsed().as_secs_f64() + duels * self.duel_secs <= self.limit.as_secs_f64()
    }

    /// True if a fraction of the limit has passed.
    fn is_late(&self, share: f64) -> bool {
        self.start.elapsed() > self.limit.mul_f64(share)
    }
}

/// Finds the schedules that make a network as a whole fastest, among those that a database has
/// measured on this machine and the untuned ones. Stores them in the database, where
/// [`Compiled::new`] looks first.
///
/// A search times a kernel alone. Within a network its operands have other addresses and the caches
/// have other contents, so another schedule may be faster, and times of different searches are not
/// comparable. Therefore:
///
/// 1. The network with the schedules chosen so far is timed interleaved with the one that the
///    records suggest, and with the untuned one. The fastest becomes the leader.
/// 2. Alternative plans are timed interleaved with the leader: the best plans with some tensor in
///    another layout, if they change schedules and are estimated to lose little. A faster one
///    becomes the leader.
/// 3. Networks with another schedule for every workload are timed interleaved with the leader, step
///    by step. The schedules that win are combined in one network, which becomes the leader if it
///    is faster as a whole, since sums of step times are misleading.
///
/// For each workload a record [within the network](Workload::network) is stored, with the time of
/// the whole network. Where steps of one workload have different schedules, each step gets a
/// record.
///
/// A comparison only starts if it is expected to end within `limit`; without any comparison nothing
/// is stored. `cancel` is checked between rounds; once it is set, the race fails with
/// [`RaceError::Interrupted`].
pub fn race(
    graph: &Graph,
    db: &TuningDb,
    target: &Target,
    inputs: &[Tensor],
    limit: Duration,
    cancel: &Cancel,
) -> Result<RaceOutcome, RaceError> {
    let start = Instant::now();
    let mut course = NetworkRace::of(graph, db, target, inputs, cancel);
    course.check_cancelled()?;
    let making = Instant::now();
    let network = Compiled::of_cut(graph, course.cut.clone(), Some(db), target)?;
    let mut best = course.entrant(Arc::clone(&network))?;
    let before = best.choice.clone();
    // A comparison includes compilation.
    let making_secs = making.elapsed().as_secs_f64();
    // The first estimate of a run decides how many rounds fit into the limit.
    let run = Instant::now();
    best.workspace.step_secs(false)?;
    let run_secs = run.elapsed().as_secs_f64();

    // All races, with two runs per round, take at most half of the limit.
    let races = MOST_RIVALS + MOST_PLANS + 2;
    let rounds = (limit.as_secs_f64() / (4 * races) as f64 / run_secs) as usize;
    let rounds = rounds.clamp(ROUNDS[0], ROUNDS[1]);
    let duel_secs = making_secs + (2 * (rounds + WARM_UP)) as f64 * run_secs;
    let mut clock = RaceClock { start, limit, duel_secs };
    course.check_cancelled()?;
    if !clock.has_time_for(DUEL + KEEPING) {
        return Ok(RaceOutcome { network, is_new: false });
    }

    course.untuned = course.measured_untuned(&clock)?;
    best = course.best_plan(best, rounds, &mut clock)?;
    let gained = course.gained(&mut best, rounds, &clock)?;
    if !gained.is_empty() {
        let choice = course.exchanged(&best.choice, &gained);
        best = course.faster(best, &choice, rounds, &mut clock)?;
    }
    let before = Entrant { choice: before, workspace: network.workspace()? };
    let is_new = course.keep(before, &mut best, rounds)?;

    // Loaded from the stored records, as in later uses.
    let mut choose = Schedules::of_network(db, target, course.cut.fingerprint(graph));
    let network = best.workspace.network().sharing(&mut choose)?;
    Ok(RaceOutcome { network, is_new })
}

impl<'a> NetworkRace<'a> {
    fn of(graph: &'a Graph, db: &'a TuningDb, target: &'a Target, inputs: &'a [Tensor], cancel: &'a Cancel) -> Self {
        let cut = Cut::for_target(graph, target);
        let (by_workload, untuned) = (StepsByWorkload::of(&cut), HashMap::new());
        Self { graph, cut, by_workload, db, target, inputs, cancel, untuned }
    }

    /// Returns the untuned schedules that were measured, for as many workloads as time permits.
    fn measured_untuned(&self, clock: &RaceClock) -> Result<HashMap<Workload, Tuned>, RaceError> {
        let mut measured = HashMap::new();
        for (workload, _) in self.by_workload.groups() {
            self.check_cancelled()?;
            // Races need most of the limit. Workloads that are not reached keep their recorded
            // schedules.
            if clock.is_late(UNTUNED_SHARE) {
                break;
            }
            let tuned = Query::new(workload, self.target).best().map_err(CompileError::from)?;
            if self.measured(&tuned)?.is_some() {
                measured.insert(workload.clone(), tuned);
            }
        }
        Ok(measured)
    }

    fn entrant(&self, network: Arc<Compiled>) -> Result<Entrant, RaceError> {
        let choice = network.plan.choice();
        let mut workspace = network.workspace()?;
        // Timed runs reuse these inputs.
        workspace.run_tensors(self.inputs)?;
        Ok(Entrant { choice, workspace })
    }

    /// Compiles the network with a choice of schedules; it shares kernels and constants with
    /// another. Conversions use the database's schedules.
    fn network(&self, choice: &Choice, other: &Entrant) -> Result<Entrant, RaceError> {
        self.check_cancelled()?;
        let mut choose = Schedules::chosen(self.db, self.target, choice);
        self.entrant(other.workspace.network().sharing(&mut choose)?)
    }

    /// Fails if the caller has cancelled.
    fn check_cancelled(&self) -> Result<(), RaceError> {
        if self.cancel.is_cancelled() { Err(RaceError::Interrupted) } else { Ok(()) }
    }

    /// Returns the fastest among the leader, the network suggested by the records, the untuned one,
    /// and alternative plans.
    fn best_plan(&self, mut best: Entrant, rounds: usize, clock: &mut RaceClock) -> Result<Entrant, RaceError> {
        let [by_records, plans @ ..] = &self.plans()?[..] else { return Ok(best) };
        // Untuned schedules enter together, since a race for each would take too long.
        for choice in [by_records.clone(), self.exchanged(by_records, &self.untuned)] {
            if clock.has_time_for(DUEL + KEEPING) && !is_same(&choice, &best.choice) {
                best = self.faster(best, &choice, rounds, clock)?;
            }
        }

        for plan in plans {
            // Only the differences between the plans are applied, so that earlier wins are kept.
            let choice = changed(&best.choice, by_records, plan);
            let has_time = !clock.is_late(PLANS_SHARE) && clock.has_time_for(DUEL + KEEPING);
            if has_time && !is_same(&choice, &best.choice) {
                best = self.faster(best, &choice, rounds, clock)?;
            }
        }
        Ok(best)
    }

    /// Returns for each workload the rival that reduces the time of its steps most, if any does.
    fn gained(
        &self,
        best: &mut Entrant,
        rounds: usize,
        clock: &RaceClock,
    ) -> Result<HashMap<Workload, Tuned>, RaceError> {
        let rivals = self.alternatives(&best.choice)?;
        let mut gains: HashMap<Workload, (f64, Tuned)> = HashMap::new();
        // One network tries a rival of every workload at once.
        for number in 0..rivals.values().map(Vec::len).max().unwrap_or(0) {
            if !clock.has_time_for(STEPS_DUEL + KEEPING) {
                break;
            }
            self.add_gains(&mut gains, best, &rivals, number, rounds)?;
        }
        Ok(gains.into_iter().map(|(workload, (_, tuned))| (workload, tuned)).collect())
    }

    /// Returns the choice that the records of single workloads suggest, followed by alternative
    /// plans that they do not rule out.
    fn plans(&self) -> Result<Vec<Choice>, CompileError> {
        let mut choose = Schedules::kinds(Some(self.db), self.target);
        let options = Options::of(self.graph, &self.cut, &mut choose)?;
        let least = options.least();
        let others = options.alternatives(&least, MOST_PLANS);
        Ok([least].iter().chain(&others).map(|layouts| options.choice(layouts)).collect())
    }

    /// Returns a choice with other schedules for some workloads.
    fn exchanged(&self, choice: &Choice, others: &HashMap<Workload, Tuned>) -> Choice {
        let other = |workload: Option<&Workload>| others.get(workload?).cloned();
        self.by_workload
            .workloads()
            .zip(choice)
            .map(|(workload, tuned)| other(workload).or_else(|| tuned.clone()))
            .collect()
    }

    /// Returns the faster of the leader and the network with another choice.
    fn faster(
        &self,
        mut leader: Entrant,
        choice: &Choice,
        rounds: usize,
        clock: &mut RaceClock,
    ) -> Result<Entrant, RaceError> {
        let start = Instant::now();
        let mut other = self.network(choice, &leader)?;
        let [of_leader, of_other] = self.secs([&mut leader, &mut other], rounds)?;
        // Planning assumes that the next comparison takes as long as this one.
        clock.duel_secs = start.elapsed().as_secs_f64();
        Ok(if is_faster(&of_other, &of_leader) { other } else { leader })
    }

    /// Returns the run times of networks, timed interleaved.
    fn secs<const N: usize>(&self, entrants: [&mut Entrant; N], rounds: usize) -> Result<[Vec<f64>; N], RaceError> {
        let mut workspaces = entrants.map(|entrant| &mut entrant.workspace);
        let mut secs =
            time_interleaved(&mut workspaces, self.inputs, rounds, &|| self.cancel.is_cancelled())?.into_iter();
        self.check_cancelled()?;
        Ok(std::array::from_fn(|_| secs.next().unwrap_or_default()))
    }

    /// Returns alternatives to the chosen schedules for each workload, the most promising first.
    fn alternatives(&self, chosen: &Choice) -> Result<HashMap<Workload, Vec<Tuned>>, RaceError> {
        let mut rivals = HashMap::new();
        for (workload, steps) in self.by_workload.groups() {
            self.check_cancelled()?;
            let kinds = Query::new(workload, self.target).source(self.db).kinds().map_err(CompileError::from)?;
            let least = kinds.first().and_then(Tuned::run_secs).unwrap_or(f64::INFINITY);
            let promising = |tuned: &&Tuned| tuned.run_secs().is_some_and(|secs| secs <= SLOWER * least);

            let mut others: Vec<Tuned> = Vec::new();
            let mut known: Vec<&Tuned> = kinds.iter().filter(promising).collect();
            // The untuned schedule is tried second.
            let place = known.len().min(1);
            known.splice(place..place, self.untuned.get(workload));
            for tuned in known {
                let is_in = |other: &Tuned| other.config() == tuned.config();
                // A schedule that all steps already use cannot gain anything.
                let is_chosen = steps.iter().all(|&step| chosen[step].as_ref().is_some_and(is_in));
                if !is_chosen && !others.iter().any(is_in) {
                    others.push(tuned.clone());
                }
            }
            others.truncate(MOST_RIVALS);
            rivals.insert(workload.clone(), others);
        }
        Ok(rivals)
    }

    /// Times the leader's steps interleaved with those of the network that uses each workload's
    /// rival with this number. Adds the rivals that are clearly faster to `gains`, with the median
    /// ratio of their times to the leader's.
    fn add_gains(
        &self,
        gains: &mut HashMap<Workload, (f64, Tuned)>,
        leader: &mut Entrant,
        rivals: &HashMap<Workload, Vec<Tuned>>,
        number: usize,
        rounds: usize,
    ) -> Result<(), RaceError> {
        let racing =
            rivals.iter().filter_map(|(workload, rivals)| Some((workload.clone(), rivals.get(number)?.clone())));
        let racing: HashMap<Workload, Tuned> = racing.collect();
        let mut other = self.network(&self.exchanged(&leader.choice, &racing), leader)?;

        let mut ratios: HashMap<&Workload, Vec<f64>> = HashMap::new();
        for _ in 0..rounds {
            self.check_cancelled()?;
            // Both networks run in every round, so that disturbances hit both.
            let [leader_secs, other_secs] = [self.step_secs(leader)?, self.step_secs(&mut other)?];
            for (workload, leader_secs) in leader_secs {
                if let Some(other_secs) = other_secs.get(workload) {
                    ratios.entry(workload).or_default().push(other_secs / leader_secs);
                }
            }
        }
        for (workload, rival) in &racing {
            let Some(gain) = ratios.remove(workload).and_then(gain) else { continue };
            if gains.get(workload).is_none_or(|(known, _)| gain < *known) {
                gains.insert(workload.clone(), (gain, rival.clone()));
            }
        }
        Ok(())
    }

    /// Returns the seconds of each workload's steps in a run.
    fn step_secs(&self, entrant: &mut Entrant) -> Result<HashMap<&Workload, f64>, RunError> {
        // The first run only fills the caches, which another network has used meanwhile.
        entrant.workspace.step_secs(false)?;
        let secs = entrant.workspace.step_secs(false)?;
        let actions = &entrant.workspace.network().plan.actions;
        let of_steps = actions.iter().zip(secs).filter(|(action, _)| !action.is_conversion);
        let mut sums = HashMap::new();
        for (workload, (_, secs)) in self.by_workload.workloads().zip(of_steps) {
            // Times of equal workloads are added, since a network uses one rival for all of them.
            workload.into_iter().for_each(|workload| *sums.entry(workload).or_default() += secs);
        }
        Ok(sums)
    }
}

/// True if two choices have the same schedules.
fn is_same(choice: &Choice, other: &Choice) -> bool {
    choice.iter().zip(other).all(|(a, b)| config(a) == config(b))
}

fn config(tuned: &Option<Tuned>) -> Option<&Config> {
    tuned.as_ref().map(Tuned::config)
}

/// Applies the difference between two plans to a choice.
fn changed(choice: &Choice, from: &Choice, to: &Choice) -> Choice {
    let step = |(own, (from, to)): (&Option<Tuned>, (&Option<Tuned>, &Option<Tuned>))| {
        if config(from) == config(to) { own.clone() } else { to.clone() }
    };
    choice.iter().zip(from.iter().zip(to)).map(step).collect()
}

/// Returns the median ratio of a step's times with another schedule, if it is clearly faster.
fn gain(ratios: Vec<f64>) -> Option<f64> {
    let median = quantile(ratios.clone(), 0.5);
    // The quantile rejects steps whose median is low only because their times scatter.
    (median < STEP_GAIN && quantile(ratios, STEP_SHARE) < 1.0).then_some(median)
}

/// True if a network is faster than another in paired rounds.
fn is_faster(secs: &[f64], than: &[f64]) -> bool {
    median_ratio(secs, than) < GAIN
}

/// Returns the median ratio of paired rounds. Pairing helps since a disturbance of several rounds
/// affects both runs of each.
fn median_ratio(secs: &[f64], to: &[f64]) -> f64 {
    // Ratios within a round cancel disturbances that last longer than a round.
    quantile(secs.iter().zip(to).map(|(secs, to)| secs / to).collect(), 0.5)
}

#[cfg(test)]
mod tests;
