//! Programs that are their own measuring worker.

use std::sync::atomic::{AtomicBool, Ordering};

use autotune_measure::location::{WORKER_ARGUMENT, WorkerCommand};
use autotune_measure::{MeasureError, worker};

/// True once this program has said that it serves when it is started as a worker.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Serves a measurer and ends the process if it was started as a worker, with the one argument
/// `worker`; else returns, and from then on [`worker_command`] is this very program. Call it first
/// in `main`.
///
/// Candidates run in a process that may crash or hang. A program without this call needs the
/// command `autotune` beside it, or the path of one in `$AUTOTUNE_WORKER`.
pub fn serve_if_worker() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == WORKER_ARGUMENT) && arguments.next().is_none() {
        let _ = worker::serve();
        std::process::exit(0);
    }
    SERVES.store(true, Ordering::SeqCst);
}

/// The program that candidates run in: this one, if it [serves](serve_if_worker), else
/// [`WorkerCommand::find`].
pub fn worker_command() -> Result<WorkerCommand, MeasureError> {
    let own = || std::env::current_exe().ok().filter(|_| SERVES.load(Ordering::SeqCst));
    own().map_or_else(WorkerCommand::find, |program| Ok(WorkerCommand::new(program)))
}
