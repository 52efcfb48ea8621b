//! Steps of runs in the profiles that ONNX Runtime writes, from version 1.25 on.
//!
//! ONNX Runtime makes a profiler for each profile, and tells it on the thread of a run when the run
//! of a node begins and ends. Steps that run between the two are events of this profile.

use std::collections::HashMap;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use autotune_network::StepSpan;
use ort_sys::OrtStatusPtr;

use crate::abi::{PROFILED_VERSION, ProfilerTable, ProfilingApi, ProfilingEvent, ProfilingEvents};
use crate::host::Host;

/// Category of events that are parts of nodes.
const KERNEL: c_int = 2;

/// Profiles that a session writes at present.
#[derive(Default)]
pub(crate) struct Profiles {
    /// Number of profiles, which runs read without the lock.
    count: AtomicUsize,
    open: Mutex<OpenProfiles>,
}

#[derive(Default)]
struct OpenProfiles {
    /// Profiles by number.
    profiles: HashMap<usize, SessionProfile>,
    /// Events of ONNX Runtime that have begun and not ended: their thread, and the profile.
    begun: Vec<(ThreadId, usize)>,
    /// Number of the next profile.
    next: usize,
}

/// Profile that has not ended.
struct SessionProfile {
    start: Instant,
    events: Vec<StepEvent>,
}

/// Step of a run.
struct StepEvent {
    span: StepSpan,
    /// Name of the node in ONNX Runtime's graph.
    part: Arc<str>,
    thread: i32,
}

impl Profiles {
    fn open(&self) -> MutexGuard<'_, OpenProfiles> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a profile, and returns its number.
    fn start(&self, start: Instant) -> usize {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.profiles.insert(number, SessionProfile { start, events: Vec::new() });
        self.count.store(open.profiles.len(), Ordering::Relaxed);
        number
    }

    /// Closes a profile, and returns it.
    fn end(&self, number: usize) -> Option<SessionProfile> {
        let mut open = self.open();
        let profile = open.profiles.remove(&number);
        open.begun.retain(|&(_, other)| other != number);
        self.count.store(open.profiles.len(), Ordering::Relaxed);
        profile
    }
}

impl OpenProfiles {
    /// Returns the profiles that have an event of this thread.
    fn of_thread(&self) -> Vec<usize> {
        let own = thread::current().id();
        let mut numbers: Vec<usize> =
            self.begun.iter().filter(|(thread, _)| *thread == own).map(|&(_, number)| number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// Part of a model whose steps may be in profiles.
pub(crate) struct ProfiledPart {
    name: Arc<str>,
    profiles: Arc<Profiles>,
}

impl ProfiledPart {
    /// Returns the part with the name of a node, in the profiles of its session.
    pub(crate) fn of(name: String, profiles: &Arc<Profiles>) -> Self {
        Self { name: name.into(), profiles: Arc::clone(profiles) }
    }

    /// True if a profile has an event of this thread, so that it takes the steps of a run.
    pub(crate) fn is_observed(&self) -> bool {
        self.profiles.count.load(Ordering::Relaxed) > 0 && !self.profiles.open().of_thread().is_empty()
    }

    /// Adds the steps of a run on this thread to the profiles.
    pub(crate) fn add(&self, spans: &[StepSpan]) {
        // SAFETY: the function has no preconditions.
        let thread = unsafe { libc::gettid() };
        let event = |span: &StepSpan| StepEvent { span: span.clone(), part: Arc::clone(&self.name), thread };
        let mut open = self.profiles.open();
        for number in open.of_thread() {
            if let Some(profile) = open.profiles.get_mut(&number) {
                profile.events.extend(spans.iter().map(event));
            }
        }
    }
}

/// Profiler of one profile. ONNX Runtime knows its first field.
#[repr(C)]
pub(crate) struct Profiler {
    table: ProfilerTable,
    host: Host,
    profiles: Arc<Profiles>,
    /// Number of the profile, once it has started.
    number: Mutex<Option<usize>>,
}

impl Profiler {
    /// Creates the profiler of a profile of a session.
    pub(crate) fn create(host: Host, profiles: Arc<Profiles>) -> *mut ProfilerTable {
        let table = ProfilerTable { version: PROFILED_VERSION, release, start, start_event, stop_event, end };
        Box::into_raw(Box::new(Self { table, host, profiles, number: Mutex::new(None) })).cast()
    }

    fn number(&self) -> MutexGuard<'_, Option<usize>> {
        self.number.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let number = self.number().take();
        number.and_then(|number| self.profiles.end(number));
    }
}

impl SessionProfile {
    /// Adds the events to ONNX Runtime's profile.
    ///
    /// # Safety
    ///
    /// The functions and the profile are those of one ONNX Runtime.
    unsafe fn write(&self, host: Host, api: ProfilingApi, out: *mut ProfilingEvents) -> Result<(), String> {
        let mut made: Vec<*mut ProfilingEvent> = Vec::with_capacity(self.events.len());
        // SAFETY: as for this function.
        let created = self.events.iter().try_for_each(|event| unsafe {
            made.push(event.create(host, api, self.start)?);
            Ok(())
        });
        // SAFETY: as for this function; ONNX Runtime copies the events, which are released once.
        unsafe {
            let added = created.and_then(|()| host.check((api.add_events)(out, made.as_ptr().cast(), made.len())));
            made.into_iter().for_each(|event| (api.release_event)(event));
            added
        }
    }
}

impl StepEvent {
    /// Creates the event of a profile that began at `start`.
    ///
    /// # Safety
    ///
    /// The functions are those of ONNX Runtime.
    unsafe fn create(&self, host: Host, api: ProfilingApi, start: Instant) -> Result<*mut ProfilingEvent, String> {
        let StepEvent { span, part, thread } = self;
        let operator = match &span.workload {
            Some(_) if span.is_conversion => "conversion",
            Some(workload) => workload.split(':').next().unwrap_or_default(),
            None => "copy",
        };
        let mut arguments = vec![("op_name", operator), ("parent_name", part)];
        arguments.extend(span.workload.as_deref().map(|workload| ("workload", workload)));
        let texts = arguments.iter().map(|&(key, value)| Ok([c_text(key)?, c_text(value)?]));
        let texts = texts.collect::<Result<Vec<_>, String>>()?;
        let [keys, values] = [0, 1].map(|side| texts.iter().map(|pair| pair[side].as_ptr()).collect::<Vec<_>>());

        // Both ends are rounded down, so that events do not overlap.
        let micros = |moment: Instant| moment.saturating_duration_since(start).as_micros() as i64;
        let (first, last, name) = (micros(span.start), micros(span.end), c_text(&span.name)?);
        let (process, mut event) = (std::process::id() as i32, ptr::null_mut());
        // SAFETY: as for this function; ONNX Runtime copies the texts.
        let created = unsafe {
            let (keys, values, count) = (keys.as_ptr(), values.as_ptr(), texts.len());
            let (name, length) = (name.as_ptr(), last - first);
            (api.create_event)(KERNEL, process, *thread, name, first, length, keys, values, count, &mut event)
        };
        host.check(created)?;
        Ok(event)
    }
}

/// Returns a text for ONNX Runtime, without zero bytes.
fn c_text(text: &str) -> Result<CString, String> {
    CString::new(text.replace('\0', " ")).map_err(|error| error.to_string())
}

/// Returns the profiler of a table.
///
/// # Safety
///
/// The table comes from [`Profiler::create`], and is not released during `'a`.
unsafe fn profiler<'a>(this: *mut ProfilerTable) -> &'a Profiler {
    // SAFETY: as for this function; the table is the first field.
    unsafe { &*this.cast::<Profiler>() }
}

unsafe extern "system" fn release(this: *mut ProfilerTable) {
    if !this.is_null() {
        // SAFETY: ONNX Runtime releases a profiler of this library, once.
        drop(unsafe { Box::from_raw(this.cast::<Profiler>()) });
    }
}

/// Begins a profile that ONNX Runtime began some time ago.
unsafe extern "system" fn start(this: *mut ProfilerTable, offset_nanos: i64) -> OrtStatusPtr {
    let now = Instant::now();
    // SAFETY: ONNX Runtime passes a table from `create`.
    let profiler = unsafe { profiler(this) };
    profiler.host.guarded(|| {
        let elapsed = Duration::from_nanos(u64::try_from(offset_nanos).unwrap_or_default());
        let number = profiler.profiles.start(now.checked_sub(elapsed).unwrap_or(now));
        let earlier = profiler.number().replace(number);
        earlier.and_then(|earlier| profiler.profiles.end(earlier));
        Ok(())
    })
}

unsafe extern "system" fn start_event(this: *mut ProfilerTable, _event: u64) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let profiler = unsafe { profiler(this) };
    profiler.host.guarded(|| {
        if let Some(number) = *profiler.number() {
            profiler.profiles.open().begun.push((thread::current().id(), number));
        }
        Ok(())
    })
}

unsafe extern "system" fn stop_event(
    this: *mut ProfilerTable,
    _event: u64,
    _of: *const ProfilingEvent,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let profiler = unsafe { profiler(this) };
    profiler.host.guarded(|| {
        let Some(number) = *profiler.number() else { return Ok(()) };
        let (own, mut open) = ((thread::current().id(), number), profiler.profiles.open());
        if let Some(last) = open.begun.iter().rposition(|begun| *begun == own) {
            open.begun.remove(last);
        }
        Ok(())
    })
}

unsafe extern "system" fn end(this: *mut ProfilerTable, out: *mut ProfilingEvents) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`.
    let profiler = unsafe { profiler(this) };
    profiler.host.guarded(|| {
        let number = profiler.number().take();
        let profile = number.and_then(|number| profiler.profiles.end(number));
        match (profile, profiler.host.profiling()) {
            // SAFETY: the profile is one of this ONNX Runtime.
            (Some(profile), Some(api)) => unsafe { profile.write(profiler.host, api, out) },
            _ => Ok(()),
        }
    })
}
