//! The policy of a run: what it does where nothing else decides. The defaults are what the results
//! in `examples/results` were made with.

use std::time::Duration;

use autotune_deploy::PredictParams;

/// The policy of a run. Searchers have parameters of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneParams {
    /// Trials per task after which a run without any limit of its own is planned to end: batches
    /// are sized for that.
    pub trials_per_task: usize,
    /// Configs of a task that are measured first because records from elsewhere claim that they are
    /// the fastest.
    pub claims: usize,
    /// Workloads of the database from which schedules are carried over to a task: the nearest.
    pub neighbors: usize,
    /// Part of the floor of a task's run time, which is measured, that a time from elsewhere may go
    /// below and still teach the model.
    pub credible_share: f64,
    /// Share of the time budget after which tasks begin with what is predicted in a hurry
    /// ([`PredictParams::QUICK`]).
    pub start_share: f64,
    /// Share of the time budget that the search may use at most; the rest is for the final races.
    pub search_share: f64,
    /// Share that it may use however many tasks there are to race ([`RaceParams::task_secs`]).
    pub least_search_share: f64,
    /// How long behind the end of the time budget the untuned schedules of tasks are still measured
    /// of which nothing is known yet.
    pub needed_overrun: Duration,
    /// How much longer than its share of the time budget a search may wait for the measurement in
    /// progress.
    pub grace: Duration,
    /// Whether what is known of other workloads is used: records of tasks that are not tuned in
    /// this run, the pretrained model and the portfolio that ship for the target.
    pub transfer: bool,
    /// How what ships chooses the schedule that a task begins with; `None` does without it: the
    /// best-scored of what is carried over from records of other workloads, and where there are
    /// none that of the fixed rule.
    pub prediction: Option<PredictParams>,
    /// What the cost model learns from, and when.
    pub learning: LearningParams,
    /// Which task gets the next trials.
    pub scheduling: SchedulingParams,
    /// The final race.
    pub race: RaceParams,
}

impl Default for TuneParams {
    fn default() -> Self {
        Self {
            trials_per_task: 64,
            claims: 8,
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
    /// How the untuned schedules of a run are predicted; `None` if the fixed rule picks them.
    pub(crate) fn predicts_by(&self) -> Option<PredictParams> {
        self.prediction.filter(|_| self.transfer)
    }
}

/// What the cost model learns from, when, and how far it is believed.
#[derive(Clone, Debug, PartialEq)]
pub struct LearningParams {
    /// Samples that a model is fitted on at most: the latest.
    pub samples: usize,
    /// Records of workloads that a run does not tune, learnt from at most: of those with the
    /// nearest shapes first.
    pub history: usize,
    /// Of each such workload this number of records is learnt from before more of any.
    pub history_of_each: usize,
    /// Samples without which there is no model.
    pub first_fit: usize,
    /// Samples of a run's own from which on they correct what records of other workloads taught; as
    /// many trials are in the first batch that goes by those, at most: it tells how far they are to
    /// be believed.
    pub first_correction: usize,
    /// The model is refitted once the samples have grown by one in this many, so that fitting stays
    /// a small share of the time however many there are.
    pub refit_one_in: usize,
    /// One sample in this many is held out to judge the model in the end.
    pub hold_out_one_in: usize,
    /// Share of a batch to be drawn at random, whatever the scores say.
    pub explore: f64,
    /// The same as long as there is only the analytic estimate to go by, which a model must be able
    /// to contradict.
    pub explore_untaught: f64,
    /// Kernels that a compiler must have told of before it is predicted what registers it gives to
    /// others.
    pub registers_first_fit: usize,
    /// Bytes of a thread's spills, stored and loaded, from which on a kernel is not worth
    /// compiling.
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
            explore_untaught: 0.5,
            registers_first_fit: 16,
            max_spill_bytes: 512.0,
        }
    }
}

/// Which task gets the next batch of trials, and when a task gains nothing any more.
#[derive(Clone, Debug, PartialEq)]
pub struct SchedulingParams {
    /// Smallest and largest number of trials in a batch.
    pub batch_trials: [usize; 2],
    /// Batches over which the recent gain of a task is taken.
    pub window_batches: usize,
    /// Weight of the recent gain against the expected one: 0 to 1.
    pub recent_weight: f64,
    /// Trials without gain after which a task is on a plateau, and half as much is expected of
    /// more.
    pub patience: usize,
    /// A task is on a plateau if its last `patience` trials lowered its best time by less than this
    /// share.
    pub plateau_gain: f64,
    /// Share of its best time that a task may always save: floors are the ceilings of one
    /// algorithm, some of whose work can be left out.
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

/// The final race of a task: who takes part, for how long, and when it is run again.
#[derive(Clone, Debug, PartialEq)]
pub struct RaceParams {
    /// Configs that race against the default, besides the best so far: many, because of many
    /// configs that were measured, those that seem the fastest are also those that were lucky.
    pub racers: usize,
    /// Configs that race again, besides the default, if a race was disturbed: the winner of an
    /// earlier one, and the fastest.
    pub finalists: usize,
    /// Races, at most: one that was disturbed is run again.
    pub attempts: usize,
    /// Times the fastest known that the fastest racer takes when the machine is disturbed.
    pub disturbed: f64,
    /// Seconds that the race of a task's best against its default takes, about: so many of the time
    /// budget are kept for each task.
    pub task_secs: f64,
    /// Part of the time budget by which tasks may still race behind its end, their best against
    /// their default. What has not raced by then keeps the times of the search.
    pub late_share: f64,
    /// Seconds that the rounds of a race may take at least, and at most. Where less is left of the
    /// time budget, only the best and the default race.
    pub budget_secs: [f64; 2],
    /// Times its budget within which a race that was disturbed is run again.
    pub again_within: f64,
    /// Runs of a racer, at least: loading and checking it, and its rounds.
    pub runs_of_racer: f64,
    /// Where the time budget ends a run, a race may take this multiple of its own budget, and these
    /// seconds on top: loading and checking kernels, of which some may be slow.
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
            // The rounds of a dozen kernels of a millisecond.
            budget_secs: [0.35, 10.0],
            again_within: 2.0,
            runs_of_racer: 8.0,
            overrun: (2.0, 15.0),
        }
    }
}
