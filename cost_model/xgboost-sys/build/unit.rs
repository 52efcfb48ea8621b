//! Translation units: the XGBoost files to compile, in groups.
//!
//! Most of the time to compile a file is spent on headers that all files share, so that a few units
//! which include many files compile several times faster. Files that training and prediction of
//! tree boosters on one machine do not need are left out; `native/absent.cc` defines the symbols of
//! theirs that others refer to.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Optimisation level of a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optimization {
    /// Code in which training spends most of its time.
    Hot,
    /// Code in which training spends little time.
    Cold,
}

impl Optimization {
    pub(crate) fn level(self) -> u32 {
        match self {
            Self::Hot => 2,
            Self::Cold => 1,
        }
    }
}

/// A file to compile.
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    /// Files of this crate that it includes.
    pub(crate) native: Vec<PathBuf>,
    pub(crate) optimization: Optimization,
}

struct Group {
    name: &'static str,
    optimization: Optimization,
    /// Files of this crate, relative to `native/`, that are included after [`PRELUDE`] and before
    /// `files`.
    native: &'static [&'static str],
    /// Files of XGBoost, relative to `src/`, without the extension `.cc`. A file that defines a
    /// registry precedes those that use it.
    files: &'static [&'static str],
}

/// File of this crate, relative to `native/`, that every unit includes first.
const PRELUDE: &str = "serial.h";

/// Groups, the slowest to compile first, which keeps all cores busy until the end.
const GROUPS: &[Group] = &[
    Group {
        name: "objective",
        optimization: Optimization::Cold,
        native: &[],
        files: &["common/ranking_utils", "objective/lambdarank_obj", "objective/regression_obj"],
    },
    Group {
        name: "grow",
        optimization: Optimization::Hot,
        native: &[],
        files: &[
            "tree/updater_quantile_hist",
            "tree/hist/hist_param",
            "tree/hist/histogram",
            "tree/hist/sampler",
            "tree/fit_stump",
            "tree/constraints",
            "tree/param",
        ],
    },
    Group {
        name: "predict",
        optimization: Optimization::Cold,
        native: &[],
        files: &["predictor/cpu_predictor", "tree/multi_target_tree_model", "tree/tree_model", "tree/tree_view"],
    },
    Group {
        name: "quantize",
        optimization: Optimization::Hot,
        native: &[],
        files: &[
            "common/hist_util",
            "common/quantile",
            "common/column_matrix",
            "common/host_device_vector",
            "data/gradient_index",
        ],
    },
    Group {
        name: "data",
        optimization: Optimization::Cold,
        native: &["absent_matrix.h"],
        files: &[
            "data/data",
            "data/simple_dmatrix",
            "data/adapter",
            "data/array_interface",
            "data/cat_container",
            "data/ellpack_page",
            "data/metainfo",
            "data/proxy_dmatrix",
        ],
    },
    Group {
        name: "c_api",
        optimization: Optimization::Cold,
        native: &[],
        files: &["c_api/c_api", "c_api/c_api_error"],
    },
    Group {
        name: "support",
        optimization: Optimization::Cold,
        native: &["absent.cc"],
        files: &[
            "common/charconv",
            "common/common",
            "common/cuda_rt_utils",
            "common/error_msg",
            "common/expectile_loss_utils",
            "common/io",
            "common/json",
            "common/linalg_op",
            "common/numeric",
            "common/optional_weight",
            "common/param_array",
            "common/pseudo_huber",
            "common/random",
            "common/stats",
            "common/threading_utils",
            "common/timer",
            "common/version",
            "context",
            "data/batch_utils",
            "global_config",
            "logging",
        ],
    },
    Group {
        name: "learn",
        optimization: Optimization::Cold,
        native: &[],
        files: &[
            "predictor/predictor",
            "learner",
            "gbm/gbm",
            "gbm/gbtree",
            "gbm/gbtree_model",
            "metric/metric",
            "objective/objective",
            "objective/init_estimation",
            "tree/tree_updater",
        ],
    },
];

/// Returns the path of a file as units include it. All platforms accept forward slashes; a
/// backslash would start an escape sequence.
pub(crate) fn include_path(file: &Path) -> String {
    file.display().to_string().replace('\\', "/")
}

/// Writes the source files of the units into `unit_dir`.
pub(crate) fn write(source_dir: &Path, native_dir: &Path, unit_dir: &Path) -> Result<Vec<Unit>, String> {
    fs::create_dir_all(unit_dir).map_err(|error| format!("cannot create {}: {error}", unit_dir.display()))?;
    let mut units = Vec::with_capacity(GROUPS.len());
    for group in GROUPS {
        let native: Vec<PathBuf> = [PRELUDE].iter().chain(group.native).map(|file| native_dir.join(file)).collect();
        let files = group.files.iter().map(|file| source_dir.join("src").join(format!("{file}.cc")));
        let mut text = String::new();
        for file in native.iter().cloned().chain(files) {
            if !file.is_file() {
                return Err(format!("the source file {} is missing", file.display()));
            }
            writeln!(text, "#include \"{}\"", include_path(&file)).map_err(|error| error.to_string())?;
        }
        // No header of XGBoost has such a name.
        let path = unit_dir.join(format!("unit_{}.cc", group.name));
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        units.push(Unit { path, native, optimization: group.optimization });
    }
    Ok(units)
}
