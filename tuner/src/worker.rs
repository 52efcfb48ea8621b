//! Programs that are their own measuring worker.

use std::sync::atomic::{AtomicBool, Ordering};

use autotune_measure::location::{WORKER_ARGUMENT, WorkerCommand};
use autotune_measure::{MeasureError, worker};

/// True once this program has called [`serve_if_worker`].
static SERVES: AtomicBool = AtomicBool::new(false);

/// Serves a measurer and then ends the process, if it was started as a worker with the only
/// argument `worker`. Otherwise returns, and from then on [`worker_command`] is this program. Call
/// it first in `main`.
///
/// Candidates run in a separate process, because they may crash or hang. A program without this
/// call needs the command `autotune` in its own folder, or the path of one in `$AUTOTUNE_WORKER`.
pub fn serve_if_worker() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == WORKER_ARGUMENT) && arguments.next().is_none() {
        let _ = worker::serve();
        std::process::exit(0);
    }
    SERVES.store(true, Ordering::SeqCst);
}

/// Returns the program in which candidates run: this one if it [serves](serve_if_worker), else
/// [`WorkerCommand::find`].
pub fn worker_command() -> Result<WorkerCommand, MeasureError> {
    let own = || std::env::current_exe().ok().filter(|_| SERVES.load(Ordering::SeqCst));
    own().map_or_else(WorkerCommand::find, |program| Ok(WorkerCommand::new(program)))
}
