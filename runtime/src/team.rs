//! Threads that run one kernel together.

use std::cell::UnsafeCell;
use std::ffi::{c_char, c_long};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::thread::{self, JoinHandle};

use crate::affinity;

/// Entry point of a stage, [`autotune_ir::plan::PlanStage::symbol`].
pub type StageFn = unsafe extern "C" fn(*const *mut f32, *mut c_char, c_long, c_long);

/// Rounds an idle helper spins (some ten microseconds) before it sleeps.
const IDLE_SPINS: usize = 2_000;
/// Rounds the caller spins for its helpers before it lets other threads have the core.
const JOIN_SPINS: usize = 20_000;

/// A fixed number of threads that divide the tasks of a kernel's stages among themselves: the calling thread and
/// `threads - 1` helpers.
///
/// Helpers spin for some ten microseconds between two stages and then sleep, so that a fork and join within a timing
/// loop costs well under a microsecond, and an idle team no core.
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

/// [`Work`] without its lifetime, as the helpers see it.
#[derive(Clone, Copy)]
struct Job {
    function: StageFn,
    buffers: *const *mut f32,
    locals: *const *mut c_char,
    tasks: usize,
}

struct Shared {
    threads: usize,
    /// Written by the caller before it raises `epoch`, read by helpers after they saw that.
    job: UnsafeCell<Option<Job>>,
    epoch: AtomicUsize,
    /// Helpers that have not finished the current job.
    pending: AtomicUsize,
    /// Helpers that sleep or are about to.
    sleepers: AtomicUsize,
    stop: AtomicBool,
}

// SAFETY: `job` is written only while no helper works (`pending` is 0 and `epoch` unchanged) and read only between the
// raise of `epoch` and the helper's decrement of `pending`. The pointers in it are to memory that the kernel's contract
// lets several threads use at once, and they outlive the job because `run` waits for every helper.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Team {
    /// A team of `threads` threads (at least 1), the caller included, wherever the system puts them.
    pub fn new(threads: usize) -> Self {
        Self::with(threads, |_| {})
    }

    /// The same with helpers that are pinned to the second core this process may use and those after it, for when nothing else runs;
    /// the caller may take the first by [`crate::pin_to_core`].
    pub fn pinned(threads: usize) -> Self {
        affinity::allowed_cores();
        Self::with(threads, affinity::pin_to_core)
    }

    /// A team whose helpers begin with `start`, which gets their number, from 1 on.
    fn with(threads: usize, start: fn(usize)) -> Self {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            threads,
            job: UnsafeCell::new(None),
            epoch: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        });
        let helper = |index: usize| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                start(index);
                shared.help(index);
            })
        };
        let helpers = (1..threads).map(helper).collect();
        Self { shared, helpers }
    }

    /// Number of threads, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs a stage: thread `i` of `t` gets the tasks `tasks*i/t .. tasks*(i+1)/t`. Returns when all are done.
    ///
    /// # Safety
    ///
    /// The function must be fit to run with these pointers from several threads at once over disjoint tasks.
    pub(crate) unsafe fn run(&mut self, work: Work<'_>) {
        assert!(work.locals.len() >= self.threads(), "thread-private memory for every thread");
        let Work { function, tasks, .. } = work;
        let job = Job { function, buffers: work.buffers.as_ptr(), locals: work.locals.as_ptr(), tasks };
        if self.helpers.is_empty() || tasks <= 1 {
            // SAFETY: the caller's promise; `locals` has a first element.
            unsafe { function(job.buffers, *job.locals, 0, tasks as c_long) };
            return;
        }
        self.publish(job);
        // SAFETY: the caller's promise; `locals` has one element per thread.
        unsafe { job.run_part(0, self.shared.threads) };
        self.join();
    }

    /// Runs `work` on parts of `0..tasks`, one for each thread. It must not panic.
    pub fn divide<F: Fn(Range<usize>) + Sync>(&mut self, tasks: usize, work: F) {
        unsafe extern "C" fn part<F: Fn(Range<usize>)>(
            work: *const *mut f32,
            _local: *mut c_char,
            begin: c_long,
            end: c_long,
        ) {
            // SAFETY: below, the first pointer is to an `F` that lives until all threads are done.
            let work = unsafe { &*(*work).cast::<F>() };
            work(begin as usize..end as usize);
        }
        let buffers = [(&raw const work).cast_mut().cast()];
        let locals = vec![ptr::null_mut(); self.threads()];
        // SAFETY: `part::<F>` gets an `F`, which several threads may call.
        unsafe { self.run(Work { function: part::<F>, buffers: &buffers, locals: &locals, tasks }) };
    }

    fn publish(&mut self, job: Job) {
        let shared = &*self.shared;
        // SAFETY: no helper works: the last `run` waited for all of them, and `&mut self` keeps other callers out.
        unsafe { *shared.job.get() = Some(job) };
        shared.pending.store(self.helpers.len(), Ordering::Relaxed);
        self.raise_epoch();
    }

    /// Makes what was written before visible to the helpers, and wakes those that sleep.
    fn raise_epoch(&self) {
        self.shared.epoch.fetch_add(1, Ordering::Release);
        // Pairs with the fence in `await_epoch`: either this thread sees the sleeper or the sleeper sees the epoch.
        fence(Ordering::SeqCst);
        if self.shared.sleepers.load(Ordering::Relaxed) > 0 {
            self.helpers.iter().for_each(|h| h.thread().unpark());
        }
    }

    fn join(&self) {
        let mut spins = 0;
        while self.shared.pending.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < JOIN_SPINS {
                std::hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.raise_epoch();
        for helper in self.helpers.drain(..) {
            // A helper runs nothing that panics.
            let _ = helper.join();
        }
    }
}

impl Job {
    /// # Safety
    ///
    /// As [`Team::run`], and `part` is below `parts`, and `locals` has `parts` elements.
    unsafe fn run_part(&self, part: usize, parts: usize) {
        let bound = |i: usize| (self.tasks as u128 * i as u128 / parts as u128) as c_long;
        let (begin, end) = (bound(part), bound(part + 1));
        if begin < end {
            // SAFETY: the caller's promise.
            unsafe { (self.function)(self.buffers, *self.locals.add(part), begin, end) };
        }
    }
}

impl Shared {
    fn help(&self, index: usize) {
        let mut epoch = 0;
        loop {
            epoch = self.await_epoch(epoch);
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            // SAFETY: the epoch was raised after the job was written, and it is not written again before `pending` is 0.
            if let Some(job) = unsafe { *self.job.get() } {
                // SAFETY: `Team::run`'s caller promised; `index` is below `threads`.
                unsafe { job.run_part(index, self.threads) };
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits until the epoch differs from `seen`, and returns it.
    fn await_epoch(&self, seen: usize) -> usize {
        let changed = || Some(self.epoch.load(Ordering::Acquire)).filter(|&e| e != seen);
        for _ in 0..IDLE_SPINS {
            if let Some(epoch) = changed() {
                return epoch;
            }
            std::hint::spin_loop();
        }
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let epoch = loop {
            match changed() {
                Some(epoch) => break epoch,
                None => thread::park(),
            }
        };
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        epoch
    }
}

#[cfg(test)]
mod tests {
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

    /// Adds 1 to element `t` of the first buffer for every task `t`, and writes to the thread's own memory.
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
                    unsafe { team.run(work) };
                }
                assert!(counts.iter().all(|&c| c == 60.0), "{threads} threads, {tasks} tasks: {counts:?}");
            }
        }
    }
}
