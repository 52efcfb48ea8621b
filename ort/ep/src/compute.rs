//! Runs of a compiled part of a model.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ptr;

use autotune_network::{Session, SessionError, SessionOutput};
use ort_autotune::element;
use ort_sys::{OrtKernelContext, OrtStatusPtr, OrtValue};

use crate::abi::{ComputeInfo, VERSION};
use crate::host::{Host, ask};
use crate::part::PartSession;
use crate::profile::ProfiledPart;
use crate::value::{TensorView, view};

/// A compiled part. ONNX Runtime knows its first field.
#[repr(C)]
pub(crate) struct CompiledPart {
    table: ComputeInfo,
    host: Host,
    session: Session,
    /// Position of each input of the session among the tensors that ONNX Runtime passes.
    inputs: Vec<usize>,
    /// Names of the tensors that ONNX Runtime wants, in its order.
    outputs: Vec<String>,
    profiled: ProfiledPart,
}

impl CompiledPart {
    /// Returns a part by its table.
    pub(crate) fn create(host: Host, part: PartSession, profiled: ProfiledPart) -> *mut ComputeInfo {
        let PartSession { session, inputs, outputs, .. } = part;
        let table = ComputeInfo { version: VERSION, create_state, compute, release_state };
        Box::into_raw(Box::new(Self { table, host, session, inputs, outputs, profiled })).cast()
    }

    /// Releases a part that no session uses any more.
    ///
    /// # Safety
    ///
    /// The table is null or comes from [`create`](Self::create), and is not used again.
    pub(crate) unsafe fn release(info: *mut ComputeInfo) {
        if !info.is_null() {
            // SAFETY: as for this function; the table is the first field.
            drop(unsafe { Box::from_raw(info.cast::<Self>()) });
        }
    }

    /// Runs the part on the tensors of a context.
    ///
    /// # Safety
    ///
    /// The context is that of a run of this part.
    unsafe fn run(&self, context: *mut OrtKernelContext) -> Result<(), String> {
        let host = self.host;
        let mut views = Vec::new();
        for &position in &self.inputs {
            let mut value: *const OrtValue = ptr::null();
            // SAFETY: as for this function.
            unsafe {
                ask!(host, KernelContext_GetInput(context, position, &mut value))?;
                views.push(view(host, value)?);
            }
        }
        // SAFETY: the tensors are not written during the run.
        let numbers = views.iter().map(|view| unsafe { numbers(view) }).collect::<Result<Vec<_>, _>>()?;
        let inputs: Vec<&[f32]> = numbers.iter().map(|numbers| &**numbers).collect();
        let shapes: Vec<Vec<usize>> = views.iter().map(TensorView::extents).collect();

        let mut run = match self.session.prepare(&shapes) {
            // Long recurrent layers run in phases.
            Err(SessionError::InPhases) => {
                let results = self.session.run_numbers(&shapes, &inputs).map_err(|error| error.to_string())?;
                let (infos, results): (Vec<_>, Vec<_>) = results.into_iter().unzip();
                // SAFETY: as for this function.
                let mut targets = unsafe { self.targets(context, &infos) }?;
                let outputs = targets.iter_mut().map(OutputMemory::numbers);
                outputs.zip(&results).for_each(|(output, result)| output.copy_from_slice(&result.numbers()));
                return targets.iter().try_for_each(OutputMemory::finish);
            }
            run => run.map_err(|error| error.to_string())?,
        };
        let infos = run.outputs().map_err(|error| error.to_string())?;
        // SAFETY: as for this function.
        let mut targets = unsafe { self.targets(context, &infos) }?;
        let mut outputs: Vec<&mut [f32]> = targets.iter_mut().map(OutputMemory::numbers).collect();
        if self.profiled.is_observed() {
            let spans = run.run_spans(&inputs, &mut outputs).map_err(|error| error.to_string())?;
            self.profiled.add(&spans);
        } else {
            run.run(&inputs, &mut outputs).map_err(|error| error.to_string())?;
        }
        targets.iter().try_for_each(OutputMemory::finish)
    }

    /// Returns memory for the outputs.
    ///
    /// # Safety
    ///
    /// The context is that of a run of this part, whose outputs were not asked for.
    unsafe fn targets<'a>(
        &self,
        context: *mut OrtKernelContext,
        infos: &[SessionOutput],
    ) -> Result<Vec<OutputMemory<'a>>, String> {
        let target = |info: &SessionOutput| {
            let wanted = self.outputs.iter().position(|name| *name == info.name);
            // SAFETY: as for this function.
            unsafe { OutputMemory::of(self.host, context, wanted, info) }
        };
        infos.iter().map(target).collect()
    }
}

/// Returns the numbers of a tensor, without a copy for aligned f32.
///
/// # Safety
///
/// The tensor exists and is not written during `'a`.
unsafe fn numbers<'a>(view: &TensorView) -> Result<Cow<'a, [f32]>, String> {
    // SAFETY: as for this function.
    element::numbers(view.element, unsafe { view.bytes() }?).map_err(|error| error.to_string())
}

/// Memory for an output of the session.
enum OutputMemory<'a> {
    /// Memory of ONNX Runtime's tensor of f32.
    InPlace(&'a mut [f32]),
    /// Own memory, and the view of a tensor of another type.
    Converted(Vec<f32>, TensorView),
    /// Own memory of an output that ONNX Runtime does not want.
    Unwanted(Vec<f32>),
}

impl OutputMemory<'_> {
    /// Returns memory for an output, which is number `wanted` of ONNX Runtime's outputs.
    ///
    /// # Safety
    ///
    /// The context is that of the run, and each output is asked for once.
    unsafe fn of(
        host: Host,
        context: *mut OrtKernelContext,
        wanted: Option<usize>,
        info: &SessionOutput,
    ) -> Result<Self, String> {
        let count = info.shape.iter().product();
        let Some(wanted) = wanted else { return Ok(Self::Unwanted(vec![0.0; count])) };
        let shape: Vec<i64> = info.shape.iter().map(|&extent| extent as i64).collect();
        let mut value: *mut OrtValue = ptr::null_mut();
        // SAFETY: as for this function.
        let view = unsafe {
            ask!(host, KernelContext_GetOutput(context, wanted, shape.as_ptr(), shape.len(), &mut value))?;
            view(host, value)?
        };

        // SAFETY: nothing else uses the tensor during the run.
        match element::numbers_mut(view.element, unsafe { view.bytes_mut() }?) {
            Some(numbers) if element::onnx_type(Some(info.declared())) == view.element => Ok(Self::InPlace(numbers)),
            _ => Ok(Self::Converted(vec![0.0; count], view)),
        }
    }

    fn numbers(&mut self) -> &mut [f32] {
        match self {
            Self::InPlace(numbers) => numbers,
            Self::Converted(numbers, _) | Self::Unwanted(numbers) => numbers,
        }
    }

    /// Writes the numbers to a tensor of another type.
    fn finish(&self) -> Result<(), String> {
        let Self::Converted(numbers, view) = self else { return Ok(()) };
        // SAFETY: nothing else uses the tensor during the run.
        let bytes = unsafe { view.bytes_mut() }?;
        element::write(view.element, numbers, bytes).map_err(|error| error.to_string())
    }
}

unsafe extern "system" fn create_state(_: *mut ComputeInfo, _: *mut c_void, out: *mut *mut c_void) -> OrtStatusPtr {
    if !out.is_null() {
        // SAFETY: ONNX Runtime passes memory for the result.
        unsafe { out.write(ptr::null_mut()) };
    }
    OrtStatusPtr::default()
}

unsafe extern "system" fn compute(
    this: *mut ComputeInfo,
    _: *mut c_void,
    context: *mut OrtKernelContext,
) -> OrtStatusPtr {
    // SAFETY: ONNX Runtime passes a table from `create`, which is the first field of the part.
    let part = unsafe { &*this.cast::<CompiledPart>() };
    // SAFETY: the context is that of this run.
    part.host.guarded(|| unsafe { part.run(context) })
}

unsafe extern "system" fn release_state(_: *mut ComputeInfo, _: *mut c_void) {}
