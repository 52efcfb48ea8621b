//! Threads that run kernels together.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_long};
use std::ops::Range;
use std::slice;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use crate::affinity;

/// Entry point of a stage, [`autotune_ir::plan::PlanStage::symbol`].
pub type StageFn = unsafe extern "C" fn(*const *mut f32, *mut c_char, c_long, c_long);

/// Rounds a helper spins (some fifty microseconds) between two runs before it sleeps.
const IDLE_SPINS: usize = 2_000;
/// Rounds a thread spins within a run (some ten microseconds) before it lets others have the core:
/// those that it waits for may be among them.
const RUN_SPINS: usize = 500;
/// How often it does that before it sleeps.
const RUN_YIELDS: usize = 1_000;

/// A fixed number of threads that divide the tasks of stages among themselves: the calling thread
/// and `threads - 1` helpers.
///
/// All of them enter a run once, however many stages it has, and wait for each other between
/// stages. They spin while they wait, then let others have the core, and sleep when that takes
/// long: a run of short stages calls no system, and an idle team costs no core.
pub struct Team {
    shared: Arc<Shared>,
    helpers: Vec<JoinHandle<()>>,
}

/// A stage to be run.
#[derive(Clone, Copy)]
pub(crate) struct Work<'a> {
    pub(crate) function: StageFn,
    pub(crate) buffers: &'a [*mut f32],
    /// One per thread of the team, at least.
    pub(crate) locals: &'a [*mut c_char],
    pub(crate) tasks: usize,
}

// SAFETY: what is behind the pointers, the caller of `Team::run` lets all of its threads use.
unsafe impl Sync for Work<'_> {}

/// What a run is of, which every thread walks through.
pub(crate) trait Stages: Sync {
    fn stages(&self) -> impl Iterator<Item = Work<'_>>;
}

/// What every thread does in a run: a function of what the caller has, by its address and its
/// length.
#[derive(Clone, Copy)]
struct Job {
    /// To be called while the caller lends what it is of.
    function: unsafe fn(*const (), usize, &Member),
    of: *const (),
    len: usize,
}

/// A thread in a run.
struct Member<'a> {
    shared: &'a Shared,
    index: usize,
}

/// What all threads have; nothing in it but the posts' insides is written while no thread falls
/// asleep or wakes.
struct Shared {
    /// One for each thread, the caller first.
    posts: Vec<Post>,
    /// Helpers that sleep or are about to.
    sleepers: AtomicUsize,
    threads: OnceLock<Vec<Thread>>,
    stop: AtomicBool,
}

/// What a thread tells the others, on cache lines of its own, of which processors fetch two at a
/// time.
#[repr(align(128))]
struct Post {
    /// How many points it has reached that others wait for: the begin of a run, which is the
    /// caller's to tell, what is between stages, and the end.
    reached: AtomicUsize,
    /// What to do in this run, as the caller says between two runs. It comes to the others with the
    /// point that they wait for.
    job: UnsafeCell<Option<Job>>,
}

impl Post {
    /// Before the first run helpers are behind the end of one, of which the caller does not tell.
    fn new(index: usize) -> Self {
        Self { reached: AtomicUsize::new(usize::from(index > 0)), job: UnsafeCell::new(None) }
    }
}

// SAFETY: `job` is written only while every helper waits for the begin of a run, and read only in
// runs.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Team {
    /// A team of `threads` threads (at least 1), the caller included, wherever the system puts
    /// them.
    pub fn new(threads: usize) -> Self {
        Self::with(threads, |_| {})
    }

    /// The same with helpers that are pinned to the second core this process may use and those
    /// after it, for when nothing else runs; the caller may take the first by
    /// [`crate::pin_to_core`].
    pub fn pinned(threads: usize) -> Self {
        affinity::allowed_cores();
        Self::with(threads, affinity::pin_to_core)
    }

    /// A team whose helpers begin with `start`, which gets their number, from 1 on.
    fn with(threads: usize, start: fn(usize)) -> Self {
        let shared = Arc::new(Shared {
            posts: (0..threads.max(1)).map(Post::new).collect(),
            sleepers: AtomicUsize::new(0),
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

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.posts.len()
    }

    /// Runs stages, each when the one before is done: of `n` tasks thread `i` of `t` gets
    /// `n*i/t .. n*(i+1)/t`. Returns when all are done.
    ///
    /// # Safety
    ///
    /// The functions must be fit to run with these pointers from several threads at once over
    /// disjoint tasks, and each stage must have private memory for every thread of the team.
    pub(crate) unsafe fn run<S: Stages>(&mut self, stages: &[S]) {
        let is_divided = || stages.iter().flat_map(S::stages).any(|stage| stage.tasks > 1);
        if self.helpers.is_empty() || !is_divided() {
            // SAFETY: the caller's promise.
            stages.iter().flat_map(S::stages).for_each(|stage| unsafe { stage.run(0, 0..stage.tasks) });
            return;
        }
        // SAFETY: the caller's promise.
        let walk = |stages: *const (), len, member: &Member| unsafe {
            member.walk(slice::from_raw_parts(stages.cast::<S>(), len))
        };
        // SAFETY: the function is called with the address and the length of what is borrowed until
        // the run is over.
        unsafe { self.together(Job { function: walk, of: stages.as_ptr().cast(), len: stages.len() }) };
    }

    /// Runs `work` on parts of `0..tasks`, one for each thread. It must not panic.
    pub fn divide<F: Fn(Range<usize>) + Sync>(&mut self, tasks: usize, work: F) {
        if self.helpers.is_empty() || tasks <= 1 {
            return work(0..tasks);
        }
        let part = |work: *const (), tasks, member: &Member| {
            let part = member.part(tasks);
            if !part.is_empty() {
                // SAFETY: it is `work`.
                unsafe { (*work.cast::<F>())(part) };
            }
        };
        // SAFETY: the function is called with the address of what is borrowed until the run is
        // over.
        unsafe { self.together(Job { function: part, of: (&raw const work).cast(), len: tasks }) };
    }

    /// Has every thread do a job, and returns when all have.
    ///
    /// # Safety
    ///
    /// Every thread may call the function at once until this returns.
    unsafe fn together(&mut self, job: Job) {
        let caller = Member { shared: &self.shared, index: 0 };
        // SAFETY: no helper is in a run: the last one was waited for, and `&mut self` keeps other
        // callers out. Helpers call the job before they reach the end of this run, for which this
        // thread waits below.
        unsafe { *caller.own().job.get() = Some(job) };
        caller.begin();
        // SAFETY: the caller's promise.
        unsafe { caller.work(job) };
        caller.wait_for_end();
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        Member { shared: &self.shared, index: 0 }.begin();
        for helper in self.helpers.drain(..) {
            // A helper runs nothing that panics.
            let _ = helper.join();
        }
    }
}

impl Stages for Work<'_> {
    fn stages(&self) -> impl Iterator<Item = Work<'_>> {
        std::iter::once(*self)
    }
}

impl Work<'_> {
    /// Runs some tasks by a thread.
    ///
    /// # Safety
    ///
    /// As [`Team::run`], and nobody else runs these tasks, or anything else by that thread,
    /// meanwhile.
    unsafe fn run(&self, thread: usize, tasks: Range<usize>) {
        if !tasks.is_empty() {
            let (begin, end) = (tasks.start as c_long, tasks.end as c_long);
            // SAFETY: the caller's promise.
            unsafe { (self.function)(self.buffers.as_ptr(), self.locals[thread], begin, end) };
        }
    }
}

impl Member<'_> {
    /// This thread's part of some tasks.
    fn part(&self, tasks: usize) -> Range<usize> {
        let parts = self.shared.posts.len();
        let (share, rest) = (tasks / parts, tasks % parts);
        // `tasks * i / parts`, whose product may be too large.
        let bound = |i: usize| share * i + rest * i / parts;
        match tasks {
            // One that cannot be divided is the caller's.
            0 | 1 => 0..if self.index == 0 { tasks } else { 0 },
            _ => bound(self.index)..bound(self.index + 1),
        }
    }

    /// Does the jobs of all runs, until the team ends.
    fn help(&self) {
        loop {
            let begin = self.point() + 1;
            self.wait_for(0, begin, IDLE_SPINS, 0);
            if self.shared.stop.load(Ordering::Relaxed) {
                return;
            }
            self.own().reached.store(begin, Ordering::Relaxed);
            // SAFETY: the caller wrote the job before it told the begin of the run, and does not
            // write it again before this thread is at the end.
            if let Some(job) = unsafe { *self.shared.posts[0].job.get() } {
                // SAFETY: it does so within this run.
                unsafe { self.work(job) };
            }
            self.reach();
        }
    }

    /// Does a job.
    ///
    /// # Safety
    ///
    /// It is called within the run that it is for.
    unsafe fn work(&self, job: Job) {
        let panics = Panics;
        // SAFETY: who began the run lends what the job is of until it ends.
        unsafe { (job.function)(job.of, job.len, self) };
        std::mem::forget(panics);
    }

    /// Runs this thread's part of stages.
    ///
    /// # Safety
    ///
    /// As [`Team::run`].
    unsafe fn walk<S: Stages>(&self, stages: &[S]) {
        let mut before = None;
        for stage in stages.iter().flat_map(S::stages) {
            let is_divided = stage.tasks > 1;
            // What one thread does alone it does in order.
            if before.is_some_and(|before| before || is_divided) {
                self.wait_for_all();
            }
            before = Some(is_divided);
            // SAFETY: the caller's promise; no two threads have a task in common.
            unsafe { stage.run(self.index, self.part(stage.tasks)) };
        }
    }

    /// Lets the helpers begin a run, behind the end of the last one.
    fn begin(&self) {
        self.tell(self.point() + 2);
    }

    /// Waits until every helper has come to the end of the run. Nobody waits for the caller there,
    /// so it need not tell.
    fn wait_for_end(&self) {
        let end = self.point() + 1;
        (1..self.shared.posts.len()).for_each(|helper| self.wait_for(helper, end, RUN_SPINS, RUN_YIELDS));
    }

    /// Waits until every thread has come here.
    fn wait_for_all(&self) {
        let point = self.reach();
        for other in (0..self.shared.posts.len()).filter(|&other| other != self.index) {
            self.wait_for(other, point, RUN_SPINS, RUN_YIELDS);
        }
    }

    /// Tells the others that this thread has reached its next point, and returns its number.
    fn reach(&self) -> usize {
        let point = self.point() + 1;
        self.tell(point);
        point
    }

    /// Makes what this thread did before visible to those that wait for a point, and wakes those
    /// that sleep.
    fn tell(&self, point: usize) {
        self.own().reached.store(point, Ordering::Release);
        // Pairs with the fence in `sleep`: either this thread sees the sleeper, or the sleeper sees
        // the point.
        fence(Ordering::SeqCst);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.shared.threads.get().into_iter().flatten().for_each(Thread::unpark);
        }
    }

    /// Waits until another thread has reached a point: spins, lets others have the core, sleeps.
    fn wait_for(&self, other: usize, point: usize, spins: usize, yields: usize) {
        let other = &self.shared.posts[other].reached;
        let has_reached = || other.load(Ordering::Acquire) >= point;
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
            // Helpers know no way to wake the caller.
            0 => while_not(has_reached, thread::yield_now),
            _ => self.sleep(has_reached),
        }
    }

    fn sleep(&self, is_over: impl Fn() -> bool) {
        self.shared.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        while_not(is_over, thread::park);
        self.shared.sleepers.fetch_sub(1, Ordering::Relaxed);
    }

    /// The last point of this thread that it told of.
    fn point(&self) -> usize {
        self.own().reached.load(Ordering::Relaxed)
    }

    fn own(&self) -> &Post {
        &self.shared.posts[self.index]
    }
}

/// Ends the process where it is dropped, by a job that panics: other threads wait for it, and use
/// what it would free.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        std::process::abort();
    }
}

fn while_not(is_over: impl Fn() -> bool, wait: fn()) {
    while !is_over() {
        wait();
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn parts_are_every_task_once() {
        for threads in [1, 2, 5] {
            let mut team = Team::new(threads);
            for tasks in [0, 1, 4, 100] {
                let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                team.divide(tasks, |part| {
                    for count in &counts[part] {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{threads}, {tasks}");
            }
        }
    }

    /// Adds 1 to element `t` of the first buffer for every task `t`, and writes to the thread's own
    /// memory.
    unsafe extern "C" fn count(buffers: *const *mut f32, local: *mut c_char, begin: c_long, end: c_long) {
        for task in begin..end {
            // SAFETY: the tests give a buffer with one element per task.
            unsafe { *(*buffers).offset(task as isize) += 1.0 };
        }
        // SAFETY: the tests give every thread at least one byte.
        unsafe { *local = (*local).wrapping_add(1) };
    }

    #[test]
    fn every_task_runs_exactly_once_each_time() {
        for threads in [1, 2, 3, 7] {
            let mut team = Team::new(threads);
            let mut locals: Vec<c_char> = vec![0; threads];
            let local_pointers: Vec<*mut c_char> = locals.iter_mut().map(|l| l as *mut c_char).collect();
            for tasks in [0, 1, 2, 5, 64] {
                let mut counts = vec![0.0f32; tasks];
                let buffers = [counts.as_mut_ptr()];
                for round in 0..60 {
                    if round % 20 == 0 {
                        thread::sleep(std::time::Duration::from_millis(2));
                    }
                    let work = Work { function: count, buffers: &buffers, locals: &local_pointers, tasks };
                    // SAFETY: `count` touches one element per task.
                    unsafe { team.run(&[work]) };
                }
                assert!(counts.iter().all(|&c| c == 60.0), "{threads} threads, {tasks} tasks: {counts:?}");
            }
        }
    }

    /// Stages of one task and of many in turns, each of which adds to what the one before it left
    /// of all elements.
    #[test]
    fn stages_wait_for_each_other() {
        /// Element `task` of the second buffer = the sum of the first modulo 1000, plus `task`.
        unsafe extern "C" fn sums(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
            for task in begin..end {
                // SAFETY: both buffers have `TASKS` elements, of which one is written by each task.
                unsafe {
                    let from = std::slice::from_raw_parts(*buffers, TASKS);
                    *(*buffers.add(1)).offset(task as isize) = from.iter().sum::<f32>() % 1000.0 + task as f32;
                }
            }
        }
        const TASKS: usize = 9;

        let wanted = |rounds: usize, tasks: fn(usize) -> usize| {
            let mut buffers = [[1.0f32; TASKS], [1.0; TASKS]];
            for round in 0..rounds {
                let sum = buffers[round % 2].iter().sum::<f32>() % 1000.0;
                (0..tasks(round)).for_each(|task| buffers[1 - round % 2][task] = sum + task as f32);
            }
            buffers
        };
        let patterns: [fn(usize) -> usize; 4] =
            [|_| TASKS, |round| if round % 3 == 0 { TASKS } else { 1 }, |round| [TASKS, 1][round % 2], |_| 1];
        for threads in [1, 2, 3] {
            let mut team = Team::new(threads);
            let locals = vec![ptr::null_mut(); threads];
            for (tasks, round) in patterns.into_iter().flat_map(|tasks| (0..8).map(move |round| (tasks, round))) {
                let mut memory = [[1.0f32; TASKS], [1.0; TASKS]];
                let [a, b] = &mut memory;
                let (a, b) = (a.as_mut_ptr(), b.as_mut_ptr());
                let orders = [[a, b], [b, a]];
                let stages = (0..40).map(|stage| Work {
                    function: sums,
                    buffers: &orders[stage % 2],
                    locals: &locals,
                    tasks: tasks(stage),
                });
                let stages: Vec<Work> = stages.collect();
                if round % 4 == 0 {
                    thread::sleep(std::time::Duration::from_millis(2));
                }
                // SAFETY: a stage reads one buffer and writes an element of the other in each task.
                unsafe { team.run(&stages) };
                assert_eq!(memory, wanted(40, tasks), "{threads} threads, round {round}");
            }
        }
    }
}
