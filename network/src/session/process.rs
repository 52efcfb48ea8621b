//! Threads for making networks, also in processes that forked.
//!
//! The threads of rayon's global pool exist only in the process that started them. A forked child
//! would wait for them forever, so that it uses a pool of its own.

use std::mem::forget;
use std::process;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// Process that may use the global pool: the first that used this module.
static FIRST: OnceLock<u32> = OnceLock::new();

/// Pool of a forked child, and its process.
static CHILD: Mutex<Option<(u32, Arc<ThreadPool>)>> = Mutex::new(None);

/// Does some work with threads that exist in this process.
pub(crate) fn with_threads<R: Send>(work: impl FnOnce() -> R + Send) -> Result<R, ThreadPoolBuildError> {
    let process = process::id();
    if *FIRST.get_or_init(|| process) == process {
        return Ok(work());
    }
    Ok(child_pool(process)?.install(work))
}

fn child_pool(process: u32) -> Result<Arc<ThreadPool>, ThreadPoolBuildError> {
    let mut child = CHILD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, pool)) = child.as_ref().filter(|(owner, _)| *owner == process) {
        return Ok(Arc::clone(pool));
    }
    let pool = Arc::new(ThreadPoolBuilder::new().build()?);
    // Dropping a pool of the parent would wait for threads that do not exist here.
    forget(child.replace((process, Arc::clone(&pool))));
    Ok(pool)
}
