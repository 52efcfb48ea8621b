//! Handling of Ctrl-C: a command ends with one line about the files it wrote, and leaves no
//! unfinished file.

use std::fs::{self, File, Permissions};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::process;
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use autotune::Cancel;
use tempfile::TempPath;

use crate::args::Failure;
use crate::output::say;

/// Time that a command has to stop by itself after the first Ctrl-C; then the process ends.
/// Compiling or running a network of hundreds of thousands of steps does not check for
/// cancellation.
const GRACE: Duration = Duration::from_millis(1700);

/// State of the running command. A thread that holds the lock cannot be interrupted.
static WORK: Mutex<InterruptState> = Mutex::new(InterruptState {
    cancel: None,
    is_service: false,
    note: None,
    unfinished: Vec::new(),
    written: Vec::new(),
});

struct InterruptState {
    /// Set by the first Ctrl-C, after which the command ends by itself. The process ends at the
    /// second Ctrl-C or after [`GRACE`]. Without a switch, it ends at the first.
    cancel: Option<Cancel>,
    /// True for a command that serves until it is interrupted, so that nothing is lost by that.
    is_service: bool,
    /// Message about the state of the work, in place of the list of files.
    note: Option<&'static str>,
    unfinished: Vec<PathBuf>,
    written: Vec<PathBuf>,
}

impl InterruptState {
    fn lock() -> MutexGuard<'static, Self> {
        WORK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Describes the work done before the interruption.
    fn summary(&self) -> String {
        let names: Vec<String> = self.written.iter().map(|file| file.display().to_string()).collect();
        match (self.note, names.is_empty()) {
            _ if self.is_service => "interrupted".into(),
            _ if self.cancel.is_some() => Failure::Interrupted.to_string(),
            (Some(note), _) => format!("interrupted: {note}"),
            (None, true) => "interrupted: nothing was written".into(),
            (None, false) => format!("interrupted: wrote only {}", names.join(", ")),
        }
    }
}

/// Makes Ctrl-C, a termination signal and a closed terminal end the process with exit code 130. If
/// hangups were ignored before, as under `nohup`, they stay ignored throughout.
pub(crate) fn watch() -> Result<()> {
    // SAFETY: an all-zero signal set and an all-zero `sigaction` are valid values, and every
    // pointer points to a local variable or is null.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGHUP, ptr::null(), &raw mut before);
        let is_ignored = before.sa_sigaction == libc::SIG_IGN;

        // The handler library installs its own handler for hangups. Blocked meanwhile, a hangup
        // stays pending, and is discarded once hangups are ignored again.
        let (mut hangup, mut unblocked): (libc::sigset_t, libc::sigset_t) = (mem::zeroed(), mem::zeroed());
        libc::sigemptyset(&raw mut hangup);
        libc::sigaddset(&raw mut hangup, libc::SIGHUP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const hangup, &raw mut unblocked);

        let watching = ctrlc::set_handler(interrupted).context("cannot watch for Ctrl-C");
        if is_ignored {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const unblocked, ptr::null_mut());
        watching
    }
}

/// Handles a signal: asks the command to stop if it can, else ends the process.
fn interrupted() {
    let work = InterruptState::lock();
    if work.cancel.as_ref().is_some_and(|cancel| !cancel.cancel()) {
        let discarded = if work.is_service { "" } else { ": the current measurement is discarded" };
        say(format_args!("stopping{discarded} (Ctrl-C again to stop at once)"));
        thread::spawn(|| {
            thread::sleep(GRACE);
            end(&InterruptState::lock());
        });
        return;
    }
    end(&work);
}

/// Ends the process now. All measurements are in the database already.
fn end(work: &InterruptState) -> ! {
    // Files that were completed or abandoned no longer have their temporary names, so removing
    // those fails harmlessly.
    work.unfinished.iter().for_each(|file| drop(fs::remove_file(file)));
    say(format_args!("autotune: {}", work.summary()));
    process::exit(i32::from(Failure::Interrupted.exit_code()));
}

/// Returns the switch that Ctrl-C sets; from now on the first Ctrl-C asks the command to stop.
pub(crate) fn cancel() -> Cancel {
    InterruptState::lock().cancel.get_or_insert_default().clone()
}

/// Returns the switch as [`cancel`] does, for a command that serves until it is interrupted.
pub(crate) fn service() -> Cancel {
    InterruptState::lock().is_service = true;
    cancel()
}

/// Ends the process for a service that was interrupted before it served.
pub(crate) fn end_service() -> ! {
    end(&InterruptState::lock())
}

/// Sets the message for an interruption, in place of the list of written files.
pub(crate) fn note(text: &'static str) {
    InterruptState::lock().note = Some(text);
}

/// Writes a file while holding off interruptions, with a function that leaves no unfinished file.
pub(crate) fn uninterrupted<T, E>(file: &Path, write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut work = InterruptState::lock();
    let written = write()?;
    work.written.push(file.to_path_buf());
    Ok(written)
}

/// File under a temporary name, which is deleted unless [`keep_all`](Self::keep_all) moves it to
/// its final path.
pub(crate) struct Unfinished {
    path: TempPath,
    /// Path as the user gave it.
    name: PathBuf,
    /// Final path of the file.
    place: PathBuf,
}

impl Unfinished {
    /// Creates a file under a temporary name in the folder of its final path.
    pub(crate) fn create(
        folder: &Path,
        name: &Path,
        place: &Path,
        permissions: Permissions,
    ) -> io::Result<(File, Self)> {
        let mut work = InterruptState::lock();
        let new = tempfile::Builder::new().prefix(".autotune-new-").permissions(permissions).tempfile_in(folder)?;
        let (file, path) = new.into_parts();
        work.unfinished.push(path.to_path_buf());
        Ok((file, Self { path, name: name.to_path_buf(), place: place.to_path_buf() }))
    }

    /// Moves files to their final paths; an interruption happens before all moves or after all of
    /// them.
    pub(crate) fn keep_all(files: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let mut work = InterruptState::lock();
        for Self { path, name, place } in files {
            path.persist(place)?;
            work.written.push(name);
        }
        Ok(())
    }
}
