//! Sessions: models and their runs.

use std::borrow::Cow;
use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use autotune_network::onnx::{DeclaredInput, DeclaredOutput, ImportOptions, Model, ModelMetadata};
use autotune_network::{DType, Session, SessionError, SessionOutput, Tensor};
use ort_sys::{
    OrtAllocator, OrtApi, OrtEnv, OrtMemoryInfo, OrtRunOptions, OrtSession, OrtSessionOptions, OrtTypeInfo, OrtValue,
};

use crate::element::onnx_type;
use crate::handle::{Handle, elements, elements_mut, give, of, optional, set, text};
use crate::memory::{cpu, text_in};
use crate::options::{OpenOptions, RunOptions};
use crate::status::{ApiError, api_functions, release_functions};
use crate::tensor::{TensorValue, extents};
use crate::type_info::{TensorInfo, TypeInfo};

/// A model that is ready to run.
pub(crate) struct OpenModel {
    engine: ModelEngine,
    pub(crate) name: String,
    inputs: Vec<DeclaredInput>,
    outputs: Vec<DeclaredOutput>,
    pub(crate) metadata: ModelMetadata,
}

impl Handle for OpenModel {
    type Sys = OrtSession;
}

/// Computation of a model.
enum ModelEngine {
    Kernels(Box<Session>),
    /// Reference implementation of every operator.
    Reference(Box<Mutex<Model<'static>>>),
}

impl OpenModel {
    fn of(model: Model<'static>, options: Option<&OpenOptions>) -> Result<Self, ApiError> {
        let default = OpenOptions::default();
        let options = options.unwrap_or(&default);
        let (inputs, outputs) = (model.inputs()?, model.outputs());
        let (name, metadata) = (model.name().to_string(), model.metadata().clone());
        let engine = match options.is_reference {
            true => ModelEngine::Reference(Box::new(Mutex::new(model))),
            false => ModelEngine::Kernels(Box::new(Session::of_model(model, options.session(&inputs)?)?)),
        };
        Ok(Self { engine, name, inputs, outputs, metadata })
    }

    /// Runs the model on named tensors. Outputs are written to the tensors that the caller has for
    /// them, else to new ones.
    ///
    /// # Safety
    ///
    /// Nothing writes the inputs or uses the outputs meanwhile.
    pub(crate) unsafe fn run(
        &self,
        given: &[(&str, &TensorValue)],
        wanted: &[(&str, Option<TensorValue>)],
    ) -> Result<Vec<TensorValue>, ApiError> {
        let inputs = self.in_order(given)?;
        let shapes: Vec<Vec<usize>> =
            inputs.iter().map(|value| extents(&value.info().shape)).collect::<Result<_, _>>()?;
        // SAFETY: as for this function.
        let numbers = inputs.iter().map(|value| unsafe { value.numbers() });
        let numbers: Vec<Cow<[f32]>> = numbers.collect::<Result<_, _>>()?;

        match &self.engine {
            ModelEngine::Kernels(session) => {
                // SAFETY: as for this function.
                unsafe { on_kernels(session, &shapes, &numbers, wanted) }
            }
            ModelEngine::Reference(model) => {
                let (infos, computed) = self.by_reference(model, &shapes, &numbers)?;
                let positions = positions(&infos, wanted)?;
                let values = values(&infos, &positions, wanted)?;
                for (value, position) in values.iter().zip(positions) {
                    // SAFETY: as for this function.
                    unsafe { value.write(&computed[position]) }?;
                }
                Ok(values)
            }
        }
    }

    /// Returns the tensors in the order of the model's inputs.
    fn in_order<'a>(&self, given: &[(&str, &'a TensorValue)]) -> Result<Vec<&'a TensorValue>, ApiError> {
        if let Some((unknown, _)) = given.iter().find(|(name, _)| !self.inputs.iter().any(|input| input.name == *name))
        {
            let names: Vec<&str> = self.inputs.iter().map(|input| &*input.name).collect();
            return Err(ApiError::argument(format!("no input '{unknown}': the inputs are {}", names.join(", "))));
        }

        let value = |input: &DeclaredInput| {
            let missing = || ApiError::argument(format!("input '{}' is missing", input.name));
            let (_, value) = given.iter().find(|(name, _)| *name == input.name).ok_or_else(missing)?;
            let (found, expected) = (value.info().element, TensorInfo::of_input(input).element);
            match found == expected {
                true => Ok(*value),
                false => Err(ApiError::argument(format!("input '{}' is {found:?}, expected {expected:?}", input.name))),
            }
        };
        self.inputs.iter().map(value).collect()
    }

    /// Returns the outputs of the reference implementation, and their numbers.
    fn by_reference(
        &self,
        model: &Mutex<Model<'static>>,
        shapes: &[Vec<usize>],
        numbers: &[Cow<[f32]>],
    ) -> Result<(Vec<SessionOutput>, Vec<Vec<f32>>), ApiError> {
        let names = self.inputs.iter().map(|input| input.name.clone());
        let options = ImportOptions { shapes: names.zip(shapes.iter().cloned()).collect(), ..ImportOptions::default() };
        let graph = model.lock().unwrap_or_else(PoisonError::into_inner).graph(&options)?;
        let tensors = self.inputs.iter().zip(shapes).zip(numbers);
        let tensors = tensors.map(|((input, shape), numbers)| Tensor::of_numbers(shape, input.dtype, numbers));
        let tensors = tensors.collect::<Result<Vec<_>, _>>().map_err(|error| ApiError::argument(error.to_string()))?;

        let results = graph.evaluate(&tensors).map_err(|error| ApiError::argument(error.to_string()))?;
        let computed = graph.outputs().iter().zip(results).map(|(output, tensor)| {
            let (name, shape) = (output.name.clone(), tensor.shape().to_vec());
            (SessionOutput { name, dtype: tensor.dtype(), stored: output.stored, shape }, tensor.to_numbers())
        });
        Ok(computed.unzip())
    }
}

/// Returns the positions of the wanted outputs among those of the model.
fn positions(infos: &[SessionOutput], wanted: &[(&str, Option<TensorValue>)]) -> Result<Vec<usize>, ApiError> {
    let position = |(name, _): &(&str, Option<TensorValue>)| {
        let found = infos.iter().position(|info| info.name == *name);
        found.ok_or_else(|| ApiError::argument(format!("no output '{name}'")))
    };
    wanted.iter().map(position).collect()
}

/// Returns the tensors of the wanted outputs: the caller's if they fit, or new ones.
fn values(
    infos: &[SessionOutput],
    positions: &[usize],
    wanted: &[(&str, Option<TensorValue>)],
) -> Result<Vec<TensorValue>, ApiError> {
    let value = |(&position, (name, given)): (&usize, &(&str, Option<TensorValue>))| {
        let info = &infos[position];
        let element = onnx_type(Some(info.declared()));
        let shape: Vec<i64> = info.shape.iter().map(|&extent| extent as i64).collect();
        let Some(given) = given else { return TensorValue::zeros(element, shape) };
        let found = given.info();
        match found.element == element && found.shape == shape {
            true => Ok(given.clone()),
            false => Err(ApiError::argument(format!(
                "output '{name}' is {:?} {:?}, expected {element:?} {shape:?}",
                found.element, found.shape
            ))),
        }
    };
    positions.iter().zip(wanted).map(value).collect()
}

/// Runs a session. New outputs of f32 are written in place; the caller's tensors are written after
/// the run, since they may share memory with inputs and with each other.
///
/// # Safety
///
/// Nothing uses the outputs meanwhile.
unsafe fn on_kernels(
    session: &Session,
    shapes: &[Vec<usize>],
    numbers: &[Cow<[f32]>],
    wanted: &[(&str, Option<TensorValue>)],
) -> Result<Vec<TensorValue>, ApiError> {
    let inputs: Vec<&[f32]> = numbers.iter().map(|numbers| &**numbers).collect();
    let mut run = match session.prepare(shapes) {
        // SAFETY: as for this function.
        Err(SessionError::InPhases) => return unsafe { in_phases(session, shapes, &inputs, wanted) },
        run => run?,
    };
    let infos = run.outputs()?;
    let positions = positions(&infos, wanted)?;
    let values = values(&infos, &positions, wanted)?;

    // Each output of the model goes to its only tensor in place, or to memory of its own.
    let mut own: Vec<Vec<f32>> = Vec::new();
    let mut in_place: Vec<Option<&mut [f32]>> = Vec::new();
    for (number, info) in infos.iter().enumerate() {
        let mut takers = (0..values.len()).filter(|&taker| positions[taker] == number);
        let only = takers.next().filter(|_| takers.next().is_none());
        let new = only.filter(|&taker| wanted[taker].1.is_none() && info.dtype == DType::F32);
        // SAFETY: the tensor is new, so that nothing else uses it.
        let place = new.and_then(|taker| unsafe { values[taker].numbers_mut() });
        own.push(if place.is_some() { Vec::new() } else { vec![0.0; info.shape.iter().product()] });
        in_place.push(place);
    }
    let mut outputs: Vec<&mut [f32]> =
        in_place.into_iter().zip(&mut own).map(|(place, own)| place.unwrap_or(own)).collect();
    run.run(&inputs, &mut outputs)?;

    for (value, &position) in values.iter().zip(&positions).filter(|(_, position)| !own[**position].is_empty()) {
        // SAFETY: as for this function; the inputs are not used any more.
        unsafe { value.write(&own[position]) }?;
    }
    Ok(values)
}

/// Runs a session whose outputs have shapes that depend on the data.
///
/// # Safety
///
/// Nothing uses the outputs meanwhile.
unsafe fn in_phases(
    session: &Session,
    shapes: &[Vec<usize>],
    numbers: &[&[f32]],
    wanted: &[(&str, Option<TensorValue>)],
) -> Result<Vec<TensorValue>, ApiError> {
    let (infos, results): (Vec<_>, Vec<_>) = session.run_numbers(shapes, numbers)?.into_iter().unzip();
    let positions = positions(&infos, wanted)?;
    let values = values(&infos, &positions, wanted)?;
    for (value, &position) in values.iter().zip(&positions) {
        // SAFETY: as for this function; the inputs are not used any more.
        unsafe { value.write(&results[position].to_numbers()) }?;
    }
    Ok(values)
}

/// Returns an element of a list.
fn at<T>(list: &[T], index: usize) -> Result<&T, ApiError> {
    list.get(index).ok_or_else(|| ApiError::argument(format!("number {index} of {} tensors", list.len())))
}

api_functions! {
    fn CreateSession(
        _environment: *const OrtEnv,
        path: *const c_char,
        options: *const OrtSessionOptions,
        out: *mut *mut OrtSession,
    ) {
        give(out, OpenModel::of(Model::open(Path::new(text(path)?))?, optional(options))?)
    }

    fn CreateSessionFromArray(
        _environment: *const OrtEnv,
        bytes: *const c_void,
        count: usize,
        options: *const OrtSessionOptions,
        out: *mut *mut OrtSession,
    ) {
        let bytes = elements(bytes.cast::<u8>(), count)?.to_vec();
        give(out, OpenModel::of(Model::of_vec(bytes)?, optional(options))?)
    }

    fn SessionGetInputCount(session: *const OrtSession, out: *mut usize) {
        set(out, of::<OpenModel>(session)?.inputs.len())
    }

    fn SessionGetOutputCount(session: *const OrtSession, out: *mut usize) {
        set(out, of::<OpenModel>(session)?.outputs.len())
    }

    fn SessionGetOverridableInitializerCount(_session: *const OrtSession, out: *mut usize) { set(out, 0) }

    fn SessionGetInputTypeInfo(session: *const OrtSession, index: usize, out: *mut *mut OrtTypeInfo) {
        give(out, TypeInfo(TensorInfo::of_input(at(&of::<OpenModel>(session)?.inputs, index)?)))
    }

    fn SessionGetOutputTypeInfo(session: *const OrtSession, index: usize, out: *mut *mut OrtTypeInfo) {
        give(out, TypeInfo(TensorInfo::of_output(at(&of::<OpenModel>(session)?.outputs, index)?)))
    }

    fn SessionGetInputName(
        session: *const OrtSession,
        index: usize,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) {
        set(out, text_in(allocator, &at(&of::<OpenModel>(session)?.inputs, index)?.name)?)
    }

    fn SessionGetOutputName(
        session: *const OrtSession,
        index: usize,
        allocator: *mut OrtAllocator,
        out: *mut *mut c_char,
    ) {
        set(out, text_in(allocator, &at(&of::<OpenModel>(session)?.outputs, index)?.name)?)
    }

    fn SessionGetMemoryInfoForInputs(_session: *const OrtSession, out: *mut *const OrtMemoryInfo, count: usize) {
        elements_mut(out, count)?.fill(cpu());
        Ok(())
    }

    fn SessionGetMemoryInfoForOutputs(_session: *const OrtSession, out: *mut *const OrtMemoryInfo, count: usize) {
        elements_mut(out, count)?.fill(cpu());
        Ok(())
    }

    fn Run(
        session: *mut OrtSession,
        options: *const OrtRunOptions,
        input_names: *const *const c_char,
        inputs: *const *const OrtValue,
        input_count: usize,
        output_names: *const *const c_char,
        output_count: usize,
        outputs: *mut *mut OrtValue,
    ) {
        let model: &OpenModel = of(session)?;
        optional(options).map_or(Ok(()), RunOptions::check)?;
        let mut given = Vec::new();
        for (&name, &value) in elements(input_names, input_count)?.iter().zip(elements(inputs, input_count)?) {
            given.push((text(name)?, of::<TensorValue>(value)?));
        }
        let places = elements_mut(outputs, output_count)?;
        let mut wanted = Vec::new();
        for (&name, place) in elements(output_names, output_count)?.iter().zip(&*places) {
            wanted.push((text(name)?, optional::<TensorValue>(*place).cloned()));
        }

        let values = model.run(&given, &wanted)?;
        for (place, value) in places.iter_mut().zip(values).filter(|(place, _)| place.is_null()) {
            give(place, value)?;
        }
        Ok(())
    }
}

release_functions! { ReleaseSession(OpenModel) }

pub(crate) fn add_to(api: &mut OrtApi) {
    add_functions(api);
    add_releases(api);
}
