//! Workers of one target key, as a tuner sees them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use autotune::Setup;
use autotune_ir::Target;
use autotune_measure::{Ceilings, MeasureError};
use autotune_workloads::Workload;

use crate::crew::{Crew, CrewEvent, Outbound};
use crate::error::FleetError;
use crate::health::{FleetHealth, HealthChange};
use crate::message::{DeviceWish, FleetBuild, OpenedDevice, TunerMessage, WorkerMessage};
use crate::params::FleetParams;
use crate::transport::{Dial, FindWorkers};

/// Interval at which the caller is asked whether to stop.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Settings of a tuner's connections.
pub struct FleetOptions {
    /// Times and limits of leases, queues and connections.
    pub params: FleetParams,
    /// Version that the tuner reports.
    pub build: FleetBuild,
    /// Callback that is asked several times a second whether to stop.
    pub is_interrupted: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Receiver of lines for people: workers that join, leave, are quarantined.
    pub notice: Box<dyn Fn(String) + Send>,
    /// Search for workers that come later; `None` if there is none.
    pub find: Option<FindWorkers>,
}

impl Default for FleetOptions {
    fn default() -> Self {
        Self {
            params: FleetParams::default(),
            build: FleetBuild::own(),
            is_interrupted: Arc::new(|| false),
            notice: Box::new(drop),
            find: None,
        }
    }
}

/// Workers of one target key. It measures candidates on all of them, and races on one.
pub struct Fleet {
    pub(crate) crew: Crew,
    pub(crate) members: Vec<FleetMember>,
    pub(crate) options: FleetOptions,
    pub(crate) health: FleetHealth,
    /// Seconds of a wish of each workload, build included.
    pub(crate) wish_secs: HashMap<Workload, f64>,
    /// Fastest seconds per run of each workload.
    pub(crate) best_secs: HashMap<Workload, f64>,
    /// Worker of the last race.
    pub(crate) racer: Option<usize>,
    opened: OpenedDevice,
    /// Time since which no worker is connected.
    alone_since: Option<Instant>,
}

/// Worker as the tuner knows it.
pub(crate) struct FleetMember {
    address: String,
    /// Name of the worker; its address until it is known.
    pub(crate) name: String,
    pub(crate) outbound: Option<Outbound>,
    /// True after a lease expired, until the next message.
    pub(crate) is_silent: bool,
    /// True once the worker was told to stop.
    pub(crate) is_leaving: bool,
    /// True once it was of use.
    has_joined: bool,
    /// True if it will not be tried again, unless it is found again.
    is_refused: bool,
    /// True if it was found later: after a failure it is tried again when it is found again.
    is_found: bool,
    /// Number of wishes that it answered.
    trials: usize,
}

impl FleetMember {
    fn new(address: String) -> Self {
        Self {
            name: address.clone(),
            address,
            outbound: None,
            is_silent: false,
            is_leaving: false,
            has_joined: false,
            is_refused: false,
            is_found: false,
            trials: 0,
        }
    }
}

/// Event of interest to a run of batches or a race.
pub(crate) enum Heard {
    Message(usize, WorkerMessage),
    /// The worker left: lost for a reason, or in good order.
    Left(usize, Option<String>),
    Proposed(u64, Vec<autotune_schedules::Candidate>),
    Nothing,
}

impl Fleet {
    /// Connects to workers, and opens the device of a wish on each. Workers that cannot be reached
    /// are reported and tried again as long as there are others.
    ///
    /// # Errors
    /// If no worker can be used: the reason of the first. If the workers' target keys differ.
    pub fn connect(
        dials: Vec<Arc<dyn Dial>>,
        wish: &DeviceWish,
        mut options: FleetOptions,
    ) -> Result<Self, FleetError> {
        let mut members: Vec<FleetMember> = dials.iter().map(|dial| FleetMember::new(dial.address())).collect();
        let crew = Crew::new(wish, &options.build, &options.params);
        dials.into_iter().enumerate().for_each(|(worker, dial)| crew.join(worker, dial, false));
        let mut health = FleetHealth::new(options.params.drift);
        let (mut opened, mut failures) = (Vec::new(), BTreeMap::new());
        let mut waiting: HashSet<usize> = (0..members.len()).collect();

        while !waiting.is_empty() {
            if (options.is_interrupted)() {
                return Err(FleetError::Interrupted);
            }
            match crew.next(POLL) {
                Some(CrewEvent::Joined { worker, name, opened: device, outbound }) => {
                    waiting.remove(&worker);
                    failures.remove(&worker);
                    if let Some(change) = health.join(worker, device.reference_secs) {
                        (options.notice)(described(&name, change));
                    }
                    let member = &mut members[worker];
                    (member.name, member.outbound, member.has_joined) = (name, Some(outbound), true);
                    opened.push(*device);
                }
                Some(CrewEvent::Failed { worker, error }) => {
                    waiting.remove(&worker);
                    members[worker].is_refused = !error.is_temporary();
                    failures.entry(worker).or_insert(error);
                }
                Some(CrewEvent::Left { worker, .. }) => {
                    members[worker].outbound = None;
                    health.leave(worker);
                }
                _ => {}
            }
        }

        let mut keys: Vec<String> = opened.iter().map(|device| device.target.key()).collect();
        keys.sort();
        keys.dedup();
        if keys.len() > 1 {
            return Err(FleetError::Kinds { keys });
        }
        let Some(opened) = opened.into_iter().next() else {
            return Err(failures.into_values().next().unwrap_or(FleetError::NoWorker));
        };
        failures.values().for_each(|error| (options.notice)(error.to_string()));
        options.find.take().into_iter().for_each(|find| crew.look_for_workers(find));
        Ok(Self {
            crew,
            members,
            health,
            options,
            wish_secs: HashMap::new(),
            best_secs: HashMap::new(),
            racer: None,
            opened,
            alone_since: None,
        })
    }

    /// Returns the target of the workers, with nominal rates.
    pub fn target(&self) -> &Target {
        &self.opened.target
    }

    /// Returns the peak rates that a worker measured.
    pub fn ceilings(&self) -> Option<Ceilings> {
        self.opened.ceilings
    }

    /// Returns the name of the device and the timing options, for records.
    pub fn setup(&self) -> Setup {
        Setup { device: self.opened.device.clone(), harness: self.opened.harness.clone() }
    }

    /// Returns the names of the workers, with the number of wishes that each answered.
    pub fn workers(&self) -> Vec<(String, usize)> {
        self.members.iter().map(|member| (member.name.clone(), member.trials)).collect()
    }

    pub(crate) fn notice(&self, text: String) {
        (self.options.notice)(text);
    }

    /// Returns the workers that may get wishes.
    pub(crate) fn usable(&self) -> Vec<usize> {
        (0..self.members.len()).filter(|worker| self.is_usable(*worker)).collect()
    }

    /// Returns true if a worker may get wishes.
    pub(crate) fn is_usable(&self, worker: usize) -> bool {
        let member = &self.members[worker];
        member.outbound.is_some() && !member.is_silent && !member.is_leaving && !self.health.is_quarantined(worker)
    }

    /// Sends a message to a worker. A failure ends the connection, which is then reported as
    /// [`Heard::Left`].
    pub(crate) fn send(&mut self, worker: usize, message: &TunerMessage) -> bool {
        let outbound = self.members[worker].outbound.as_ref();
        outbound.is_some_and(|outbound| outbound.send(message).is_ok())
    }

    /// Ends the connection with a worker that sends what no worker sends.
    pub(crate) fn expel(&mut self, worker: usize, why: &str) {
        self.notice(format!("worker {} is not used any more: {why}", self.members[worker].name));
        (self.members[worker].outbound, self.members[worker].is_refused) = (None, true);
        self.health.leave(worker);
    }

    pub(crate) fn count_answer(&mut self, worker: usize) {
        self.members[worker].trials += 1;
    }

    /// Fails if the caller wants to stop, or if no worker has been connected for too long.
    pub(crate) fn check(&mut self) -> Result<(), MeasureError> {
        if (self.options.is_interrupted)() {
            return Err(MeasureError::Interrupted);
        }
        if self.members.iter().any(|member| member.outbound.is_some()) {
            self.alone_since = None;
            return Ok(());
        }
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        let is_hopeless = self.members.iter().all(|member| member.is_refused && !member.is_found);
        match is_hopeless || since.elapsed() > self.options.params.give_up {
            true => {
                Err(MeasureError::Device { message: "all workers are lost; their results so far are stored".into() })
            }
            false => Ok(()),
        }
    }

    /// Waits for the next event, and applies it to the members.
    pub(crate) fn hear(&mut self) -> Heard {
        let Some(event) = self.crew.next(POLL) else { return Heard::Nothing };
        match event {
            CrewEvent::Proposed { run, candidates } => Heard::Proposed(run, candidates),

            CrewEvent::Message { worker, message } => {
                self.members[worker].is_silent = false;
                match message {
                    WorkerMessage::Finished { reference_secs: Some(secs), .. } => self.compare(worker, secs),
                    WorkerMessage::Leaving => self.members[worker].is_leaving = true,
                    _ => {}
                }
                Heard::Message(worker, message)
            }
            CrewEvent::Joined { worker, name, opened, outbound } => {
                self.admit(worker, name, &opened, outbound);
                Heard::Nothing
            }
            CrewEvent::Left { worker, why } => {
                let member = &mut self.members[worker];
                let (name, is_leaving) = (member.name.clone(), member.is_leaving);
                if member.outbound.take().is_some() {
                    self.notice(match is_leaving {
                        true => format!("worker {name} stopped"),
                        false => format!("worker {name} is lost: {why}"),
                    });
                }
                self.health.leave(worker);
                Heard::Left(worker, (!is_leaving).then_some(why))
            }
            CrewEvent::Failed { worker, error } => {
                let member = &mut self.members[worker];
                let is_new = !error.is_temporary() && !member.is_refused && !member.has_joined;
                member.is_refused |= is_new || member.is_found;
                if is_new {
                    self.notice(error.to_string());
                }
                Heard::Nothing
            }
            CrewEvent::Found(dial) => {
                self.meet(dial);
                Heard::Nothing
            }
        }
    }

    /// Connects to a worker that was found, unless it is known.
    fn meet(&mut self, dial: Arc<dyn Dial>) {
        let address = dial.address();
        let worker = match self.members.iter().position(|member| member.address == address) {
            Some(worker) if self.members[worker].is_found && self.members[worker].is_refused => worker,
            Some(_) => return,
            None => {
                self.members.push(FleetMember { is_found: true, ..FleetMember::new(address) });
                self.members.len() - 1
            }
        };
        self.members[worker].is_refused = false;
        self.crew.join(worker, dial, true);
    }

    /// Lets a worker that connected again take part, unless it is of another kind now.
    fn admit(&mut self, worker: usize, name: String, opened: &OpenedDevice, outbound: Outbound) {
        let (key, address) = (opened.target.key(), self.members[worker].address.clone());
        if key != self.opened.target.key() {
            self.notice(format!("worker {name} at {address} is not used: its target is {key}"));
            return;
        }
        let member = &mut self.members[worker];
        (member.name, member.outbound) = (name.clone(), Some(outbound));
        (member.has_joined, member.is_silent, member.is_leaving) = (true, false, false);
        self.notice(format!("worker {name} at {address} joined"));
        if let Some(change) = self.health.join(worker, opened.reference_secs) {
            self.notice(described(&name, change));
        }
    }

    fn compare(&mut self, worker: usize, secs: f64) {
        if let Some(change) = self.health.look(worker, secs) {
            self.notice(described(&self.members[worker].name, change));
        }
    }
}

/// Describes a change in a worker's standing.
fn described(name: &str, change: HealthChange) -> String {
    match change {
        HealthChange::Quarantined(ratio) => format!(
            "worker {name} is quarantined: its reference kernel takes {ratio:.2} times as long as that of the others"
        ),
        HealthChange::Recovered(ratio) => {
            format!("worker {name} measures again: its reference kernel takes {ratio:.2} times as long")
        }
    }
}
