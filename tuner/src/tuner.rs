//! The front door: what a run is made of, and running it.

use std::time::{Duration, Instant};

use autotune_cost_model::{CostModel, XgbModel};
use autotune_db::TuningDb;
use autotune_ir::Target;
use autotune_measure::{Ceilings, Measurer};
use autotune_measurement::Backend;
use autotune_schedules::ScheduleSpace;
use autotune_workloads::Workload;

use crate::bench::bench;
use crate::cancel::Cancel;
use crate::error::TuneError;
use crate::local::LocalDevice;
use crate::network::Task;
use crate::observer::{Observer, Silent};
use crate::params::TuneParams;
use crate::report::{BenchReport, Report};
use crate::search::{Annealing, NewSearcher, Searcher};
use crate::session::{Parts, Session};
use crate::settings::{Settings, Setup};
use crate::support::check_supported;

/// Tunes tasks for a target. What is not said has a default: no limit but that nothing is gained
/// any more, annealing over gradient-boosted trees, this machine's device, a database that is gone
/// after the run, and silence.
///
/// Everything that does the work can be brought from outside: [`Tuner::searcher`],
/// [`Tuner::cost_model`], [`Tuner::measurer`].
pub struct Tuner<'a> {
    target: Target,
    settings: Settings,
    new_searcher: Box<NewSearcher<'a>>,
    cost_model: Option<Box<dyn CostModel>>,
    measurer: Option<&'a mut dyn Measurer>,
    db: Option<&'a TuningDb>,
    observer: Option<&'a mut dyn Observer>,
}

impl<'a> Tuner<'a> {
    /// A tuner for a target, with every default.
    pub fn new(target: &Target) -> Self {
        Self {
            target: target.clone(),
            settings: Settings::default(),
            new_searcher: Box::new(|_| Box::<Annealing>::default()),
            cost_model: None,
            measurer: None,
            db: None,
            observer: None,
        }
    }

    /// Measurements in total over all tasks, those of earlier runs in the database included. `None`
    /// is no limit: the run ends with the time budget, or without one when no task gains any more.
    pub fn trials(mut self, trials: impl Into<Option<usize>>) -> Self {
        self.settings.trials = trials.into();
        self
    }

    /// Wall-clock time after which the run ends, the final race included; `None` is no limit. The
    /// untuned schedule of every task is measured first, however long that takes.
    pub fn time_budget(mut self, budget: impl Into<Option<Duration>>) -> Self {
        self.settings.time_budget = budget.into();
        self
    }

    /// Seed of every random choice: 0 if it is not said.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Policy: sizes of batches, what the model learns from, who races.
    pub fn params(mut self, params: TuneParams) -> Self {
        self.settings.params = params;
        self
    }

    /// How configs are proposed: makes the searcher of each task, from the task's space.
    pub fn searcher<S: Searcher + 'static>(mut self, new: impl Fn(&ScheduleSpace) -> S + 'a) -> Self {
        self.new_searcher = Box::new(move |space| Box::new(new(space)));
        self
    }

    /// What predicts scores, one for all tasks. Of no use where no searcher [uses
    /// scores](Searcher::uses_scores).
    pub fn cost_model(mut self, model: impl CostModel + 'static) -> Self {
        self.cost_model = Some(Box::new(model));
        self
    }

    /// What measures. [`Tuner::ceilings`] and [`Tuner::setup`] say what it measures on.
    pub fn measurer(mut self, measurer: &'a mut dyn Measurer) -> Self {
        self.measurer = Some(measurer);
        self
    }

    /// Where every measurement is appended as it comes, and what is known from earlier runs.
    pub fn database(mut self, db: &'a TuningDb) -> Self {
        self.db = Some(db);
        self
    }

    /// What follows the run.
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Ends the run from outside; a measurer of the caller's own asks it by [`Cancel::is_due`].
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.settings.cancel = cancel.clone();
        self
    }

    /// What the device can do at most: the floor under run times, what the report compares with,
    /// and the [rates](autotune_ir::Rates) that the analysis counts by. Of this machine's device it
    /// is measured.
    pub fn ceilings(mut self, ceilings: impl Into<Option<Ceilings>>) -> Self {
        self.settings.ceilings = ceilings.into();
        self
    }

    /// What the records tell of the circumstances; of this machine's device it is known.
    pub fn setup(mut self, setup: Setup) -> Self {
        self.settings.setup = setup;
        self
    }

    /// Tunes until the trials or the time are used up or the run is cancelled, and without either
    /// limit until no task gains any more; then races the best few of each task against its
    /// default.
    ///
    /// On a GPU the next batch is proposed and built while the device runs: it comes from what was
    /// known until then.
    ///
    /// Every measurement is appended to the database as it comes: an interrupted run loses nothing,
    /// a killed one a quarter of a second. Records that are there already count as trials, are not
    /// measured again, and teach the model, as do those of other workloads on the same target.
    pub fn tune(self, tasks: &[Task]) -> Result<Report, TuneError> {
        let own_model = || match self.settings.params.transfer {
            true => XgbModel::for_target(&self.target),
            false => XgbModel::from_estimate(&self.target),
        };
        let cost_model = self.cost_model.unwrap_or_else(|| Box::new(own_model()));
        let run = Run { measurer: self.measurer, db: self.db, observer: self.observer };
        run.with(tasks, &self.target, self.settings, |target, settings, measurer, db, observer| {
            let new_searcher = &*self.new_searcher;
            let parts = Parts { new_searcher, cost_model, measurer, db, observer };
            let mut session = Session::resume(tasks, target, settings, parts)?;
            let stop = session.search()?;
            session.finish(stop)
        })
    }

    /// Measures the best known config of each task against its default, interleaved and checked,
    /// and appends the results to the database. A task of which nothing is known yet has its
    /// default measured. Limits and seed do not count.
    pub fn bench(self, tasks: &[Task]) -> Result<BenchReport, TuneError> {
        let run = Run { measurer: self.measurer, db: self.db, observer: self.observer };
        run.with(tasks, &self.target, self.settings, |target, settings, measurer, db, observer| {
            bench(tasks, target, settings, measurer, db, observer)
        })
    }
}

/// What is measured on, written to and told, as far as it was brought.
struct Run<'a> {
    measurer: Option<&'a mut dyn Measurer>,
    db: Option<&'a TuningDb>,
    observer: Option<&'a mut dyn Observer>,
}

impl Run<'_> {
    /// Does something with what was brought, and with defaults for what was not, on the target with
    /// the rates that its ceilings tell, where those are known. Making those counts into the time
    /// budget.
    fn with<T>(
        self,
        tasks: &[Task],
        target: &Target,
        mut settings: Settings,
        action: impl FnOnce(&Target, &Settings, &mut dyn Measurer, &TuningDb, &mut dyn Observer) -> Result<T, TuneError>,
    ) -> Result<T, TuneError> {
        let start = Instant::now();
        let workloads: Vec<Workload> = tasks.iter().map(|task| task.workload.clone()).collect();
        check_supported(&workloads, target)?;

        let (mut own_device, own_db);
        let measurer: &mut dyn Measurer = match self.measurer {
            Some(measurer) => measurer,
            None => {
                own_device = LocalDevice::open(target, &workloads, Backend::default(), &settings.cancel)?;
                let LocalDevice { measurer, ceilings, setup } = &mut own_device;
                settings.ceilings = settings.ceilings.or(ceilings.as_ref().ok().copied());
                if settings.setup == Setup::default() {
                    settings.setup = setup.clone();
                }
                measurer
            }
        };
        let db = match self.db {
            Some(db) => db,
            None => {
                own_db = TuningDb::temporary()?;
                &own_db
            }
        };
        let mut silent = Silent;
        let observer = self.observer.unwrap_or(&mut silent);

        settings.tasks = tasks.len();
        settings.time_budget = settings.time_budget.map(|budget| budget.saturating_sub(start.elapsed()));
        let rated = settings.ceilings.map(|ceilings| ceilings.rated(target));
        action(rated.as_ref().unwrap_or(target), &settings, measurer, db, observer)
    }
}
