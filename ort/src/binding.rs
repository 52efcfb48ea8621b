//! IO bindings: tensors that are named once for several runs.

use std::ffi::c_char;

use ort_sys::{OrtAllocator, OrtApi, OrtIoBinding, OrtMemoryInfo, OrtRunOptions, OrtSession, OrtValue};

use crate::handle::{Handle, give, of, of_mut, optional, set, text};
use crate::memory::allocated;
use crate::options::RunOptions;
use crate::session::OpenModel;
use crate::status::{api_functions, release_functions};
use crate::tensor::TensorValue;

/// Tensors by the names of inputs and outputs.
#[derive(Default)]
struct IoBindings {
    inputs: Vec<(String, TensorValue)>,
    /// Outputs; without a tensor, each run makes one.
    outputs: Vec<(String, Option<TensorValue>)>,
    /// Tensors of the outputs after a run.
    results: Vec<TensorValue>,
}

impl Handle for IoBindings {
    type Sys = OrtIoBinding;
}

/// Replaces the value of a name, or adds it.
fn bind<T>(bound: &mut Vec<(String, T)>, name: &str, value: T) {
    match bound.iter_mut().find(|(known, _)| known == name) {
        Some((_, known)) => *known = value,
        None => bound.push((name.into(), value)),
    }
}

api_functions! {
    fn CreateIoBinding(_session: *mut OrtSession, out: *mut *mut OrtIoBinding) { give(out, IoBindings::default()) }

    fn BindInput(binding: *mut OrtIoBinding, name: *const c_char, value: *const OrtValue) {
        bind(&mut of_mut::<IoBindings>(binding)?.inputs, text(name)?, of::<TensorValue>(value)?.clone());
        Ok(())
    }

    fn BindOutput(binding: *mut OrtIoBinding, name: *const c_char, value: *const OrtValue) {
        bind(&mut of_mut::<IoBindings>(binding)?.outputs, text(name)?, Some(of::<TensorValue>(value)?.clone()));
        Ok(())
    }

    fn BindOutputToDevice(binding: *mut OrtIoBinding, name: *const c_char, _info: *const OrtMemoryInfo) {
        bind(&mut of_mut::<IoBindings>(binding)?.outputs, text(name)?, None);
        Ok(())
    }

    fn RunWithBinding(session: *mut OrtSession, options: *const OrtRunOptions, binding: *const OrtIoBinding) {
        let model: &OpenModel = of(session)?;
        optional(options).map_or(Ok(()), RunOptions::check)?;
        let binding: &mut IoBindings = of_mut(binding.cast_mut())?;
        let given: Vec<(&str, &TensorValue)> = binding.inputs.iter().map(|(name, value)| (&**name, value)).collect();
        let wanted: Vec<(&str, Option<TensorValue>)> =
            binding.outputs.iter().map(|(name, value)| (&**name, value.clone())).collect();
        binding.results = model.run(&given, &wanted)?;
        Ok(())
    }

    fn GetBoundOutputValues(
        binding: *const OrtIoBinding,
        allocator: *mut OrtAllocator,
        out: *mut *mut *mut OrtValue,
        count: *mut usize,
    ) {
        let results = &of::<IoBindings>(binding)?.results;
        let places: *mut *mut OrtValue = allocated(allocator, size_of::<*mut OrtValue>() * results.len())?.cast();
        for (number, value) in results.iter().enumerate() {
            give(places.add(number), value.clone())?;
        }
        set(out, places)?;
        set(count, results.len())
    }

    fn GetBoundOutputNames(
        binding: *const OrtIoBinding,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
        lengths: *mut *mut usize,
        count: *mut usize,
    ) {
        // The names follow each other without zeros; the lengths separate them.
        let outputs = &of::<IoBindings>(binding)?.outputs;
        let bytes: usize = outputs.iter().map(|(name, _)| name.len()).sum();
        let texts: *mut u8 = allocated(allocator, bytes)?.cast();
        let sizes: *mut usize = allocated(allocator, size_of::<usize>() * outputs.len())?.cast();
        let mut first = 0;
        for (number, (name, _)) in outputs.iter().enumerate() {
            texts.add(first).copy_from_nonoverlapping(name.as_ptr(), name.len());
            sizes.add(number).write(name.len());
            first += name.len();
        }
        set(out, texts.cast())?;
        set(lengths, sizes)?;
        set(count, outputs.len())
    }

    fn SynchronizeBoundInputs(_binding: *mut OrtIoBinding) { Ok(()) }

    fn SynchronizeBoundOutputs(_binding: *mut OrtIoBinding) { Ok(()) }
}

release_functions! { ReleaseIoBinding(IoBindings) }

unsafe extern "system" fn clear_inputs(binding: *mut OrtIoBinding) {
    // SAFETY: the caller passes a handle of this API that nothing else uses.
    if let Ok(binding) = unsafe { of_mut::<IoBindings>(binding) } {
        binding.inputs.clear();
    }
}

unsafe extern "system" fn clear_outputs(binding: *mut OrtIoBinding) {
    // SAFETY: the caller passes a handle of this API that nothing else uses.
    if let Ok(binding) = unsafe { of_mut::<IoBindings>(binding) } {
        binding.outputs.clear();
        binding.results.clear();
    }
}

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
    api.ClearBoundInputs = clear_inputs;
    api.ClearBoundOutputs = clear_outputs;
}
