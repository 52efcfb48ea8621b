//! The class `Session`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use autotune_db::open_source;
use autotune_ir::Target;
use autotune_network::{
    DType, DeclaredType, Precision, Session, SessionError, SessionOptions, SessionOutput, SessionPrecision, Tensor,
    Waiting,
};
use numpy::ndarray::{ArrayD, IxDyn};
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyReadwriteArrayDyn, PyUntypedArrayMethods};
use pyo3::prelude::*;

use crate::error::{exception, raised};

/// Arrays by name, with their element types.
type NamedArrays<'py> = BTreeMap<String, (String, Numbers<'py>)>;

/// An output as Python sees it: name, element type, numbers.
type OutputArray<'py> = (String, String, Bound<'py, PyArrayDyn<f32>>);

/// An array of f32 in C order.
type Numbers<'py> = PyReadonlyArrayDyn<'py, f32>;

/// A network that runs on arrays of any shape that its inputs may have.
#[pyclass(name = "Session", module = "autotune._autotune", frozen)]
pub(crate) struct PySession(Session);

#[pymethods]
impl PySession {
    /// Opens a built-in network, or an ONNX file if `is_file`. Without `db` it uses the default
    /// database.
    #[new]
    #[pyo3(signature = (subject, *, is_file, shapes, values, precision, max_error, examples, is_dequantised, threads, db, spin))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    fn new(
        py: Python<'_>,
        subject: &str,
        is_file: bool,
        shapes: BTreeMap<String, String>,
        values: NamedArrays<'_>,
        precision: &str,
        max_error: f64,
        examples: NamedArrays<'_>,
        is_dequantised: bool,
        threads: Option<usize>,
        db: Option<PathBuf>,
        spin: bool,
    ) -> PyResult<Self> {
        let option = |message: String| raised(py, "OptionError", message);
        let shapes = shapes.into_iter().map(|(name, text)| match text.parse() {
            Ok(range) => Ok((name, range)),
            Err(error) => Err(option(format!("shape of '{name}': {error}"))),
        });
        let precision = match precision {
            "auto" => SessionPrecision::Fastest { max_error, examples: tensors(py, examples)? },
            word => {
                SessionPrecision::In(Precision::of_cpus(word).map_err(|error| option(format!("{error}, or auto")))?)
            }
        };

        let target = Target::detect("cpu", threads).map_err(|error| option(error.to_string()))?;
        let source = db.map(open_source).transpose().map_err(|error| raised(py, "DatabaseError", error.to_string()))?;
        let options = SessionOptions {
            shapes: shapes.collect::<PyResult<_>>()?,
            values: tensors(py, values)?,
            precision,
            is_dequantised,
            target: Some(target),
            source: source.map(Arc::from),
            waiting: if spin { Waiting::Spin } else { Waiting::Sleep },
            most_networks: None,
            pinned: Vec::new(),
        };
        let opened = py.detach(|| match is_file {
            true => Session::of_file(subject.as_ref(), options),
            false => Session::open(subject, options),
        });
        opened.map(Self).map_err(|error| exception(py, error))
    }

    /// Name of the network.
    #[getter]
    fn name(&self) -> &str {
        self.0.name()
    }

    /// Names and element types of the inputs, in order.
    #[getter]
    fn inputs(&self) -> Vec<(String, &'static str)> {
        self.0.inputs().iter().map(|input| (input.name.clone(), input.dtype.word())).collect()
    }

    /// Shapes that the inputs may have, such as `1x8..512`.
    #[getter]
    fn shapes(&self) -> Vec<String> {
        self.0.shapes().map(ToString::to_string).collect()
    }

    /// Names of the outputs, in order.
    #[getter]
    fn output_names(&self) -> Vec<String> {
        self.0.outputs().iter().map(|output| output.name.clone()).collect()
    }

    /// Runs the network on C-ordered arrays; returns name, element type and numbers of each output.
    fn run<'py>(&self, py: Python<'py>, inputs: Vec<Numbers<'py>>) -> PyResult<Vec<OutputArray<'py>>> {
        let slices: Vec<&[f32]> = inputs.iter().map(slice).collect::<PyResult<_>>()?;
        let shapes: Vec<Vec<usize>> = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let prepared = py.detach(|| {
            let mut run = self.0.prepare(&shapes)?;
            let outputs = run.outputs()?;
            Ok((run, outputs))
        });
        if let Err(SessionError::InPhases) = &prepared {
            let results = py.detach(|| self.0.run_numbers(&shapes, &slices));
            let results = results.map_err(|error| exception(py, error))?;
            return results.into_iter().map(|(output, result)| output_array(py, &output, result)).collect();
        }
        let (mut run, outputs) = prepared.map_err(|error| exception(py, error))?;

        let arrays: Vec<_> =
            outputs.iter().map(|output| PyArrayDyn::<f32>::zeros(py, output.shape.as_slice(), false)).collect();
        let mut written: Vec<PyReadwriteArrayDyn<'_, f32>> = arrays.iter().map(|array| array.readwrite()).collect();
        let mut targets: Vec<&mut [f32]> =
            written.iter_mut().map(|array| Ok(array.as_slice_mut()?)).collect::<PyResult<_>>()?;
        let done = py.detach(|| run.run(&slices, &mut targets));
        done.map_err(|error| exception(py, error))?;
        drop(written);

        let typed = outputs.into_iter().zip(arrays);
        Ok(typed.map(|(output, array)| (output.name.clone(), stored(&output), array)).collect())
    }
}

/// Returns an output whose shape depends on the data.
fn output_array<'py>(py: Python<'py>, output: &SessionOutput, result: Tensor) -> PyResult<OutputArray<'py>> {
    let array = ArrayD::from_shape_vec(IxDyn(&output.shape), result.into_numbers());
    let array = array.map_err(|error| raised(py, "Error", error.to_string()))?;
    Ok((output.name.clone(), stored(output), PyArrayDyn::from_owned_array(py, array)))
}

fn slice<'a>(numbers: &'a Numbers<'_>) -> PyResult<&'a [f32]> {
    Ok(numbers.as_slice()?)
}

/// Returns NumPy's name of the type that a file declares for an output.
fn stored(output: &SessionOutput) -> String {
    let word = match output.declared() {
        DeclaredType::Of(DType::F16) => "float16",
        DeclaredType::Of(DType::F32 | DType::Tf32 | DType::Bf16) => "float32",
        DeclaredType::Of(DType::Bool) => "bool",
        DeclaredType::Of(DType::I8) => "int8",
        DeclaredType::Of(DType::I16) => "int16",
        DeclaredType::Of(DType::I32) => "int32",
        DeclaredType::Of(DType::I64) => "int64",
        DeclaredType::Of(DType::U8) => "uint8",
        DeclaredType::U16 => "uint16",
        DeclaredType::U32 => "uint32",
        DeclaredType::U64 => "uint64",
        DeclaredType::F64 => "float64",
    };
    word.into()
}

/// Creates tensors from arrays of their numbers.
fn tensors(py: Python<'_>, arrays: NamedArrays<'_>) -> PyResult<BTreeMap<String, Tensor>> {
    let tensor = |(name, (word, numbers)): (String, (String, Numbers<'_>))| {
        let wrong = |error: String| raised(py, "OptionError", format!("'{name}': {error}"));
        let dtype = DType::of_word(&word).ok_or_else(|| wrong(format!("unknown element type '{word}'")))?;
        let tensor = Tensor::of_numbers(numbers.shape(), dtype, slice(&numbers)?);
        Ok((name.clone(), tensor.map_err(|error| wrong(error.to_string()))?))
    };
    arrays.into_iter().map(tensor).collect()
}
