//! Tuning of parts before they are compiled.
//!
//! The command `autotune` does it, as a process of its own: the library stays free of the code that
//! learns and measures, and candidates cannot harm the program that loaded the library.

use std::collections::BTreeMap;
use std::env;
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use autotune::{Query, Task, parse_duration};
use autotune_db::{DbError, Source, TimeProvenance, TuningDb, open_source};
use autotune_ir::Target;
use autotune_network::onnx::{ImportOptions, Model};
use autotune_network::{Precision, SessionPrecision, printable, rewrite, tasks};

use crate::folder::ModelFolder;
use crate::graph::WholeGraph;

/// Name of the command.
const COMMAND: &str = "autotune";

/// Variable with the path of the command.
const VARIABLE: &str = "AUTOTUNE_WORKER";

/// Smallest part of all work that is worth its time.
const LEAST_SHARE: f64 = 0.01;

/// Value of the option `tune`.
pub(crate) enum TuneOption {
    /// Schedules are predicted only.
    Off,
    /// Schedules are looked up.
    LookUp,
    /// Parts are tuned first.
    Within(PartTuner),
}

/// Tuning of a session's parts, within a time.
pub(crate) struct PartTuner {
    /// Value of the option.
    text: String,
    /// Time that is left.
    left: Mutex<Duration>,
    db: PathBuf,
    command: PathBuf,
}

/// A part before it is tuned.
struct TunablePart {
    /// Folder with the file and its weights.
    _folder: ModelFolder,
    file: PathBuf,
    /// Precisions in which tasks lack measurements.
    precisions: Vec<Precision>,
    flops: f64,
}

impl TuneOption {
    /// Reads the option, given the others.
    pub(crate) fn of(given: &BTreeMap<&str, &str>) -> Result<Self, String> {
        let excluded = |other: &str, text: &str| {
            let message = format!("options {other} and tune={text} exclude each other: give one of them");
            if given.contains_key(other) { Err(message) } else { Ok(()) }
        };
        match given.get("tune").copied().unwrap_or("lookup") {
            "lookup" => Ok(Self::LookUp),
            "off" => {
                excluded("db", "off").and(excluded("snapshot", "off"))?;
                Ok(Self::Off)
            }
            text => {
                let wrong = |_| format!("option tune={}: expected off, lookup or a time such as 30s", printable(text));
                let budget = parse_duration(text).map_err(wrong)?;
                excluded("snapshot", text)?;
                PartTuner::of(text, budget, given.get("db").copied()).map(Self::Within)
            }
        }
    }
}

impl PartTuner {
    /// Finds the command and opens the database, by default the user's.
    fn of(text: &str, budget: Duration, db: Option<&str>) -> Result<Self, String> {
        let located = |message: &dyn fmt::Display| format!("option tune={text}: {message}");
        let command = command().map_err(|message| located(&message))?;
        let db = db.map(PathBuf::from).or_else(TuningDb::default_path);
        let db = db.ok_or_else(|| located(&"there is no database: set the option db"))?;
        if db.is_file() {
            return Err(located(&format!("{} is a file, not a database, which is a folder", db.display())));
        }
        Ok(Self { text: text.into(), left: Mutex::new(budget), db, command })
    }

    /// Returns the schedules after tuning.
    pub(crate) fn source(&self) -> Result<Arc<dyn Source>, String> {
        open_source(&self.db).map(Arc::from).map_err(|error| self.located(&error))
    }

    /// Tunes parts that lack measurements of this machine, each in proportion to its work. Returns
    /// warnings.
    pub(crate) fn tune(
        &self,
        parts: Vec<WholeGraph>,
        target: &Target,
        precision: &SessionPrecision,
    ) -> Result<Vec<String>, String> {
        // Opening creates a new database, and finds out whether another process writes it.
        let db = match TuningDb::open(&self.db) {
            Ok(db) => db,
            Err(error @ DbError::Held { .. }) => return Ok(vec![self.not_tuned(&error)]),
            Err(error) => return Err(self.located(&error)),
        };
        let (mut untuned, mut warnings) = (Vec::new(), Vec::new());
        for part in parts {
            match TunablePart::of(part, target, precision, &db).map_err(|message| self.located(&message))? {
                Ok(part) => untuned.push(part),
                Err(reason) => warnings.push(self.located(&reason)),
            }
        }
        // The command writes the database.
        drop(db);

        let flops = |parts: &[TunablePart]| parts.iter().map(|part| part.flops).sum::<f64>();
        let least = LEAST_SHARE * flops(&untuned);
        untuned.retain(|part| part.flops >= least && !part.precisions.is_empty());
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(part) = untuned.pop() {
            let share = part.flops / (part.flops + flops(&untuned)).max(f64::MIN_POSITIVE);
            let start = Instant::now();
            if let Err(message) = self.run(&part, left.mul_f64(share), target) {
                // Sessions of several processes may begin at the same time; one of them tunes.
                let Err(error @ DbError::Held { .. }) = TuningDb::open(&self.db) else { return Err(message) };
                warnings.push(self.not_tuned(&error));
                break;
            }
            *left = left.saturating_sub(start.elapsed());
        }
        Ok(warnings)
    }

    /// Runs the command on a part, in each of its precisions.
    fn run(&self, part: &TunablePart, budget: Duration, target: &Target) -> Result<(), String> {
        let millis = budget.as_millis() / part.precisions.len().max(1) as u128;
        for precision in part.precisions.iter().filter(|_| millis > 0) {
            let mut command = Command::new(&self.command);
            command.arg(&part.file).arg("--db").arg(&self.db);
            command.args(["--threads", &target.threads().to_string(), "--precision", precision.word()]);
            command.arg(format!("--time-budget={millis}ms"));
            command.stdin(Stdio::null()).stdout(Stdio::null());

            let ended = command.output();
            let ended = ended.map_err(|error| self.located(&format!("{}: {error}", self.command.display())))?;
            if !ended.status.success() {
                let messages = String::from_utf8_lossy(&ended.stderr);
                let last = messages.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
                let (command, status) = (self.command.display(), ended.status);
                let last = printable(last.strip_prefix("autotune: ").unwrap_or(last)).to_string();
                return Err(self.located(&format!("{command} failed with {status}: {last}")));
            }
        }
        Ok(())
    }

    fn not_tuned(&self, held: &DbError) -> String {
        self.located(&format!("{held}: parts are not tuned"))
    }

    fn located(&self, message: &dyn fmt::Display) -> String {
        format!("option tune={}: {message}", self.text)
    }
}

impl TunablePart {
    /// Reads a part; the inner error is the reason that it cannot be tuned.
    fn of(
        part: WholeGraph,
        target: &Target,
        precision: &SessionPrecision,
        db: &TuningDb,
    ) -> Result<Result<Self, String>, String> {
        let WholeGraph { model, folder, .. } = part;
        let file = folder.write(&model)?;
        let model = Model::open(&file).map_err(|error| error.to_string())?;
        let inputs = model.inputs().map_err(|error| error.to_string())?;
        if let Some(open) = inputs.iter().find(|input| input.extents.contains(&None)) {
            let name = printable(&open.name);
            let reason = format!("the shape of '{name}' is open: its part is not tuned, which needs fixed shapes");
            return Ok(Err(reason));
        }
        let graph = model.graph(&ImportOptions::default()).ok().and_then(|graph| rewrite(&graph).ok());
        let Some(graph) = graph else {
            return Ok(Err("shapes of a part depend on the data: it is not tuned".into()));
        };

        let (mut precisions, mut flops) = (Vec::new(), 0.0);
        for precision in used(precision, target) {
            let tasks = tasks([&graph.clone().with_precision(precision)], target);
            flops = tasks.iter().map(|task| task.workload.work().flops * task.weight()).sum();
            if !are_measured(&tasks, db, target)? {
                precisions.push(precision);
            }
        }
        Ok(Ok(Self { _folder: folder, file, precisions, flops }))
    }
}

/// Returns the precisions that networks may use.
fn used(precision: &SessionPrecision, target: &Target) -> Vec<Precision> {
    match precision {
        SessionPrecision::In(precision) => vec![*precision],
        SessionPrecision::Fastest { .. } => {
            let is_supported = |precision: &Precision| target.supports(precision.dtype());
            Precision::ALL.into_iter().filter(is_supported).collect()
        }
    }
}

/// True if all tasks have measurements of this machine.
fn are_measured(tasks: &[Task], db: &TuningDb, target: &Target) -> Result<bool, String> {
    for task in tasks {
        let found = Query::new(&task.workload, target).source(db).record().map_err(|error| error.to_string())?;
        let is_own = found.as_ref().and_then(|tuned| tuned.best()).map(|best| best.standing != TimeProvenance::Claimed);
        if is_own != Some(true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Finds the command: the one that a variable names, else the one beside this library or in the
/// folder `bin` there, as in the Python package, else the first in `PATH`.
fn command() -> Result<PathBuf, String> {
    // A name without a folder would be searched for in `PATH` when it is run.
    let file = |path: PathBuf| absolute(path).ok().filter(|path| path.is_file());
    if let Some(named) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return file(named.clone().into()).ok_or_else(|| format!("{VARIABLE}={} is not a file", named.display()));
    }

    let library = library();
    let folder = library.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let folders = env::var_os("PATH").map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let own = folder.into_iter().flat_map(|folder| [folder.join("bin"), folder]);
    let mut places = own.chain(folders).map(|folder| folder.join(COMMAND));
    places.find_map(file).ok_or_else(|| {
        let beside = library.unwrap_or_default();
        format!(
            "the command {COMMAND}, which tunes, is neither beside {} nor in PATH: build it with cargo build --release -p \
             autotune-cli, or set {VARIABLE} to its path",
            beside.display()
        )
    })
}

/// Returns the path of this library.
fn library() -> Option<PathBuf> {
    let mut info = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: there is memory for the result; its name lives as long as the library.
    unsafe {
        let is_found = libc::dladdr((library as *const ()).cast(), &mut info) != 0 && !info.dli_fname.is_null();
        is_found.then(|| PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}
