//! The translation units: which files of XGBoost are compiled, and which of them together.
//!
//! Most of the time to compile one file goes into headers that all of them share, so a few files
//! that include many compile several times faster than the many. Left out is all that training and
//! predicting on one machine with tree boosters do not reach; `native/absent.cc` stands in for what
//! is referred to nevertheless.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// How much is spent on compiling a unit.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Optimization {
    /// Most of the time of training is spent here.
    Hot,
    /// Little time is spent here.
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

/// One file to compile.
pub(crate) struct Unit {
    pub(crate) path: PathBuf,
    /// Files of this crate that it includes.
    pub(crate) native: Vec<PathBuf>,
    pub(crate) optimization: Optimization,
}

struct Group {
    name: &'static str,
    optimization: Optimization,
    /// Of this crate, relative to `native/`, included after [`PRELUDE`] and before the rest.
    native: &'static [&'static str],
    /// Of XGBoost, relative to `src/`, without the ending `.cc`. A file that opens a registry comes
    /// before those that use it.
    files: &'static [&'static str],
}

/// Of this crate, relative to `native/`, included at the head of every unit.
const PRELUDE: &str = "serial.h";

/// The slowest to compile come first, which keeps the machine's cores busy to the end.
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

/// Writes the units into `unit_dir`.
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
            // Forward slashes are understood everywhere, and a backslash would be an escape.
            let file = file.display().to_string().replace('\\', "/");
            writeln!(text, "#include \"{file}\"").map_err(|error| error.to_string())?;
        }
        // A name that no header of XGBoost bears.
        let path = unit_dir.join(format!("unit_{}.cc", group.name));
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        units.push(Unit { path, native, optimization: group.optimization });
    }
    Ok(units)
}
