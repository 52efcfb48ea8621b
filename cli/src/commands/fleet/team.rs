//! Memory of a team: the commands `autotune fleet collect` and `autotune snapshot follow`, and the
//! collector of `autotune NETWORK --collector`.

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use autotune::Cancel;
use autotune_db::{Snapshot, TuningDb};
use autotune_fleet::transport::Dial;
use autotune_fleet::{
    Collected, CollectorOptions, Fingerprint, FleetBuild, FleetError, FleetParams, Recalling, SocketPlace, TeamMemory,
    Upload, Uploaded, serve_collector,
};
use autotune_ir::Target;
use autotune_measure::Measurer;
use autotune_workloads::Workload;

use super::nats;
use super::own_name::own_name;
use crate::args::{Failure, FleetCollectArgs, FollowArgs, NatsArgs};
use crate::commands::shared::{refusal, warn};
use crate::output::{print, say};
use crate::{interrupt, progress};

/// Shortest time between two snapshots of a collector.
const PUBLISH_EVERY: Duration = Duration::from_secs(2);

/// Time that the last records have to reach the collector, also after an interruption.
const UPLOAD_LIMIT: Duration = Duration::from_secs(10);
const INTERRUPTED_LIMIT: Duration = Duration::from_millis(500);

/// Consequence of a collector that cannot be used.
const WITHOUT: &str = "continuing without the records of the team";

/// Interval at which a follower looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// Serves a team's database until a signal ends it.
pub(super) fn collect(args: FleetCollectArgs) -> Result<()> {
    let cancel = interrupt::service();
    let mut listeners = args.listen.iter().map(SocketPlace::listen).collect::<Result<Vec<_>, _>>()?;
    listeners.extend(nats::listen_as_collector(&args.nats)?);
    let db = TuningDb::open(&args.db).map_err(refusal)?;
    warn(&db);
    let collected = Arc::new(Collected::new(db, PUBLISH_EVERY));
    let addresses: Vec<String> = listeners.iter().map(|listener| listener.address()).collect();
    let name = args.name.unwrap_or_else(own_name);

    let (records, _) = collected.counts();
    print(&format!("fleet collector {name}: listening on {}", addresses.join(", ")))?;
    say(format_args!("fleet collector: database {}, {records} record(s)", args.db.display()));
    let notice = |line: String| say(format_args!("fleet collector: {line}"));
    let options = CollectorOptions::new(&name);
    serve_collector(listeners, &collected, &options, &|| cancel.is_cancelled(), notice)?;
    let (records, new) = collected.counts();
    print(&format!("fleet collector {name}: ended with {records} record(s), {new} of them new"))
}

/// Connects to a collector.
fn connect(dial: Arc<dyn Dial>, cancel: &Cancel) -> Result<TeamMemory> {
    let switch = cancel.clone();
    let is_interrupted = Arc::new(move || switch.is_cancelled());
    match TeamMemory::connect(dial, &FleetParams::default(), &FleetBuild::own(), is_interrupted) {
        Err(FleetError::Interrupted) => Err(Failure::Interrupted.into()),
        connected => Ok(connected?),
    }
}

/// Collector of a tuning run.
pub(in crate::commands) struct RunMemory(TeamMemory);

/// Connection with which a run asks what others have measured meanwhile, and the positions in the
/// records of each task up to which the database has them.
pub(in crate::commands) struct Recalled {
    memory: TeamMemory,
    positions: HashMap<Workload, u64>,
}

impl RunMemory {
    /// Connects to the collector that the command line names, or to that of the team on the NATS
    /// server; `None` if there is none. A failure of the team's is reported, and no error.
    pub(in crate::commands) fn connect(
        place: Option<&SocketPlace>,
        server: &NatsArgs,
        cancel: &Cancel,
    ) -> Result<Option<Self>> {
        if let Some(place) = place {
            return connect(Arc::new(place.clone()), cancel).map(|memory| Some(Self(memory)));
        }
        let Some(dial) = nats::collector(server)? else { return Ok(None) };
        match connect(dial, cancel) {
            Err(error) if !cancel.is_cancelled() => {
                say(format_args!("{error:#}; {WITHOUT}"));
                Ok(None)
            }
            connected => connected.map(|memory| Some(Self(memory))),
        }
    }

    /// Adds the team's records of the tasks to the database. They count as measured here, since
    /// equal machines have the same target key. A collector that is lost meanwhile is no reason to
    /// end.
    pub(in crate::commands) fn recall(
        &mut self,
        db: &TuningDb,
        workloads: &[Workload],
        target: &Target,
        cancel: &Cancel,
    ) -> Result<Recalled> {
        let (key, mut new, mut positions) = (target.key(), 0, HashMap::new());
        for workload in workloads {
            let (records, next) = match self.0.recall(workload, &key, 0) {
                Err(_) if cancel.is_cancelled() => return Err(Failure::Interrupted.into()),
                Err(error) => {
                    say(format_args!("{error}; {WITHOUT}"));
                    break;
                }
                Ok(recalled) => recalled,
            };
            new += db.append_all(&records)?;
            positions.insert(workload.clone(), next);
        }
        say(format_args!("collector {}: {new} new record(s) of {} task(s) on {key}", self.0.name(), positions.len()));
        Ok(Recalled { memory: self.0.another(brief()), positions })
    }

    /// Starts to pass on what the database has and gets.
    pub(in crate::commands) fn share(self, db: &Arc<TuningDb>) -> Sharing {
        let notice = |line: String| progress::notice(&line);
        Sharing { name: self.0.name().to_string(), upload: Upload::start(self.0, Arc::clone(db), notice) }
    }
}

/// Returns short time limits: measuring does not wait for a collector that does not answer.
fn brief() -> FleetParams {
    let limit = Duration::from_secs(1);
    FleetParams { lease: limit, greeting: limit, deliveries: 1, ..FleetParams::default() }
}

/// Calls `action` with a measurer that answers with results of other tuners where there are any, or
/// with the given one without a collector.
pub(in crate::commands) fn recalling<T>(
    recalled: Option<Recalled>,
    measurer: &mut dyn Measurer,
    db: &TuningDb,
    target: &Target,
    action: impl FnOnce(&mut dyn Measurer) -> T,
) -> T {
    match recalled {
        Some(Recalled { memory, positions }) => {
            let mut recalling = Recalling::new(measurer, memory, db, &target.key(), positions);
            let done = action(&mut recalling);
            if let answered @ 1.. = recalling.answered() {
                progress::notice(&format!("{answered} trial(s) on {target} have results of other tuners"));
            }
            done
        }
        None => action(measurer),
    }
}

/// Upload of a tuning run.
pub(in crate::commands) struct Sharing {
    name: String,
    upload: Upload,
}

impl Sharing {
    /// Passes on the last records, and returns a line about it.
    pub(in crate::commands) fn finish(self, cancel: &Cancel) -> String {
        let limit = if cancel.is_cancelled() { INTERRUPTED_LIMIT } else { UPLOAD_LIMIT };
        let Uploaded { stored, is_complete } = self.upload.finish(limit);
        let rest = match is_complete {
            true => "",
            false => "; the others are in the database, and the next run with this collector passes them on",
        };
        format!("collector {}: took {} new record(s){rest}", self.name, stored.new)
    }
}

/// Keeps a file up to date with the snapshots of a collector, until a signal ends it.
pub(in crate::commands) fn follow(args: FollowArgs) -> Result<()> {
    // A server that does not answer is no reason to wait after Ctrl-C.
    let source = source(&args)?;
    let cancel = interrupt::service();
    let mut memory = match connect(source, &cancel) {
        Err(_) if cancel.is_cancelled() => interrupt::end_service(),
        connected => connected?,
    };
    let mut known = present(&args)?;
    if args.once {
        match update(&args, &mut memory, &mut known)? {
            Update::None if known.is_none() => bail!("collector {} has no schedules yet", memory.name()),
            Update::None => print(&format!("{} is up to date", args.output.display()))?,
            Update::Written => {}
        }
        return Ok(());
    }

    say(format_args!("following collector {}, every {:.0?}", memory.name(), args.every));
    let mut is_lost = false;
    while !cancel.is_cancelled() {
        let updated = update(&args, &mut memory, &mut known);
        let error = updated.err().map(|error| error.downcast::<FleetError>()).transpose()?;
        // Only the first failure in a row is told.
        if let Some(error) = error.as_ref().filter(|_| !is_lost && !cancel.is_cancelled()) {
            say(format_args!("{error}; {} stays as it is", args.output.display()));
        }
        is_lost = error.is_some();
        pause(args.every, &cancel);
    }
    Ok(())
}

/// Change of the file.
enum Update {
    Written,
    None,
}

/// Fetches a snapshot if there is another than the known one, and replaces the file if it has other
/// schedules.
fn update(args: &FollowArgs, memory: &mut TeamMemory, known: &mut Option<Fingerprint>) -> Result<Update> {
    // The file may have been removed meanwhile.
    *known = known.filter(|_| args.output.exists());
    let Some((fingerprint, snapshot)) = memory.snapshot(*known)? else { return Ok(Update::None) };
    *known = Some(fingerprint);
    // A collector that was started again makes its first snapshot anew.
    if Snapshot::open(&args.output).is_ok_and(|old| old.is_alike(&snapshot)) {
        return Ok(Update::None);
    }
    install(args, &snapshot)?;
    Ok(Update::Written)
}

fn pause(time: Duration, cancel: &Cancel) {
    let start = Instant::now();
    while start.elapsed() < time && !cancel.is_cancelled() {
        thread::sleep(POLL.min(time));
    }
}

/// Returns the collector to follow.
fn source(args: &FollowArgs) -> Result<Arc<dyn Dial>> {
    if let Some(place) = &args.source {
        return Ok(Arc::new(place.clone()));
    }
    let url = args.nats.nats.as_deref().unwrap_or_default();
    nats::collector(&args.nats)?.with_context(|| {
        let team = &args.nats.team;
        format!(
            "no collector of team {team} is connected to NATS server {url}: start one (autotune fleet collect --nats)"
        )
    })
}

/// Returns the fingerprint of the snapshot that the file is already; `None` if it is absent.
fn present(args: &FollowArgs) -> Result<Option<Fingerprint>> {
    if !args.output.exists() {
        return Ok(None);
    }
    let present = Snapshot::open(&args.output).map_err(|error| refusal(error.into()))?;
    Ok(Some(Fingerprint::of(present.as_bytes())))
}

fn install(args: &FollowArgs, snapshot: &Snapshot) -> Result<()> {
    // The database crate renames the file itself; an interrupt meanwhile must not leave the
    // temporary file.
    let saved = interrupt::uninterrupted(&args.output, || snapshot.save(&args.output));
    saved.map_err(|error| refusal(error.into()))?;
    let (schedules, bytes) = (snapshot.len(), snapshot.as_bytes().len());
    print(&format!("wrote {schedules} schedule(s) to {}, {bytes} bytes", args.output.display()))
}
