//! Bindings to the part of XGBoost's C API that the autotuner uses (XGBoost 3.4, CPU, one thread),
//! linked statically.
//!
//! All functions that return [`c_int`] share a contract: 0 means success, any other value a
//! failure, whose message [`XGBGetLastError`] returns on the same thread. Two threads must not use
//! the same booster at once; different handles are independent. Text arguments are NUL-terminated
//! UTF-8; `config` arguments are JSON objects. Returned pointers belong to the library and are
//! valid until the next call with the same handle.
//!
//! Matrices are described as JSON in the form of numpy's array interface, for example
//! `{"data": [ADDRESS, true], "shape": [ROWS, COLUMNS], "typestr": "<f4", "version": 3}`.

use std::ffi::{c_char, c_int, c_void};

/// Handle of a matrix with labels and groups, or null.
pub type DMatrixHandle = *mut c_void;
/// Handle of a model, or null.
pub type BoosterHandle = *mut c_void;
/// Type of lengths and counts (`bst_ulong`).
pub type BstUlong = u64;

unsafe extern "C" {
    /// Returns the message of the last failed call on this thread. Never null; valid until the next
    /// call on this thread.
    pub fn XGBGetLastError() -> *const c_char;

    /// Writes the version of the library.
    pub fn XGBoostVersion(major: *mut c_int, minor: *mut c_int, patch: *mut c_int);

    /// Sets options of the calling thread, for example `{"verbosity": 0}`.
    pub fn XGBSetGlobalConfig(config: *const c_char) -> c_int;

    /// Copies a row-major matrix described by `data` (array interface). `config` has the keys
    /// `missing` (the value that stands for a missing one; NaN always does) and `nthread`.
    pub fn XGDMatrixCreateFromDense(data: *const c_char, config: *const c_char, out: *mut DMatrixHandle) -> c_int;

    /// Frees a matrix. Boosters that were created with it share its data and stay valid.
    pub fn XGDMatrixFree(handle: DMatrixHandle) -> c_int;

    /// Copies a vector described by `data` (array interface) into the field `label`, `weight`,
    /// `base_margin` (f32) or `qid` (u32, not decreasing: the ranking group of each row).
    pub fn XGDMatrixSetInfoFromInterface(handle: DMatrixHandle, field: *const c_char, data: *const c_char) -> c_int;

    /// Writes the number of rows of a matrix.
    pub fn XGDMatrixNumRow(handle: DMatrixHandle, out: *mut BstUlong) -> c_int;

    /// Writes the number of feature columns of a matrix.
    pub fn XGDMatrixNumCol(handle: DMatrixHandle, out: *mut BstUlong) -> c_int;

    /// Creates a booster that caches predictions for `len` matrices, which may be freed after this
    /// call.
    pub fn XGBoosterCreate(dmats: *const DMatrixHandle, len: BstUlong, out: *mut BoosterHandle) -> c_int;

    /// Frees a booster, which must not be used again.
    pub fn XGBoosterFree(handle: BoosterHandle) -> c_int;

    /// Sets one training parameter. Unknown names are accepted silently; the first round of
    /// training checks the values.
    pub fn XGBoosterSetParam(handle: BoosterHandle, name: *const c_char, value: *const c_char) -> c_int;

    /// Trains one round; rounds are numbered from 0.
    pub fn XGBoosterUpdateOneIter(handle: BoosterHandle, iter: c_int, dtrain: DMatrixHandle) -> c_int;

    /// Writes the number of trained rounds.
    pub fn XGBoosterBoostedRounds(handle: BoosterHandle, out: *mut c_int) -> c_int;

    /// Writes the number of feature columns of a booster.
    pub fn XGBoosterGetNumFeature(handle: BoosterHandle, out: *mut BstUlong) -> c_int;

    /// Predicts the rows of a matrix. `config` has the keys `type` (0: transformed by the
    /// objective, 1: margin), `training`, `iteration_begin`, `iteration_end` (0 and 0: all rounds)
    /// and `strict_shape`.
    pub fn XGBoosterPredictFromDMatrix(
        handle: BoosterHandle,
        dmat: DMatrixHandle,
        config: *const c_char,
        out_shape: *mut *const BstUlong,
        out_dim: *mut BstUlong,
        out_result: *mut *const f32,
    ) -> c_int;

    /// Predicts the rows of a matrix described by `values` (array interface) without copying it.
    /// `config` has the keys of [`XGBoosterPredictFromDMatrix`] and `missing`; `m` may be null.
    pub fn XGBoosterPredictFromDense(
        handle: BoosterHandle,
        values: *const c_char,
        config: *const c_char,
        m: DMatrixHandle,
        out_shape: *mut *const BstUlong,
        out_dim: *mut BstUlong,
        out_result: *mut *const f32,
    ) -> c_int;

    /// Writes the model as bytes; `config` is `{"format": "ubj"}` (binary JSON) or
    /// `{"format": "json"}`.
    pub fn XGBoosterSaveModelToBuffer(
        handle: BoosterHandle,
        config: *const c_char,
        out_len: *mut BstUlong,
        out_dptr: *mut *const c_char,
    ) -> c_int;

    /// Replaces the booster's model with one saved by [`XGBoosterSaveModelToBuffer`]; the format is
    /// detected.
    pub fn XGBoosterLoadModelFromBuffer(handle: BoosterHandle, buf: *const c_void, len: BstUlong) -> c_int;

    /// Writes all parameters in effect as a JSON object.
    pub fn XGBoosterSaveJsonConfig(handle: BoosterHandle, out_len: *mut BstUlong, out_str: *mut *const c_char)
    -> c_int;

    /// Writes the names or types that [`XGBoosterSetStrFeatureInfo`] has set, and their number.
    pub fn XGBoosterGetStrFeatureInfo(
        handle: BoosterHandle,
        field: *const c_char,
        len: *mut BstUlong,
        out_features: *mut *const *const c_char,
    ) -> c_int;

    /// Sets `feature_name` or `feature_type` of each column, which are stored with the model.
    pub fn XGBoosterSetStrFeatureInfo(
        handle: BoosterHandle,
        field: *const c_char,
        features: *const *const c_char,
        size: BstUlong,
    ) -> c_int;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_version_the_declarations_describe() {
        let (mut major, mut minor, mut patch) = (0, 0, 0);
        // SAFETY: the three pointers are to integers that outlive the call.
        unsafe { XGBoostVersion(&mut major, &mut minor, &mut patch) };
        assert_eq!((major, minor), (3, 4), "patch {patch}");
    }
}
