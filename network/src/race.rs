//! Choosing schedules where they run: within the network.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use autotune::Tuned;
use autotune_db::{DbError, Phase, Source, Standing, TuningDb, TuningRecord};
use autotune_ir::Target;
use autotune_schedules::Workload;
use thiserror::Error;

use crate::compiled::{Compiled, Workspace};
use crate::cut::{Cut, Work};
use crate::error::{CompileError, RunError};
use crate::graph::Graph;
use crate::plan::Plan;
use crate::tensor::Tensor;
use crate::turns::{QUIET, quantile, time_in_turns};

/// Rounds in which two networks run once each, at least and at most.
const ROUNDS: [usize; 2] = [7, 60];
/// Schedules that race: those whose time in the search is at most this multiple of the best one's, and at most [`MOST_RIVALS`] of a workload.
const SLOWER: f64 = 1.5;
const MOST_RIVALS: usize = 4;
/// How much faster a step has to be with another schedule, in the middle of all rounds, and in which share of them at all, for the schedule to
/// be tried in the whole network.
const STEP_GAIN: f64 = 0.97;
const STEP_SHARE: f64 = 0.7;
/// How much faster the whole network has to be for other schedules to be chosen.
const GAIN: f64 = 0.995;

/// Why schedules were not raced.
#[derive(Debug, Error)]
pub enum RaceError {
    /// A network cannot be made of them.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// It does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What was measured cannot be kept.
    #[error(transparent)]
    Db(#[from] DbError),
}

/// A schedule for each of a network's workloads.
type Choice = HashMap<Workload, Tuned>;

/// A network that races, and what it was made of.
struct Entrant {
    choice: Choice,
    workspace: Workspace,
}

struct Course<'a> {
    graph: &'a Graph,
    cut: Cut,
    db: &'a TuningDb,
    target: &'a Target,
    inputs: &'a [Tensor],
    /// By the thorough prediction.
    untuned: Choice,
}

/// Finds the schedules of a network's workloads with which the network as a whole is the fastest, among those that a database has measured on this
/// machine and the untuned ones, and keeps them in the database, where [`Compiled::new`] looks first. True if something new is kept.
///
/// A search times a kernel by itself. In a network its operands lie elsewhere and what it leaves in the caches matters, so that another schedule
/// may be the faster, and times of different searches do not compare. So:
///
/// 1. The network runs by what was chosen so far, and in turns with it by what the records say, and by the untuned schedules. The fastest leads.
/// 2. In turns with the leader runs a network with another schedule for every workload, and another, every step timed. What is faster there
///    round by round goes into one network, which leads if it is faster as a whole: sums of steps mislead.
///
/// What is kept is a record of each workload [within the network](Workload::network), with the time of the whole network by the schedules that
/// were chosen together. No choice is begun when `limit` has passed.
pub fn race(
    graph: &Graph,
    db: &TuningDb,
    target: &Target,
    inputs: &[Tensor],
    limit: Duration,
) -> Result<bool, RaceError> {
    let start = Instant::now();
    let cut = Cut::of(graph);
    let untuned = untuned(&cut, target)?;
    let course = Course { graph, cut, db, target, inputs, untuned };
    let mut best = course.entrant(Compiled::new(graph, Some(db), target)?)?;
    let before = best.choice.clone();
    let run = Instant::now();
    best.workspace.step_secs(false)?;
    let rounds = limit.as_secs_f64() / (4 * (MOST_RIVALS + 2)) as f64 / run.elapsed().as_secs_f64();
    let rounds = (rounds as usize).clamp(ROUNDS[0], ROUNDS[1]);
    let is_late = || start.elapsed() > limit;

    for choice in [course.by_records()?, course.untuned.clone()] {
        if !is_late() && !is_same(&choice, &best.choice) {
            best = course.faster(best, choice, rounds)?;
        }
    }

    let rivals = course.rivals(&best.choice)?;
    let mut gains: HashMap<Workload, (f64, Tuned)> = HashMap::new();
    for number in 0..rivals.values().map(Vec::len).max().unwrap_or(0) {
        if is_late() {
            break;
        }
        course.add_gains(&mut gains, &mut best, &rivals, number, rounds)?;
    }
    if !gains.is_empty() {
        let mut choice = best.choice.clone();
        choice.extend(gains.into_iter().map(|(workload, (_, tuned))| (workload, tuned)));
        best = course.faster(best, choice, rounds)?;
    }
    course.keep(before, best, rounds)
}

impl Course<'_> {
    fn entrant(&self, network: Arc<Compiled>) -> Result<Entrant, RaceError> {
        let mut choice = Choice::new();
        for tuned in network.schedules() {
            choice.entry(tuned.workload().clone()).or_insert_with(|| tuned.clone());
        }
        let mut workspace = network.workspace()?;
        workspace.run_tensors(self.inputs)?;
        Ok(Entrant { choice, workspace })
    }

    /// The network by some schedules; what they lack, such as conversions between layouts, as the database has it.
    fn network(&self, choice: &Choice) -> Result<Entrant, RaceError> {
        let mut choose = |workload: &Workload| match choice.get(workload) {
            Some(tuned) => Ok(vec![tuned.clone()]),
            None => Ok(Tuned::lookup_kinds(self.db, workload, self.target)?),
        };
        self.entrant(Compiled::with(self.graph, self.target, &mut choose)?)
    }

    /// What would be chosen if no network had been raced.
    fn by_records(&self) -> Result<Choice, RaceError> {
        let mut choose = |workload: &Workload| Ok(Tuned::lookup_kinds(self.db, workload, self.target)?);
        let plan = Plan::of(self.graph, &self.cut, &mut choose)?;
        Ok(plan.kernels.into_iter().rev().map(|tuned| (tuned.workload().clone(), tuned)).collect())
    }

    /// The faster of the leader and the network by other schedules.
    fn faster(&self, mut leader: Entrant, choice: Choice, rounds: usize) -> Result<Entrant, RaceError> {
        let mut other = self.network(&choice)?;
        let [of_leader, of_other] = self.secs([&mut leader, &mut other], rounds)?;
        Ok(if is_faster(&of_other, &of_leader) { other } else { leader })
    }

    /// Seconds of the runs of two networks in turns.
    fn secs(&self, entrants: [&mut Entrant; 2], rounds: usize) -> Result<[Vec<f64>; 2], RaceError> {
        let mut workspaces = entrants.map(|entrant| &mut entrant.workspace);
        let mut secs = time_in_turns(&mut workspaces, self.inputs, rounds)?.into_iter();
        Ok([secs.next().unwrap_or_default(), secs.next().unwrap_or_default()])
    }

    /// Other schedules than those that are chosen, for each workload the most promising first.
    fn rivals(&self, chosen: &Choice) -> Result<HashMap<Workload, Vec<Tuned>>, RaceError> {
        let mut rivals = HashMap::new();
        for (workload, untuned) in &self.untuned {
            let kinds = Tuned::lookup_kinds(self.db, workload, self.target).map_err(CompileError::from)?;
            let secs = |tuned: &Tuned| tuned.best().and_then(|best| best.record.measurement.run_secs());
            let least = kinds.first().and_then(secs).unwrap_or(f64::INFINITY);
            let promising = |tuned: &&Tuned| secs(tuned).is_some_and(|secs| secs <= SLOWER * least);

            let mut others: Vec<Tuned> = Vec::new();
            let mut known: Vec<&Tuned> = kinds.iter().filter(promising).collect();
            known.insert(known.len().min(1), untuned);
            for tuned in known {
                let is_in = |other: &Tuned| other.config() == tuned.config();
                if !chosen.get(workload).is_some_and(is_in) && !others.iter().any(is_in) {
                    others.push(tuned.clone());
                }
            }
            others.truncate(MOST_RIVALS);
            rivals.insert(workload.clone(), others);
        }
        Ok(rivals)
    }

    /// Runs the leader in turns with the network by the rivals of a number, and notes those with which steps are faster, and by how much.
    fn add_gains(
        &self,
        gains: &mut HashMap<Workload, (f64, Tuned)>,
        leader: &mut Entrant,
        rivals: &HashMap<Workload, Vec<Tuned>>,
        number: usize,
        rounds: usize,
    ) -> Result<(), RaceError> {
        let racing = || rivals.iter().filter_map(|(workload, rivals)| Some((workload, rivals.get(number)?)));
        let mut choice = leader.choice.clone();
        choice.extend(racing().map(|(workload, rival)| (workload.clone(), rival.clone())));
        let mut other = self.network(&choice)?;

        let mut ratios: HashMap<Workload, Vec<f64>> = HashMap::new();
        for _ in 0..rounds {
            let secs = [step_secs(leader)?, step_secs(&mut other)?];
            for (workload, leader_secs) in &secs[0] {
                if let Some(other_secs) = secs[1].get(workload) {
                    ratios.entry(workload.clone()).or_default().push(other_secs / leader_secs);
                }
            }
        }
        for (workload, rival) in racing() {
            let Some(gain) = ratios.remove(workload).and_then(gain) else { continue };
            if gains.get(workload).is_none_or(|(known, _)| gain < *known) {
                gains.insert(workload.clone(), (gain, rival.clone()));
            }
        }
        Ok(())
    }

    /// Keeps the schedules of a network if it is faster than the network as it was before, else those of that. True if something new is kept.
    fn keep(&self, before: Choice, mut best: Entrant, rounds: usize) -> Result<bool, RaceError> {
        let network = self.cut.fingerprint(self.graph);
        let key = self.target.key();
        let mut was_raced = false;
        for workload in self.untuned.keys() {
            was_raced |= self.db.knows(&workload.within(Some(network)), &key)?;
        }

        let is_changed = !is_same(&before, &best.choice);
        if was_raced && !is_changed {
            return Ok(false);
        }
        let mut first = self.network(&before)?;
        let [before_secs, best_secs] = self.secs([&mut first, &mut best], rounds)?;
        let wins = is_changed && is_faster(&best_secs, &before_secs);
        if was_raced && !wins {
            return Ok(false);
        }
        let kept = if wins { best.choice } else { first.choice };
        let gain = if wins { median_ratio(&best_secs, &before_secs) } else { 1.0 };
        let before_secs = quantile(before_secs, QUIET);
        let kept_secs = gain * before_secs;

        let harness = format!("{{\"within\":\"{}\",\"rounds\":{rounds}}}", self.graph.name().escape_default());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut appended = 0;
        for (workload, tuned) in kept.iter().filter(|(workload, _)| self.untuned.contains_key(workload)) {
            let mut racers = vec![(tuned, kept_secs)];
            let previous = before.get(workload).filter(|previous| wins && previous.config() != tuned.config());
            racers.extend(previous.map(|previous| (previous, before_secs)));
            let record =
                |(tuned, secs)| self.record(tuned, workload.within(Some(network)), (secs, rounds), (now, &harness));
            let race = racers.into_iter().map(record).collect::<Result<Vec<_>, _>>()?;
            appended += self.db.append_all(&race.into_iter().flatten().collect::<Vec<_>>())?;
        }
        self.db.flush()?;
        Ok(appended > 0)
    }

    /// The record of a schedule with the seconds of a whole network; `None` of one that was not measured by itself on this machine.
    fn record(
        &self,
        tuned: &Tuned,
        within: Workload,
        (secs, rounds): (f64, usize),
        (now, harness): (Duration, &str),
    ) -> Result<Option<TuningRecord>, RaceError> {
        let own = |config: &_| config == tuned.config();
        let found = Tuned::lookup_among(self.db, tuned.workload(), self.target, &own).map_err(CompileError::from)?;
        let best = found.as_ref().and_then(Tuned::best).filter(|best| best.standing != Standing::Claimed);
        let Some(mut record) = best.map(|best| best.record.clone()) else { return Ok(None) };
        let Ok(times) = &mut record.measurement.outcome else { return Ok(None) };

        (times.run_secs, times.median_secs, times.spread) = (secs, secs, 0.0);
        (times.repeats, times.slowdown, times.kernel_secs) = (rounds, 1.0, 0.0);
        (record.measurement.build_secs, record.measurement.measure_secs) = (0.0, 0.0);
        record.workload = within;
        record.phase = Phase::Race { id: now.as_nanos() as u64 };
        record.provenance.unix_secs = now.as_secs();
        record.provenance.harness = harness.into();
        Ok(Some(record))
    }
}

/// The untuned schedules of a network's workloads.
fn untuned(cut: &Cut, target: &Target) -> Result<Choice, RaceError> {
    let mut untuned = Choice::new();
    for step in &cut.steps {
        let Work::Kernel(workload) = &step.work else { continue };
        if let Entry::Vacant(place) = untuned.entry(workload.clone()) {
            let tuned = Tuned::untuned(place.key(), target).map_err(CompileError::from)?;
            place.insert(tuned);
        }
    }
    Ok(untuned)
}

/// True if a choice has the same schedules as another for all workloads of the latter.
fn is_same(choice: &Choice, other: &Choice) -> bool {
    let has =
        |(workload, tuned): (&Workload, &Tuned)| choice.get(workload).is_some_and(|c| c.config() == tuned.config());
    other.iter().all(has)
}

/// The mean seconds of the steps of each workload in a run.
fn step_secs(entrant: &mut Entrant) -> Result<HashMap<Workload, f64>, RunError> {
    // Behind another network nothing of this one is in the caches.
    entrant.workspace.step_secs(false)?;
    let step_secs = entrant.workspace.step_secs(false)?;
    let network = entrant.workspace.network();
    let mut sums: HashMap<&Workload, (f64, f64)> = HashMap::new();
    for (step, secs) in step_secs.iter().enumerate() {
        if let Some(workload) = network.workload(step) {
            let (sum, count) = sums.entry(workload).or_default();
            (*sum, *count) = (*sum + secs, *count + 1.0);
        }
    }
    Ok(sums.into_iter().map(|(workload, (sum, count))| (workload.clone(), sum / count)).collect())
}

/// What a step's time is multiplied by with another schedule, if it is faster clearly enough: the median of the ratios of all rounds.
fn gain(ratios: Vec<f64>) -> Option<f64> {
    let median = quantile(ratios.clone(), 0.5);
    (median < STEP_GAIN && quantile(ratios, STEP_SHARE) < 1.0).then_some(median)
}

/// True if a network was faster than another, round by round.
fn is_faster(secs: &[f64], than: &[f64]) -> bool {
    median_ratio(secs, than) < GAIN
}

/// The median of the ratios of all rounds: what disturbs the machine for longer than a round disturbs both.
fn median_ratio(secs: &[f64], to: &[f64]) -> f64 {
    quantile(secs.iter().zip(to).map(|(secs, to)| secs / to).collect(), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_gains_only_if_it_does_in_most_rounds() {
        assert_eq!(gain(vec![0.9, 0.95, 0.9, 0.8]), Some(0.9));
        assert_eq!(gain(vec![0.98; 9]), None);
        assert_eq!(gain(vec![0.5, 0.5, 0.5, 1.2, 1.2]), None);
    }

    #[test]
    fn networks_are_compared_round_by_round() {
        let disturbed = [1.0, 5.0, 1.1, 9.0, 1.0];
        let faster = disturbed.map(|secs| 0.9 * secs);
        assert!(is_faster(&faster, &disturbed) && !is_faster(&disturbed, &faster));
        assert!(!is_faster(&disturbed, &disturbed));
    }
}
