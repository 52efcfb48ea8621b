//! Main interface: configuring and starting a run.

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
use crate::session::{TuningRun, TuningRunParts};
use crate::settings::{Settings, Setup};
use crate::support::check_supported;

/// Tunes tasks for a target. Every option has a default: no limits, so that the run ends when no
/// task gains any more; simulated annealing with gradient-boosted trees; this machine's device; a
/// temporary database; no progress events.
///
/// The working parts can be replaced: [`Tuner::searcher`], [`Tuner::cost_model`],
/// [`Tuner::measurer`].
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
    /// Returns a tuner for a target, with default options.
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

    /// Limits the number of measurements over all tasks, including those of earlier runs in the
    /// database. `None` means no limit: the run ends with the time budget, or without one when no
    /// task gains any more.
    pub fn trials(mut self, trials: impl Into<Option<usize>>) -> Self {
        self.settings.trials = trials.into();
        self
    }

    /// Limits the wall-clock time of the run, including the final race; `None` means no limit. The
    /// default schedule of every task is measured first, however long that takes.
    pub fn time_budget(mut self, budget: impl Into<Option<Duration>>) -> Self {
        self.settings.time_budget = budget.into();
        self
    }

    /// Sets the seed of all random choices; the default is 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = seed;
        self
    }

    /// Sets the policy: batch sizes, training of the model, races.
    pub fn params(mut self, params: TuneParams) -> Self {
        self.settings.params = params;
        self
    }

    /// Sets the function that makes the searcher of each task from the task's space.
    pub fn searcher<S: Searcher + 'static>(mut self, new: impl Fn(&ScheduleSpace) -> S + 'a) -> Self {
        self.new_searcher = Box::new(move |space| Box::new(new(space)));
        self
    }

    /// Sets the cost model, one for all tasks. It is used only if a searcher [uses
    /// scores](Searcher::uses_scores).
    pub fn cost_model(mut self, model: impl CostModel + 'static) -> Self {
        self.cost_model = Some(Box::new(model));
        self
    }

    /// Sets the measurer. Describe its device with [`Tuner::ceilings`] and [`Tuner::setup`].
    pub fn measurer(mut self, measurer: &'a mut dyn Measurer) -> Self {
        self.measurer = Some(measurer);
        self
    }

    /// Sets the database to which every measurement is appended, and whose records of earlier runs
    /// are used.
    pub fn database(mut self, db: &'a TuningDb) -> Self {
        self.db = Some(db);
        self
    }

    /// Sets the receiver of progress events.
    pub fn observer(mut self, observer: &'a mut dyn Observer) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Sets the switch that cancels the run. A custom measurer should poll [`Cancel::is_due`].
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.settings.cancel = cancel.clone();
        self
    }

    /// Sets the peak rates of the device. They give lower bounds of run times, the roofline in the
    /// report, and the [rates](autotune_ir::Rates) for the static analysis. For this machine's
    /// device they are measured by default.
    pub fn ceilings(mut self, ceilings: impl Into<Option<Ceilings>>) -> Self {
        self.settings.ceilings = ceilings.into();
        self
    }

    /// Sets the circumstances that records store. For this machine's device they are determined by
    /// default.
    pub fn setup(mut self, setup: Setup) -> Self {
        self.settings.setup = setup;
        self
    }

    /// Tunes until the limit of trials or time is reached or the run is cancelled; without limits,
    /// until no task gains any more. Then races the best few schedules of each task against its
    /// default.
    ///
    /// On a GPU the next batch is proposed and built while the device runs, so that proposals do
    /// not know the latest results.
    ///
    /// Every measurement is appended to the database immediately. An interrupted run loses nothing,
    /// and a power failure at most the last quarter of a second. Existing records count as trials,
    /// are not measured again, and train the model, as do those of other workloads on the same
    /// target.
    pub fn tune(self, tasks: &[Task]) -> Result<Report, TuneError> {
        let own_model = || match self.settings.params.transfer {
            true => XgbModel::for_target(&self.target),
            false => XgbModel::from_estimate(&self.target),
        };
        let cost_model = self.cost_model.unwrap_or_else(|| Box::new(own_model()));
        let run = RunContext { measurer: self.measurer, db: self.db, observer: self.observer };
        run.with(tasks, &self.target, self.settings, |target, settings, measurer, db, observer| {
            let new_searcher = &*self.new_searcher;
            let parts = TuningRunParts { new_searcher, cost_model, measurer, db, observer };
            let mut session = TuningRun::resume(tasks, target, settings, parts)?;
            let stop = session.search()?;
            session.finish(stop)
        })
    }

    /// Measures the best known config of each task against its default, interleaved and checked,
    /// and appends the results to the database. If no schedule of a task is known, only its default
    /// is measured. Limits and seed are ignored.
    pub fn bench(self, tasks: &[Task]) -> Result<BenchReport, TuneError> {
        let run = RunContext { measurer: self.measurer, db: self.db, observer: self.observer };
        run.with(tasks, &self.target, self.settings, |target, settings, measurer, db, observer| {
            bench(tasks, target, settings, measurer, db, observer)
        })
    }
}

/// Parts of a run that the caller may have provided.
struct RunContext<'a> {
    measurer: Option<&'a mut dyn Measurer>,
    db: Option<&'a TuningDb>,
    observer: Option<&'a mut dyn Observer>,
}

impl RunContext<'_> {
    /// Calls `action` with the provided parts and defaults for the others. If ceilings are known,
    /// the target has the rates that follow from them. The time to make the defaults counts towards
    /// the time budget.
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
        settings.reports_load = measurer.reports_load();
        settings.time_budget = settings.time_budget.map(|budget| budget.saturating_sub(start.elapsed()));
        let rated = settings.ceilings.map(|ceilings| ceilings.rated(target));
        action(rated.as_ref().unwrap_or(target), &settings, measurer, db, observer)
    }
}
