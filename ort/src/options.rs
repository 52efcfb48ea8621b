//! Options of sessions and of runs.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use autotune_ir::Target;
use autotune_network::onnx::DeclaredInput;
use autotune_network::{Extents, SessionOptions, ShapeRange};
use ort_sys::{ExecutionMode, GraphOptimizationLevel, OrtApi, OrtRunOptions, OrtSessionOptions};

use crate::handle::{Handle, elements, elements_mut, give, of, of_mut, set, text};
use crate::status::{ApiError, api_functions, release_functions};
use crate::text_options::TextOptions;

/// Prefix of configuration entries that are options of autotune.
const PREFIX: &str = "autotune.";

/// Options with which sessions are created.
#[derive(Clone, Default)]
pub(crate) struct OpenOptions {
    /// Number of threads of a run; all cores if 0.
    threads: usize,
    /// True if operators are computed by their reference implementation.
    pub(crate) is_reference: bool,
    /// Extents by their name in the file.
    extents: BTreeMap<String, usize>,
    config: BTreeMap<String, String>,
}

impl Handle for OpenOptions {
    type Sys = OrtSessionOptions;
}

impl OpenOptions {
    /// Returns the options for a model with some inputs.
    pub(crate) fn session(&self, inputs: &[DeclaredInput]) -> Result<SessionOptions, ApiError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (self.threads > 0).then(|| self.threads.min(cores));
        let target = Target::detect("cpu", threads).map_err(|error| ApiError::argument(error.to_string()))?;
        let entries = self.config.iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, &**value)));
        let TextOptions { source, precision, waiting } = TextOptions::of(&entries.collect(), PREFIX, &[])?;

        Ok(SessionOptions {
            shapes: inputs.iter().map(|input| (input.name.clone(), self.shape(input))).collect(),
            precision,
            target: Some(target),
            source,
            waiting: waiting.unwrap_or_default(),
            ..SessionOptions::default()
        })
    }

    /// Returns the shapes of an input, with the extents that the options name.
    fn shape(&self, input: &DeclaredInput) -> ShapeRange {
        let ShapeRange(mut extents) = ShapeRange::declared(input);
        for (extent, name) in extents.iter_mut().zip(&input.names) {
            if let Some(&number) = name.as_ref().and_then(|name| self.extents.get(name)) {
                *extent = Extents::Within(number, number);
            }
        }
        ShapeRange(extents)
    }
}

/// Options of runs: whether they are to end, and their tag.
#[derive(Default)]
pub(crate) struct RunOptions {
    is_terminated: AtomicBool,
    tag: Mutex<CString>,
}

impl Handle for RunOptions {
    type Sys = OrtRunOptions;
}

impl RunOptions {
    /// Fails if runs with these options are to end.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        match self.is_terminated.load(Ordering::Relaxed) {
            true => Err(ApiError::argument("the run options say to terminate")),
            false => Ok(()),
        }
    }
}

api_functions! {
    fn CreateSessionOptions(out: *mut *mut OrtSessionOptions) { give(out, OpenOptions::default()) }

    fn CloneSessionOptions(options: *const OrtSessionOptions, out: *mut *mut OrtSessionOptions) {
        give(out, of::<OpenOptions>(options)?.clone())
    }

    fn SetIntraOpNumThreads(options: *mut OrtSessionOptions, count: c_int) {
        let wrong = |_| ApiError::argument(format!("{count} threads"));
        of_mut::<OpenOptions>(options)?.threads = usize::try_from(count).map_err(wrong)?;
        Ok(())
    }

    fn SetInterOpNumThreads(_options: *mut OrtSessionOptions, _count: c_int) { Ok(()) }

    fn SetSessionGraphOptimizationLevel(options: *mut OrtSessionOptions, level: GraphOptimizationLevel) {
        of_mut::<OpenOptions>(options)?.is_reference = level == GraphOptimizationLevel::ORT_DISABLE_ALL;
        Ok(())
    }

    fn SetSessionExecutionMode(_options: *mut OrtSessionOptions, _mode: ExecutionMode) { Ok(()) }

    fn EnableMemPattern(_options: *mut OrtSessionOptions) { Ok(()) }

    fn DisableMemPattern(_options: *mut OrtSessionOptions) { Ok(()) }

    fn EnableCpuMemArena(_options: *mut OrtSessionOptions) { Ok(()) }

    fn DisableCpuMemArena(_options: *mut OrtSessionOptions) { Ok(()) }

    fn DisablePerSessionThreads(_options: *mut OrtSessionOptions) { Ok(()) }

    fn SetDeterministicCompute(_options: *mut OrtSessionOptions, _value: bool) { Ok(()) }

    fn SetSessionLogId(_options: *mut OrtSessionOptions, _name: *const c_char) { Ok(()) }

    fn SetSessionLogVerbosityLevel(_options: *mut OrtSessionOptions, _level: c_int) { Ok(()) }

    fn SetSessionLogSeverityLevel(_options: *mut OrtSessionOptions, _level: c_int) { Ok(()) }

    fn AddFreeDimensionOverrideByName(options: *mut OrtSessionOptions, name: *const c_char, extent: i64) {
        let (options, name): (&mut OpenOptions, &str) = (of_mut(options)?, text(name)?);
        let wrong = |_| ApiError::argument(format!("extent {extent} of '{name}'"));
        options.extents.insert(name.into(), usize::try_from(extent).map_err(wrong)?);
        Ok(())
    }

    fn AddSessionConfigEntry(options: *mut OrtSessionOptions, key: *const c_char, value: *const c_char) {
        of_mut::<OpenOptions>(options)?.config.insert(text(key)?.into(), text(value)?.into());
        Ok(())
    }

    fn HasSessionConfigEntry(options: *const OrtSessionOptions, key: *const c_char, out: *mut c_int) {
        set(out, c_int::from(of::<OpenOptions>(options)?.config.contains_key(text(key)?)))
    }

    fn GetSessionConfigEntry(
        options: *const OrtSessionOptions,
        key: *const c_char,
        value: *mut c_char,
        size: *mut usize,
    ) {
        let key = text(key)?;
        let missing = || ApiError::argument(format!("no configuration entry '{key}'"));
        let known = of::<OpenOptions>(options)?.config.get(key).ok_or_else(missing)?;
        let needed = known.len() + 1;
        let given = elements(size.cast_const(), 1)?[0];
        set(size, needed)?;
        if value.is_null() {
            return Ok(());
        }
        if given < needed {
            return Err(ApiError::argument(format!("the entry needs {needed} bytes")));
        }
        let place = elements_mut(value.cast::<u8>(), needed)?;
        place[..known.len()].copy_from_slice(known.as_bytes());
        place[known.len()] = 0;
        Ok(())
    }

    fn SessionOptionsAppendExecutionProvider(
        _options: *mut OrtSessionOptions,
        name: *const c_char,
        _keys: *const *const c_char,
        _values: *const *const c_char,
        _count: usize,
    ) {
        Err(ApiError::unsupported(format!("execution provider {}: autotune computes on the CPU", text(name)?)))
    }

    fn CreateRunOptions(out: *mut *mut OrtRunOptions) { give(out, RunOptions::default()) }

    fn RunOptionsSetTerminate(options: *mut OrtRunOptions) {
        of::<RunOptions>(options)?.is_terminated.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn RunOptionsUnsetTerminate(options: *mut OrtRunOptions) {
        of::<RunOptions>(options)?.is_terminated.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn RunOptionsSetRunTag(options: *mut OrtRunOptions, tag: *const c_char) {
        let tag = CString::new(text(tag)?).unwrap_or_default();
        *of::<RunOptions>(options)?.tag.lock().unwrap_or_else(PoisonError::into_inner) = tag;
        Ok(())
    }

    fn RunOptionsGetRunTag(options: *const OrtRunOptions, out: *mut *const c_char) {
        set(out, of::<RunOptions>(options)?.tag.lock().unwrap_or_else(PoisonError::into_inner).as_ptr())
    }

    fn RunOptionsSetRunLogVerbosityLevel(_options: *mut OrtRunOptions, _level: c_int) { Ok(()) }

    fn RunOptionsSetRunLogSeverityLevel(_options: *mut OrtRunOptions, _level: c_int) { Ok(()) }

    fn AddRunConfigEntry(_options: *mut OrtRunOptions, _key: *const c_char, _value: *const c_char) { Ok(()) }
}

release_functions! { ReleaseSessionOptions(OpenOptions), ReleaseRunOptions(RunOptions) }

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
}
