//! Teams of threads that run kernels together.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_long};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use crate::affinity;

#[cfg(test)]
mod tests;

/// Entry point of a stage; see [`autotune_ir::plan::PlanStage::symbol`].
pub type StageFn = unsafe extern "C" fn(*const *mut f32, *mut c_char, c_long, c_long);

/// Iterations that a helper spins between two runs (about fifty microseconds) before it sleeps.
const IDLE_SPINS: usize = 2_000;
/// Iterations that a thread spins within a run (about ten microseconds) before it yields its core,
/// which threads that it waits for may need.
const RUN_SPINS: usize = 500;
/// Number of yields before it sleeps.
const RUN_YIELDS: usize = 1_000;

/// Behaviour of the helpers of a team while they wait for other threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// Spinning for some microseconds before they sleep: runs of short stages make no system calls.
    #[default]
    Spin,
    /// Spinning for at most about ten microseconds, also between runs: for programs with threads of
    /// their own that need the cores then.
    Briefly,
    /// Sleeping at once, which leaves the cores to other programs: every wait of a helper costs a
    /// system call and the time to wake.
    Sleep,
}

impl Waiting {
    /// Every behaviour, by its discriminant.
    const ALL: [Self; 3] = [Self::Spin, Self::Briefly, Self::Sleep];

    /// Returns the behaviour for a value of the option `spin`: `on`, `brief` or `off`.
    pub fn of_spin(word: &str) -> Option<Self> {
        match word {
            "on" => Some(Self::Spin),
            "brief" => Some(Self::Briefly),
            "off" => Some(Self::Sleep),
            _ => None,
        }
    }

    /// Returns the number of iterations that a helper spins between two runs.
    fn idle_spins(self) -> usize {
        match self {
            Self::Spin => IDLE_SPINS,
            Self::Briefly => RUN_SPINS,
            Self::Sleep => 0,
        }
    }
}

/// A fixed number of threads that share the tasks of stages: the calling thread and `threads - 1`
/// helpers.
///
/// All threads enter a run once, whatever its number of stages, and synchronise between stages. A
/// waiting thread first spins, then yields its core, then sleeps. Runs of short stages thus make no
/// system calls, and an idle team uses no CPU time. Helpers may also sleep at once ([`Waiting`]).
pub struct Team {
    shared: Arc<TeamShared>,
    helpers: Vec<JoinHandle<()>>,
}

/// A stage to be run, with its arguments.
#[derive(Clone, Copy)]
pub(crate) struct TeamWork<'a> {
    pub(crate) function: StageFn,
    pub(crate) buffers: &'a [*mut f32],
    /// Private memory of at least each thread of the team.
    pub(crate) locals: &'a [*mut c_char],
    pub(crate) tasks: usize,
}

// SAFETY: the caller of `Team::run` permits all threads to use the memory behind the pointers.
unsafe impl Sync for TeamWork<'_> {}

/// A sequence of stages that every thread of a run executes.
pub(crate) trait Stages: Sync {
    fn stages(&self) -> impl Iterator<Item = TeamWork<'_>>;
}

/// Work of every thread in a run: a function, and the address and length of borrowed data of the
/// caller.
#[derive(Clone, Copy)]
struct TeamJob {
    /// Must be called only while the caller's data is borrowed.
    function: unsafe fn(*const (), usize, &Member),
    of: *const (),
    len: usize,
}

/// A thread that takes part in a run.
struct Member<'a> {
    shared: &'a TeamShared,
    index: usize,
}

/// State shared by all threads. Except for the posts, it is written only when a thread falls asleep
/// or wakes, or between runs, so that its cache line stays in all caches.
struct TeamShared {
    /// One post per thread, the caller's first.
    posts: Vec<Post>,
    /// Number of helpers that sleep or are about to.
    sleepers: AtomicUsize,
    /// Discriminant of the helpers' [`Waiting`].
    waiting: AtomicU8,
    threads: OnceLock<Vec<Thread>>,
    stop: AtomicBool,
}

/// State that a thread publishes to the others. Two cache lines of its own, since processors fetch
/// lines in pairs.
#[repr(align(128))]
struct Post {
    /// Number of synchronisation points that the thread has reached: the start of a run (published
    /// by the caller only), those between stages, and the end.
    reached: AtomicUsize,
    /// Work of this run. The caller writes it between two runs; publishing the start makes it
    /// visible to helpers.
    job: UnsafeCell<Option<TeamJob>>,
}

impl TeamShared {
    fn waiting(&self) -> Waiting {
        Waiting::ALL[usize::from(self.waiting.load(Ordering::Relaxed))]
    }
}

impl Post {
    /// Helpers start at the end of a run before the first one; the caller does not publish ends.
    fn new(index: usize) -> Self {
        Self { reached: AtomicUsize::new(usize::from(index > 0)), job: UnsafeCell::new(None) }
    }
}

// SAFETY: `job` is written only while all helpers wait for the start of a run, and read only within
// runs.
unsafe impl Sync for TeamShared {}
// SAFETY: as above.
unsafe impl Send for TeamShared {}

impl Team {
    /// Creates a team of `threads` threads (at least 1), including the caller, without pinning.
    pub fn new(threads: usize) -> Self {
        Self::with(threads, |_| {})
    }

    /// Creates a team whose helpers are pinned to the second and following cores that this process
    /// may use; for machines without other load. The caller can take the first core by
    /// [`crate::pin_to_core`].
    pub fn pinned(threads: usize) -> Self {
        affinity::allowed_cores();
        Self::with(threads, affinity::pin_to_core)
    }

    /// Creates a team. Each helper first calls `start` with its number, from 1.
    fn with(threads: usize, start: fn(usize)) -> Self {
        let shared = Arc::new(TeamShared {
            posts: (0..threads.max(1)).map(Post::new).collect(),
            sleepers: AtomicUsize::new(0),
            waiting: AtomicU8::new(Waiting::default() as u8),
            threads: OnceLock::new(),
            stop: AtomicBool::new(false),
        });
        let helper = |index: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                start(index);
                Member { shared: &shared, index }.help();
            })
        };
        let helpers: Vec<JoinHandle<()>> = (1..threads.max(1)).map(helper).collect();
        shared.threads.get_or_init(|| helpers.iter().map(|helper| helper.thread().clone()).collect());
        Self { shared, helpers }
    }

    /// Returns the number of threads, including the caller.
    pub fn threads(&self) -> usize {
        self.shared.posts.len()
    }

    /// Changes the behaviour of waiting helpers; a new team has the default one. The calling thread
    /// waits for helpers as before.
    pub fn set_waiting(&mut self, waiting: Waiting) {
        self.shared.waiting.store(waiting as u8, Ordering::Relaxed);
    }

    /// Returns the behaviour of waiting helpers.
    pub fn waiting(&self) -> Waiting {
        self.shared.waiting()
    }

    /// Runs stages one after the other and returns when all are done. Thread `i` of `t` executes
    /// the tasks `n*i/t .. n*(i+1)/t` of `n`.
    ///
    /// # Safety
    ///
    /// Several threads may call the functions concurrently for disjoint tasks with these pointers.
    /// Each stage must have private memory for every thread of the team.
    pub(crate) unsafe fn run<S: Stages>(&mut self, stages: &[S]) {
        let is_divided = || stages.iter().flat_map(S::stages).any(|stage| stage.tasks > 1);
        if self.helpers.is_empty() || !is_divided() {
            // SAFETY: guaranteed by the caller.
            stages.iter().flat_map(S::stages).for_each(|stage| unsafe { stage.run(0, 0..stage.tasks) });
            return;
        }
        // SAFETY: guaranteed by the caller.
        let walk = |stages: *const (), len, member: &Member| unsafe {
            member.walk(slice::from_raw_parts(stages.cast::<S>(), len))
        };
        // SAFETY: the function receives the address and length of data that is borrowed until the
        // run ends.
        unsafe { self.run_on_all(TeamJob { function: walk, of: stages.as_ptr().cast(), len: stages.len() }) };
    }

    /// Runs `work` on parts of `0..tasks`, one per thread. `work` must not panic.
    pub fn divide<F: Fn(Range<usize>) + Sync>(&mut self, tasks: usize, work: F) {
        if self.helpers.is_empty() || tasks <= 1 {
            return work(0..tasks);
        }
        let part = |work: *const (), tasks, member: &Member| {
            let part = member.part(tasks);
            if !part.is_empty() {
                // SAFETY: the pointer is the address of `work`.
                unsafe { (*work.cast::<F>())(part) };
            }
        };
        // SAFETY: the function receives the address of data that is borrowed until the run ends.
        unsafe { self.run_on_all(TeamJob { function: part, of: (&raw const work).cast(), len: tasks }) };
    }

    /// Lets every thread execute a job, and returns when all have.
    ///
    /// # Safety
    ///
    /// Every thread may call the job's function concurrently until this returns.
    unsafe fn run_on_all(&mut self, job: TeamJob) {
        let caller = Member { shared: &self.shared, index: 0 };
        // SAFETY: no helper is in a run: the last run was awaited, and `&mut self` excludes other
        // callers. Helpers execute the job before they reach the end of this run, which is awaited
        // below.
        unsafe { *caller.own_post().job.get() = Some(job) };
        caller.begin();
        // SAFETY: guaranteed by the caller.
        unsafe { caller.work(job) };
        caller.wait_for_end();
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        Member { shared: &self.shared, index: 0 }.begin();
        for helper in self.helpers.drain(..) {
            // Helpers never panic: a panicking job aborts the process.
            let _ = helper.join();
        }
    }
}

impl Stages for TeamWork<'_> {
    fn stages(&self) -> impl Iterator<Item = TeamWork<'_>> {
        std::iter::once(*self)
    }
}

impl TeamWork<'_> {
    /// Runs some tasks on the given thread.
    ///
    /// # Safety
    ///
    /// See [`Team::run`]. Meanwhile nothing else may run these tasks, or use the thread's private
    /// memory.
    unsafe fn run(&self, thread: usize, tasks: Range<usize>) {
        if !tasks.is_empty() {
            let (begin, end) = (tasks.start as c_long, tasks.end as c_long);
            // SAFETY: guaranteed by the caller.
            unsafe { (self.function)(self.buffers.as_ptr(), self.locals[thread], begin, end) };
        }
    }
}

impl Member<'_> {
    /// Returns this thread's part of the tasks.
    fn part(&self, tasks: usize) -> Range<usize> {
        let parts = self.shared.posts.len();
        let (share, rest) = (tasks / parts, tasks % parts);
        // Equals `tasks * i / parts` without overflow.
        let bound = |i: usize| share * i + rest * i / parts;
        match tasks {
            // A single task is the caller's.
            0 | 1 => 0..if self.index == 0 { tasks } else { 0 },
            _ => bound(self.index)..bound(self.index + 1),
        }
    }

    /// Executes the jobs of all runs until the team is dropped.
    fn help(&self) {
        loop {
            let begin = self.point() + 1;
            self.wait_for(0, begin, self.shared.waiting().idle_spins(), 0);
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            self.own_post().reached.store(begin, Ordering::Relaxed);
            // SAFETY: the caller wrote the job before it published the start of the run, and does
            // not write it again until this thread has reached the end.
            if let Some(job) = unsafe { *self.shared.posts[0].job.get() } {
                // SAFETY: this call is within the run.
                unsafe { self.work(job) };
            }
            self.reach();
        }
    }

    /// Executes a job.
    ///
    /// # Safety
    ///
    /// Must be called within the run of the job.
    unsafe fn work(&self, job: TeamJob) {
        let panics = Panics;
        // SAFETY: the caller of the run lends the job's data until the run ends.
        unsafe { (job.function)(job.of, job.len, self) };
        std::mem::forget(panics);
    }

    /// Runs this thread's part of each stage.
    ///
    /// # Safety
    ///
    /// See [`Team::run`].
    unsafe fn walk<S: Stages>(&self, stages: &[S]) {
        let mut before = None;
        for stage in stages.iter().flat_map(S::stages) {
            let is_divided = stage.tasks > 1;
            // Consecutive stages of a single task run on one thread, in order.
            if before.is_some_and(|before| before || is_divided) {
                self.wait_for_all();
            }
            before = Some(is_divided);
            // SAFETY: guaranteed by the caller; tasks of different threads are disjoint.
            unsafe { stage.run(self.index, self.part(stage.tasks)) };
        }
    }

    /// Starts the next run for the helpers: one point after the end of the last one.
    fn begin(&self) {
        self.tell(self.point() + 2);
    }

    /// Waits until every helper has reached the end of the run. The caller publishes no end, since
    /// nothing waits for it.
    fn wait_for_end(&self) {
        let end = self.point() + 1;
        (1..self.shared.posts.len()).for_each(|helper| self.wait_for(helper, end, RUN_SPINS, RUN_YIELDS));
    }

    /// Waits until every thread has reached this point.
    fn wait_for_all(&self) {
        let point = self.reach();
        for other in (0..self.shared.posts.len()).filter(|&other| other != self.index) {
            self.wait_for(other, point, RUN_SPINS, RUN_YIELDS);
        }
    }

    /// Publishes that this thread has reached its next point, and returns the point.
    fn reach(&self) -> usize {
        let point = self.point() + 1;
        self.tell(point);
        point
    }

    /// Publishes a point, which makes all earlier writes of this thread visible to threads that
    /// wait for it, and wakes sleeping threads.
    fn tell(&self, point: usize) {
        self.own_post().reached.store(point, Ordering::Release);
        // Pairs with the fence in `sleep`: either this thread sees the sleeper, or the sleeper sees
        // the point.
        fence(Ordering::SeqCst);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.shared.threads.get().into_iter().flatten().for_each(Thread::unpark);
        }
    }

    /// Waits until another thread has reached a point: spins, then yields, then sleeps. Helpers
    /// sleep at once if the team says so.
    fn wait_for(&self, other: usize, point: usize, spins: usize, yields: usize) {
        let other = &self.shared.posts[other].reached;
        let has_reached = || other.load(Ordering::Acquire) >= point;
        if self.index > 0 && self.shared.waiting() == Waiting::Sleep {
            return self.sleep(has_reached);
        }

        for _ in 0..spins {
            if has_reached() {
                return;
            }
            std::hint::spin_loop();
        }
        for _ in 0..yields {
            if has_reached() {
                return;
            }
            thread::yield_now();
        }
        match self.index {
            // The caller is never woken by helpers, so it must not sleep.
            0 => wait_until(has_reached, thread::yield_now),
            _ => self.sleep(has_reached),
        }
    }

    fn sleep(&self, is_over: impl Fn() -> bool) {
        self.shared.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        wait_until(is_over, thread::park);
        self.shared.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the last point that this thread has published.
    fn point(&self) -> usize {
        self.own_post().reached.load(Ordering::Relaxed)
    }

    fn own_post(&self) -> &Post {
        &self.shared.posts[self.index]
    }
}

/// Aborts the process when dropped by a panicking job, since other threads wait for the job and use
/// data that unwinding would free.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn wait_until(is_over: impl Fn() -> bool, wait: fn()) {
    while !is_over() {
        wait();
    }
}
