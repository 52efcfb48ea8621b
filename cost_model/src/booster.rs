//! Safe interface to XGBoost: matrices and boosters free themselves, and errors carry XGBoost's
//! message.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use autotune_xgboost_sys as sys;
use thiserror::Error;

/// Failed call into XGBoost.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("XGBoost: {message} (in {function})")]
pub struct BoosterError {
    /// Name of the function in XGBoost's C API.
    pub function: &'static str,
    /// Message of XGBoost, without time and source line.
    pub message: String,
}

type Result<T> = std::result::Result<T, BoosterError>;

/// Training rows, copied into XGBoost.
pub(crate) struct Matrix {
    handle: sys::DMatrixHandle,
    row_count: usize,
}

impl Matrix {
    /// Copies row-major `values` with `columns` values per row. NaN is a missing value; infinities
    /// are an error.
    pub(crate) fn new(values: &[f32], columns: usize) -> Result<Self> {
        let data = matrix_interface(values, columns)?;
        let mut handle = ptr::null_mut();
        // SAFETY: both texts end in NUL and outlive the call; `data` describes the memory of
        // `values`, which XGBoost only reads.
        check("XGDMatrixCreateFromDense", unsafe {
            sys::XGDMatrixCreateFromDense(data.as_ptr(), DENSE_CONFIG.as_ptr(), &mut handle)
        })?;
        Ok(Self { handle, row_count: values.len() / columns })
    }

    /// Sets the label of each row.
    pub(crate) fn set_labels(&mut self, labels: &[f32]) -> Result<()> {
        self.set(c"label", labels, "<f4")
    }

    /// Sets the initial prediction of each row, to which trees are added.
    pub(crate) fn set_margins(&mut self, margins: &[f32]) -> Result<()> {
        self.set(c"base_margin", margins, "<f4")
    }

    /// Sets the ranking group of each row. Rows of a group must be adjacent, and the numbers must
    /// not decrease.
    pub(crate) fn set_groups(&mut self, groups: &[u32]) -> Result<()> {
        self.set(c"qid", groups, "<u4")
    }

    /// Sets a column of values per row; `element` is numpy's name of the type `T`.
    fn set<T>(&mut self, field: &CStr, values: &[T], element: &str) -> Result<()> {
        const FUNCTION: &str = "XGDMatrixSetInfoFromInterface";
        if values.len() != self.row_count {
            return Err(error(FUNCTION, format!("{} values for {} rows", values.len(), self.row_count)));
        }
        let data = interface(values.as_ptr(), &values.len().to_string(), element)?;
        // SAFETY: the handle is valid until drop; both texts end in NUL and outlive the call;
        // `data` describes the memory of `values`, which XGBoost only reads.
        check(FUNCTION, unsafe { sys::XGDMatrixSetInfoFromInterface(self.handle, field.as_ptr(), data.as_ptr()) })
    }
}

impl Drop for Matrix {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and not used again. A failure needs no handling.
        unsafe { sys::XGDMatrixFree(self.handle) };
    }
}

/// A gradient-boosted model under training.
pub(crate) struct Booster {
    handle: sys::BoosterHandle,
}

impl Booster {
    /// Trains `rounds` trees. XGBoost ignores unknown parameters.
    pub(crate) fn train(matrix: &Matrix, params: &[(&str, String)], rounds: u32) -> Result<Self> {
        let mut booster = Self::new(&[matrix.handle])?;
        for (name, value) in params {
            booster.set_param(name, value)?;
        }
        for round in 0..rounds {
            let round = c_int::try_from(round)
                .map_err(|_| error("XGBoosterUpdateOneIter", format!("too many rounds: {rounds}")))?;
            // SAFETY: both handles are valid; no other thread uses the booster.
            check("XGBoosterUpdateOneIter", unsafe {
                sys::XGBoosterUpdateOneIter(booster.handle, round, matrix.handle)
            })?;
        }
        Ok(booster)
    }

    /// Returns the model in XGBoost's JSON format.
    pub(crate) fn to_json(&self) -> Result<Vec<u8>> {
        let mut len = 0;
        let mut bytes = ptr::null();
        // SAFETY: the handle is valid, the text ends in NUL, and results are written to live
        // variables.
        check("XGBoosterSaveModelToBuffer", unsafe {
            sys::XGBoosterSaveModelToBuffer(self.handle, c"{\"format\": \"json\"}".as_ptr(), &mut len, &mut bytes)
        })?;
        // SAFETY: after success `bytes` points to `len` bytes that stay valid until the next call
        // with this handle.
        Ok(unsafe { copied(bytes.cast::<u8>(), len) })
    }

    /// Reads a model written by [`Booster::to_json`]. XGBoost aborts the process on some malformed
    /// texts, so that this must only be called with XGBoost's own output.
    #[cfg(test)]
    pub(crate) fn from_json(json: &[u8]) -> Result<Self> {
        let booster = Self::new(&[])?;
        // SAFETY: pointer and length are those of a slice that outlives the call.
        check("XGBoosterLoadModelFromBuffer", unsafe {
            sys::XGBoosterLoadModelFromBuffer(booster.handle, json.as_ptr().cast(), json.len() as u64)
        })?;
        Ok(booster)
    }

    /// Predicts row-major `values` with `columns` values per row by XGBoost itself.
    #[cfg(test)]
    pub(crate) fn predict(&self, values: &[f32], columns: usize) -> Result<Vec<f32>> {
        let data = matrix_interface(values, columns)?;
        let config = c"{\"type\": 0, \"training\": false, \"iteration_begin\": 0, \"iteration_end\": 0, \
                       \"strict_shape\": false, \"missing\": NaN}";
        let mut shape = ptr::null();
        let mut dimensions = 0;
        let mut predictions = ptr::null();
        // SAFETY: the handle is valid, the texts end in NUL, `data` describes the memory of
        // `values`, which XGBoost only reads, and results are written to live variables. A null
        // matrix is allowed.
        check("XGBoosterPredictFromDense", unsafe {
            sys::XGBoosterPredictFromDense(
                self.handle,
                data.as_ptr(),
                config.as_ptr(),
                ptr::null_mut(),
                &mut shape,
                &mut dimensions,
                &mut predictions,
            )
        })?;

        // SAFETY: after success `shape` points to `dimensions` lengths that stay valid until the
        // next call.
        let len = unsafe { copied(shape, dimensions) }.iter().product();
        // SAFETY: XGBoost returned as many predictions as the shape says; they stay valid as long
        // as it.
        Ok(unsafe { copied(predictions, len) })
    }

    /// Returns all parameters in effect, as JSON.
    #[cfg(test)]
    pub(crate) fn config(&self) -> Result<String> {
        let mut len = 0;
        let mut text = ptr::null();
        // SAFETY: the handle is valid, and results are written to live variables.
        check("XGBoosterSaveJsonConfig", unsafe { sys::XGBoosterSaveJsonConfig(self.handle, &mut len, &mut text) })?;
        // SAFETY: after success `text` points to `len` bytes that stay valid until the next call
        // with this handle.
        Ok(String::from_utf8_lossy(&unsafe { copied(text.cast::<u8>(), len) }).into_owned())
    }

    fn new(matrices: &[sys::DMatrixHandle]) -> Result<Self> {
        // Silences warnings, which a library must not print; errors are returned. The setting is
        // thread-local. SAFETY: the text ends in NUL.
        check("XGBSetGlobalConfig", unsafe { sys::XGBSetGlobalConfig(c"{\"verbosity\": 0}".as_ptr()) })?;
        let mut handle = ptr::null_mut();
        // SAFETY: pointer and length are those of a slice of valid handles; the booster shares
        // ownership of the matrices.
        check("XGBoosterCreate", unsafe {
            sys::XGBoosterCreate(matrices.as_ptr(), matrices.len() as u64, &mut handle)
        })?;
        Ok(Self { handle })
    }

    fn set_param(&mut self, name: &str, value: &str) -> Result<()> {
        const FUNCTION: &str = "XGBoosterSetParam";
        let (name, value) = (text(FUNCTION, name)?, text(FUNCTION, value)?);
        // SAFETY: the handle is valid, both texts end in NUL and outlive the call.
        check(FUNCTION, unsafe { sys::XGBoosterSetParam(self.handle, name.as_ptr(), value.as_ptr()) })
    }
}

impl Drop for Booster {
    fn drop(&mut self) {
        // SAFETY: the handle is valid and never used again. A failure leaves nothing to be done.
        unsafe { sys::XGBoosterFree(self.handle) };
    }
}

const DENSE_CONFIG: &CStr = c"{\"missing\": NaN, \"nthread\": 1}";

/// Returns XGBoost's description of a row-major matrix.
fn matrix_interface(values: &[f32], columns: usize) -> Result<CString> {
    const FUNCTION: &str = "XGDMatrixCreateFromDense";
    if columns == 0 || values.is_empty() || !values.len().is_multiple_of(columns) {
        return Err(error(FUNCTION, format!("{} values are not whole rows of {columns} columns", values.len())));
    }
    interface(values.as_ptr(), &format!("{}, {columns}", values.len() / columns), "<f4")
}

/// Returns XGBoost's description of an array. XGBoost reads the memory at the address in the text.
fn interface<T>(values: *const T, shape: &str, element: &str) -> Result<CString> {
    let address = values.expose_provenance();
    let json =
        format!("{{\"data\": [{address}, true], \"shape\": [{shape}], \"typestr\": \"{element}\", \"version\": 3}}");
    text("XGDMatrixCreateFromDense", &json)
}

/// Copies values that XGBoost owns.
///
/// # Safety
///
/// Unless `len` is 0, `values` must point to `len` initialised values that no other thread changes
/// during the call.
unsafe fn copied<T: Copy>(values: *const T, len: u64) -> Vec<T> {
    if len == 0 || values.is_null() {
        return Vec::new();
    }
    // SAFETY: the caller guarantees the memory; since it exists, its length fits a usize.
    unsafe { std::slice::from_raw_parts(values, len as usize) }.to_vec()
}

fn text(function: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| error(function, format!("{text:?} contains a NUL byte")))
}

fn error(function: &'static str, message: String) -> BoosterError {
    BoosterError { function, message }
}

fn check(function: &'static str, code: c_int) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: XGBoost returns a NUL-terminated text that stays valid until the next call on this
    // thread.
    let message: *const c_char = unsafe { sys::XGBGetLastError() };
    // SAFETY: as above; XGBoost never returns null here.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy();
    Err(error(function, plain(&message)))
}

/// Returns XGBoost's message on one line, without the leading time and source line.
fn plain(message: &str) -> String {
    let text = match message.find(".cc:").or_else(|| message.find(".h:")) {
        Some(at) if message.starts_with('[') => message[at..].split_once(": ").map_or(message, |(_, rest)| rest),
        _ => message,
    };
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        pairs.iter().map(|&(name, value)| (name, value.to_owned())).collect()
    }

    fn matrix() -> Matrix {
        let mut matrix = Matrix::new(&[1.0, 2.0, f32::NAN, 4.0, 5.0, 6.0], 2).unwrap();
        matrix.set_labels(&[1.0, 2.0, 3.0]).unwrap();
        matrix
    }

    #[test]
    fn xgboost_reads_the_models_it_writes() {
        let booster = Booster::train(&matrix(), &params(&[("min_child_weight", "0")]), 5).unwrap();
        let rows = [0.5, 7.0, f32::NAN, 1.0, 9.0, f32::NAN];
        let predicted = booster.predict(&rows, 2).unwrap();
        assert_eq!(predicted.len(), 3);
        assert!(predicted.iter().any(|&score| score != predicted[0]), "{predicted:?}");
        let json = booster.to_json().unwrap();
        let loaded = Booster::from_json(&json).unwrap();
        assert_eq!(loaded.predict(&rows, 2).unwrap(), predicted);
        assert_eq!(loaded.to_json().unwrap(), json);
    }

    #[test]
    fn errors_carry_the_text_of_xgboost() {
        let error = Booster::train(&matrix(), &params(&[("max_depth", "-1")]), 1).err().unwrap();
        assert_eq!(error.function, "XGBoosterUpdateOneIter");
        assert!(error.message.contains("max_depth"), "{error}");
        assert!(!error.message.starts_with('['), "{error}");

        let error = Booster::train(&matrix(), &params(&[("objective", "rank:nothing")]), 1).err().unwrap();
        assert!(error.message.contains("rank:nothing"), "{error}");

        let error = Matrix::new(&[1.0, f32::INFINITY], 1).err().unwrap();
        assert!(error.message.contains("inf"), "{error}");
    }

    #[test]
    fn missing_parts_of_the_library_are_errors() {
        for (name, value) in [
            ("booster", "gblinear"),
            ("tree_method", "exact"),
            ("tree_method", "approx"),
            ("objective", "survival:aft"),
            ("objective", "multi:softmax"),
        ] {
            let error = Booster::train(&matrix(), &params(&[(name, value), ("num_class", "3")]), 1).err();
            assert!(error.is_some(), "{name}={value}");
        }
    }

    #[test]
    fn slices_of_the_wrong_length_are_refused() {
        assert!(Matrix::new(&[1.0, 2.0, 3.0], 2).is_err());
        assert!(Matrix::new(&[], 2).is_err());
        assert!(Matrix::new(&[1.0], 0).is_err());
        let mut matrix = matrix();
        assert!(matrix.set_labels(&[1.0]).is_err());
        assert!(matrix.set_groups(&[1, 1, 1, 1]).is_err());
        assert!(matrix.set_groups(&[2, 1, 1]).is_err(), "groups must not decrease");
        assert!(Booster::train(&matrix, &params(&[("eta", "0\0")]), 1).is_err());
    }
}
