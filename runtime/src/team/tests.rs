//! Tests of teams.

use std::ptr;
use std::time::Duration;

use super::*;

/// Returns a team for each number of threads and each behaviour of waiting helpers.
fn teams<const N: usize>(threads: [usize; N]) -> impl Iterator<Item = Team> {
    threads.into_iter().flat_map(|threads| Waiting::ALL.map(|waiting| team(threads, waiting)))
}

fn team(threads: usize, waiting: Waiting) -> Team {
    let mut team = Team::new(threads);
    team.set_waiting(waiting);
    team
}

#[test]
fn parts_are_every_task_once() {
    for mut team in teams([1, 2, 5]) {
        let threads = team.threads();
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

/// Adds 1 to element `t` of the first buffer for every task `t`, and writes to the thread's
/// private memory.
unsafe extern "C" fn count(buffers: *const *mut f32, local: *mut c_char, begin: c_long, end: c_long) {
    for task in begin..end {
        // SAFETY: the tests pass a buffer with one element per task.
        unsafe { *(*buffers).offset(task as isize) += 1.0 };
    }
    // SAFETY: the tests give every thread at least one byte.
    unsafe { *local = (*local).wrapping_add(1) };
}

#[test]
fn every_task_runs_exactly_once_each_time() {
    for mut team in teams([1, 2, 3, 7]) {
        let threads = team.threads();
        let mut locals: Vec<c_char> = vec![0; threads];
        let local_pointers: Vec<*mut c_char> = locals.iter_mut().map(|l| l as *mut c_char).collect();
        for tasks in [0, 1, 2, 5, 64] {
            let mut counts = vec![0.0f32; tasks];
            let buffers = [counts.as_mut_ptr()];
            for round in 0..60 {
                if round % 20 == 0 {
                    thread::sleep(Duration::from_millis(2));
                }
                let work = TeamWork { function: count, buffers: &buffers, locals: &local_pointers, tasks };
                // SAFETY: `count` accesses one element per task.
                unsafe { team.run(&[work]) };
            }
            assert!(counts.iter().all(|&c| c == 60.0), "{threads} threads, {tasks} tasks: {counts:?}");
        }
    }
}

/// Tests alternating stages of one and of many tasks; each reads all elements that the previous
/// one wrote.
#[test]
fn stages_wait_for_each_other() {
    /// Sets element `task` of the second buffer to the sum of the first modulo 1000, plus
    /// `task`.
    unsafe extern "C" fn sums(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
        for task in begin..end {
            // SAFETY: both buffers have `TASKS` elements; each task writes a different one.
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
    for mut team in teams([1, 2, 3]) {
        let threads = team.threads();
        let locals = vec![ptr::null_mut(); threads];
        for (tasks, round) in patterns.into_iter().flat_map(|tasks| (0..8).map(move |round| (tasks, round))) {
            let mut memory = [[1.0f32; TASKS], [1.0; TASKS]];
            let [a, b] = &mut memory;
            let (a, b) = (a.as_mut_ptr(), b.as_mut_ptr());
            let orders = [[a, b], [b, a]];
            let stages = (0..40).map(|stage| TeamWork {
                function: sums,
                buffers: &orders[stage % 2],
                locals: &locals,
                tasks: tasks(stage),
            });
            let stages: Vec<TeamWork> = stages.collect();
            if round % 4 == 0 {
                thread::sleep(Duration::from_millis(2));
            }
            // SAFETY: a stage reads one buffer, and each task writes one element of the other.
            unsafe { team.run(&stages) };
            assert_eq!(memory, wanted(40, tasks), "{threads} threads, round {round}");
        }
    }
}

/// Returns the CPU time of all helpers so far, in seconds.
#[cfg(target_os = "linux")]
fn helper_secs(team: &Team) -> f64 {
    use std::os::unix::thread::JoinHandleExt;

    let secs = |helper: &JoinHandle<()>| {
        let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        // SAFETY: the thread was not joined, and the results are memory of this function.
        unsafe {
            assert_eq!(libc::pthread_getcpuclockid(helper.as_pthread_t(), &mut clock), 0);
            assert_eq!(libc::clock_gettime(clock, &mut time), 0);
        }
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    team.helpers.iter().map(secs).sum()
}

/// Returns the helpers' CPU time of short runs with pauses, and then that of an idle fifth of a
/// second, both in seconds.
#[cfg(target_os = "linux")]
fn waiting_secs(waiting: Waiting) -> [f64; 2] {
    let mut team = team(3, waiting);
    let before = helper_secs(&team);
    for _ in 0..50 {
        team.divide(3, |_| {});
        thread::sleep(Duration::from_millis(1));
    }

    let idle = helper_secs(&team);
    thread::sleep(Duration::from_millis(200));
    [idle - before, helper_secs(&team) - idle]
}

#[cfg(target_os = "linux")]
#[test]
fn the_sooner_helpers_sleep_the_less_cpu_time_they_take() {
    // Other programs disturb: the least of several times counts.
    let least = |waiting| {
        let all: Vec<[f64; 2]> = (0..5).map(|_| waiting_secs(waiting)).collect();
        [0, 1].map(|part| all.iter().map(|secs| secs[part]).fold(f64::INFINITY, f64::min))
    };
    let [[spinning, _], [briefly, _], [sleeping, idle]] = Waiting::ALL.map(least);
    assert!(briefly < 0.85 * spinning, "{briefly:e} s of {spinning:e} s");
    assert!(sleeping < 0.75 * spinning, "{sleeping:e} s of {spinning:e} s");
    assert!(idle < 1e-3, "{idle:e} s");
}
