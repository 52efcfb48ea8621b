//! Measurement and tuning of the layout conversions in the execution plans of a network.

use std::time::{Duration, Instant};

use anyhow::Result;
use autotune::search::Random;
use autotune::{Cancel, RaceParams, Setup, Task, TuneParams, Tuner};
use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_measure::{Ceilings, Measurer};
use autotune_network::{Graph, PlannedConversions, conversions};

use crate::output::say;
use crate::search_kind::SearchKind;

/// Maximum number of times that the plan is recomputed: each measurement can make another plan the
/// fastest, which needs other conversions.
const PLANS: usize = 3;

/// Share of the time left after the search that conversions may use, and the seconds of it from
/// which on their schedules are searched.
const SHARE: f64 = 0.25;
const SEARCH_SECS: f64 = 0.5;

/// Shortest and longest race between the schedules of a conversion, in seconds.
const RACE_SECS: [f64; 2] = [0.02, 0.2];

/// Time after the end of the budget in which conversions of the fastest plan still get their first
/// measurement. After that, conversions are estimated.
const OVERRUN: Duration = Duration::from_secs(2);

/// Measurer, database and search options used for conversions.
pub(super) struct ConversionBench<'a> {
    pub(super) target: &'a Target,
    pub(super) measurer: &'a mut dyn Measurer,
    pub(super) ceilings: Option<Ceilings>,
    pub(super) setup: Setup,
    pub(super) db: &'a TuningDb,
    pub(super) cancel: &'a Cancel,
    pub(super) params: TuneParams,
    pub(super) kind: SearchKind,
    pub(super) seed: u64,
}

/// Trials of the preceding search, and the time left after it.
pub(super) struct Budget {
    pub(super) trials: Option<usize>,
    pub(super) left: Option<Duration>,
}

impl ConversionBench<'_> {
    /// Measures conversions of a network, then tunes the important ones. First it measures the
    /// default schedule of each unmeasured conversion of the fastest plan, and of plans that are
    /// hardly slower. Then it tunes the conversions of the fastest plan, with the same share of the
    /// trials and of the time as they have of the network's run time.
    pub(super) fn measure(mut self, graph: &Graph, budget: &Budget) -> Result<()> {
        let start = Instant::now();
        let most = budget.left.map(|left| left.mul_f64(SHARE));
        let left = || most.map(|most| most.saturating_sub(start.elapsed()));
        let mut planned = conversions(graph, self.db, self.target)?;
        // Planning and measuring alternate until the plan contains no unmeasured conversion.
        for _ in 0..PLANS {
            // After the deadline only conversions of the fastest plan are measured: the estimates
            // of others decide nothing.
            let is_late = left() == Some(Duration::ZERO);
            let tasks = planned.unmeasured.iter().filter(|task| !is_late || planned.needed.contains(task));
            let tasks: Vec<Task> = tasks.cloned().collect();
            let is_over = most.is_some_and(|most| start.elapsed() > most + OVERRUN);
            if tasks.is_empty() || is_over || self.cancel.is_cancelled() {
                break;
            }
            self.tuner(Some(tasks.len()), left()).searcher(|_| Random).tune(&tasks)?;
            planned = conversions(graph, self.db, self.target)?;
        }

        let PlannedConversions { needed, share, .. } = planned;
        say(format_args!(
            "{} layout conversion(s) in the fastest plan according to the records, {:.1} % of its time",
            needed.iter().map(|task| task.count).sum::<usize>(),
            share * 100.0
        ));
        let trials = budget.trials.map(|trials| (share * trials as f64) as usize);
        let time = left().map(|left| left.mul_f64(share.min(1.0)));
        // One trial of each conversion is its default schedule, so a search needs more.
        let is_worth = trials.is_none_or(|trials| trials > needed.len())
            && time.is_none_or(|time| time.as_secs_f64() >= SEARCH_SECS);
        if is_worth && !self.cancel.is_cancelled() && !needed.is_empty() {
            let kind = self.kind;
            self.tuner(trials, time).searcher(|_| kind.searcher()).tune(&needed)?;
        }
        Ok(())
    }

    fn tuner(&mut self, trials: Option<usize>, time: Option<Duration>) -> Tuner<'_> {
        let race = RaceParams { budget_secs: RACE_SECS, ..self.params.race.clone() };
        let needed_overrun = self.params.needed_overrun.min(OVERRUN);
        let params = TuneParams { race, needed_overrun, ..self.params.clone() };
        let tuner = Tuner::new(self.target).trials(trials).time_budget(time).seed(self.seed).params(params);
        tuner
            .measurer(self.measurer)
            .ceilings(self.ceilings)
            .setup(self.setup.clone())
            .database(self.db)
            .cancel(self.cancel)
    }
}
