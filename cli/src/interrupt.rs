//! What Ctrl-C does: a command ends with one line that says what it wrote, and leaves no unfinished
//! file.

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

/// Time that a command has to end by itself after the first Ctrl-C: making a network of hundreds
/// of thousands of steps, or running it, is not given up on the way.
const GRACE: Duration = Duration::from_millis(1700);

/// What the command has under way. Whoever holds it cannot be interrupted.
static WORK: Mutex<Work> = Mutex::new(Work { cancel: None, note: None, unfinished: Vec::new(), written: Vec::new() });

struct Work {
    /// Turned by the first Ctrl-C, upon which the command ends by itself; the second ends it here,
    /// and so does the end of [`GRACE`].
    cancel: Option<Cancel>,
    /// What there is to say beyond files.
    note: Option<&'static str>,
    unfinished: Vec<PathBuf>,
    written: Vec<PathBuf>,
}

impl Work {
    fn lock() -> MutexGuard<'static, Self> {
        WORK.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was done when the command was interrupted.
    fn told(&self) -> String {
        let names: Vec<String> = self.written.iter().map(|file| file.display().to_string()).collect();
        match (self.note, names.is_empty()) {
            _ if self.cancel.is_some() => Failure::Interrupted.to_string(),
            (Some(note), _) => format!("interrupted: {note}"),
            (None, true) => "interrupted: nothing was written".into(),
            (None, false) => format!("interrupted: wrote {}, nothing else", names.join(", ")),
        }
    }
}

/// Has Ctrl-C, like a signal to terminate or a terminal that is gone, end the process with exit
/// code 130. A hangup that was ignored, as `nohup` has it, stays ignored at every moment.
pub(crate) fn watch() -> Result<()> {
    // SAFETY: a set of signals that holds nothing but zeros is a valid one, and every pointer is to
    // a local.
    unsafe {
        let mut before: libc::sigaction = mem::zeroed();
        libc::sigaction(libc::SIGHUP, ptr::null(), &raw mut before);
        let is_ignored = before.sa_sigaction == libc::SIG_IGN;

        // What arrives meanwhile waits, and is forgotten when hangups are ignored again.
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

/// Ends the process, unless it is to end by itself.
fn interrupted() {
    let work = Work::lock();
    if work.cancel.as_ref().is_some_and(|cancel| !cancel.cancel()) {
        say("stopping: what is being measured is given up (Ctrl-C again to stop at once)");
        thread::spawn(|| {
            thread::sleep(GRACE);
            end(&Work::lock());
        });
        return;
    }
    end(&work);
}

/// Ends the process now. What was measured is in the database already.
fn end(work: &Work) -> ! {
    // A file that has its place or was given up has lost this name.
    work.unfinished.iter().for_each(|file| drop(fs::remove_file(file)));
    say(format_args!("autotune: {}", work.told()));
    process::exit(i32::from(Failure::Interrupted.exit_code()));
}

/// The switch that the first Ctrl-C turns from now on.
pub(crate) fn cancel() -> Cancel {
    Work::lock().cancel.get_or_insert_default().clone()
}

/// Says this, should the command be interrupted, in place of what files it wrote.
pub(crate) fn note(text: &'static str) {
    Work::lock().note = Some(text);
}

/// Writes a file in a way that leaves nothing unfinished, without being interrupted.
pub(crate) fn uninterrupted<T, E>(file: &Path, write: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    let mut work = Work::lock();
    let written = write()?;
    work.written.push(file.to_path_buf());
    Ok(written)
}

/// A file under a temporary name, which goes if nothing comes of it.
pub(crate) struct Unfinished {
    path: TempPath,
    /// What the user calls it.
    name: PathBuf,
    /// Whose place it takes.
    place: PathBuf,
}

impl Unfinished {
    /// A new file in the folder of its place.
    pub(crate) fn create(
        folder: &Path,
        name: &Path,
        place: &Path,
        permissions: Permissions,
    ) -> io::Result<(File, Self)> {
        let mut work = Work::lock();
        let new = tempfile::Builder::new().prefix(".autotune-new-").permissions(permissions).tempfile_in(folder)?;
        let (file, path) = new.into_parts();
        work.unfinished.push(path.to_path_buf());
        Ok((file, Self { path, name: name.to_path_buf(), place: place.to_path_buf() }))
    }

    /// Gives files their places. They are all there before an interruption, or none.
    pub(crate) fn keep_all(files: impl IntoIterator<Item = Self>) -> io::Result<()> {
        let mut work = Work::lock();
        for Self { path, name, place } in files {
            path.persist(place)?;
            work.written.push(name);
        }
        Ok(())
    }
}
