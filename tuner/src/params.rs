//! The policy of a run: what it does where nothing else decides. The defaults are what the results
//! in `lab/results` were made with.

use std::time::Duration;

use autotune_deploy::PredictParams;

/// Policy of a run. Searchers have parameters of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneParams {
    /// Expected trials per task of a run without a trial limit, from which batch sizes follow.
    pub trials_per_task: usize,
    /// Number of a task's configs that are measured first because untrusted records report them as
    /// the fastest.
    pub untrusted_configs: usize,
    /// Number of nearest workloads in the database from which schedules are transferred to a task.
    pub neighbors: usize,
    /// Fraction of a task's roofline bound below which an untrusted time is not credible and does
    /// not teach the model.
    pub credible_share: f64,
    /// Share of the time budget after which tasks start with the fast prediction
    /// ([`PredictParams::QUICK`]).
    pub start_share: f64,
    /// Largest share of the time budget for the search; the rest is for the final races.
    pub search_share: f64,
    /// Share of the time budget that the search gets in any case, however many tasks have to race
    /// ([`RaceParams::task_secs`]).
    pub least_search_share: f64,
    /// Time after the end of the time budget during which default schedules of tasks without any
    /// measurement are still measured.
    pub needed_overrun: Duration,
    /// Time by which a search may exceed its share of the time budget to wait for the current
    /// measurement.
    pub grace: Duration,
    /// True to use knowledge of other workloads: records of tasks not tuned in this run, and the
    /// pretrained model and the portfolio for the target.
    pub transfer: bool,
    /// Parameters of predicting the schedule with which a task starts, by the pretrained model.
    /// With `None` it is the best-scored schedule transferred from records of other workloads, or,
    /// without such records, that of a fixed rule.
    pub prediction: Option<PredictParams>,
    /// Training of the cost model.
    pub learning: LearningParams,
    /// Distribution of trials among the tasks.
    pub scheduling: SchedulingParams,
    /// Parameters of the final race.
    pub race: RaceParams,
}

impl Default for TuneParams {
    fn default() -> Self {
        Self {
            trials_per_task: 64,
            untrusted_configs: 8,
            neighbors: 16,
            credible_share: 0.8,
            start_share: 0.15,
            search_share: 0.9,
            least_search_share: 0.5,
            needed_overrun: Duration::from_secs(10),
            grace: Duration::from_secs(1),
            transfer: true,
            prediction: Some(PredictParams::default()),
            learning: LearningParams::default(),
            scheduling: SchedulingParams::default(),
            race: RaceParams::default(),
        }
    }
}

impl TuneParams {
    /// Returns the parameters of predicting default schedules; `None` if a fixed rule picks them.
    pub(crate) fn predicts_by(&self) -> Option<PredictParams> {
        self.prediction.filter(|_| self.transfer)
    }
}

/// Parameters of training the cost model and of using its scores.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningParams {
    /// Most samples on which a model is fitted: the latest.
    pub samples: usize,
    /// Most records of workloads that the run does not tune; those with the nearest shapes first.
    pub history: usize,
    /// Number of records taken from each such workload before more are taken from any.
    pub history_of_each: usize,
    /// Least number of samples for fitting a model.
    pub first_fit: usize,
    /// Number of a run's own samples from which on they correct a model pretrained on other
    /// workloads. The first batch that relies on such a model has at most as many trials, because
    /// it shows how far the model can be trusted.
    pub first_correction: usize,
    /// The model is refitted when the number of samples has grown by one in this many, so that
    /// fitting remains a small share of the time.
    pub refit_one_in: usize,
    /// One sample in this many is held out to evaluate the model at the end.
    pub hold_out_one_in: usize,
    /// Share of a batch that is drawn at random, independent of the scores.
    pub explore: f64,
    /// Share drawn at random while the scores are only analytic estimates, so that the model gets
    /// samples that contradict them.
    pub explore_untrained: f64,
    /// Number of compiled kernels with known registers from which on those of other kernels are
    /// predicted.
    pub registers_first_fit: usize,
    /// Bytes of spill stores and loads per thread from which on a kernel is not worth compiling.
    pub max_spill_bytes: f32,
}

impl Default for LearningParams {
    fn default() -> Self {
        Self {
            samples: 5_000,
            history: 1_000,
            history_of_each: 64,
            first_fit: 16,
            first_correction: 8,
            refit_one_in: 10,
            hold_out_one_in: 5,
            explore: 0.05,
            explore_untrained: 0.5,
            registers_first_fit: 16,
            max_spill_bytes: 512.0,
        }
    }
}

/// Parameters of distributing trials among tasks, and of detecting plateaus.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulingParams {
    /// Smallest and largest number of trials in a batch.
    pub batch_trials: [usize; 2],
    /// Number of batches over which the recent gain of a task is computed.
    pub window_batches: usize,
    /// Weight of the recent gain relative to the expected one, 0 to 1.
    pub recent_weight: f64,
    /// Trials without gain after which a task is on a plateau, and after which the expected gain is
    /// halved.
    pub patience: usize,
    /// Least relative improvement within `patience` trials; a task with less is on a plateau.
    pub plateau_gain: f64,
    /// Share of its best time that a task may always be expected to save: its floor is that of one
    /// algorithm, some of whose work may be avoidable.
    pub optimism: f64,
}

impl Default for SchedulingParams {
    fn default() -> Self {
        Self {
            batch_trials: [8, 32],
            window_batches: 3,
            recent_weight: 0.2,
            patience: 128,
            plateau_gain: 0.01,
            optimism: 0.03,
        }
    }
}

/// Parameters of the final race of a task: participants, duration and repetition.
#[derive(Clone, Debug, PartialEq)]
pub struct RaceParams {
    /// Number of configs that race against the default, in addition to the best so far. There are
    /// many, because the fastest of many single measurements are partly lucky.
    pub racers: usize,
    /// Number of configs that race again, in addition to the default, after a disturbed race: the
    /// winner of an earlier race, and the fastest.
    pub finalists: usize,
    /// Most attempts: a disturbed race is repeated.
    pub attempts: usize,
    /// Factor by which the fastest racer is slower than the fastest known time when the race counts
    /// as disturbed.
    pub disturbed: f64,
    /// Approximate seconds that a race of a task's best against its default takes, which are
    /// reserved in the time budget for each task.
    pub task_secs: f64,
    /// Share of the time budget by which races of a task's best against its default may exceed it.
    /// Tasks that have not raced by then keep the times of the search.
    pub late_share: f64,
    /// Least and most seconds for the rounds of a race. If less is left of the time budget, only
    /// the best and the default race.
    pub budget_secs: [f64; 2],
    /// Multiple of its budget within which a disturbed race is repeated.
    pub again_within: f64,
    /// Least number of runs per racer: loading, checking, and its rounds.
    pub runs_of_racer: f64,
    /// Multiple of a race's own budget, and additional seconds, that it may take when the time
    /// budget ends a run. They cover loading and checking kernels, some of which may be slow.
    pub overrun: (f64, f64),
}

impl Default for RaceParams {
    fn default() -> Self {
        Self {
            racers: 12,
            finalists: 4,
            attempts: 5,
            disturbed: 1.08,
            task_secs: 0.15,
            late_share: 0.1,
            // Enough for the rounds of a dozen kernels of a millisecond.
            budget_secs: [0.35, 10.0],
            again_within: 2.0,
            runs_of_racer: 8.0,
            overrun: (2.0, 15.0),
        }
    }
}
