//! Compiles XGBoost's C++ sources into one static library.
//!
//! Needs a C++17 compiler and, for the first build on a machine, cargo's access to its registry.
//! [`source`] finds the sources, [`unit`] groups them into a few translation units, and [`store`]
//! caches the objects for other cargo profiles. All profiles compile with optimisation.

mod source;
mod store;
mod unit;

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use store::Store;
use unit::{Optimization, Unit};

const LIBRARY: &str = "autotune_xgboost";

fn main() -> ExitCode {
    match build() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            for line in message.lines().filter(|line| !line.trim().is_empty()) {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<(), String> {
    let crate_dir = directory("CARGO_MANIFEST_DIR")?;
    let out_dir = directory("OUT_DIR")?;
    let native_dir = crate_dir.join("native");
    println!("cargo::rerun-if-changed={}", crate_dir.join("build").display());
    println!("cargo::rerun-if-changed={}", native_dir.display());

    let source = source::locate(&crate_dir)?;
    let units = unit::write(&source.dir, &native_dir, &out_dir.join("units"))?;
    let store = if source.immutable { Store::open(&out_dir) } else { None };

    // Two compilations run concurrently; cargo's job server limits the number of compilers.
    let compile = |optimization: Optimization| {
        let units = units.iter().filter(|unit| unit.optimization == optimization);
        compile(units, &compiler(&source.dir, optimization), store.as_ref())
    };
    let (hot, cold) = std::thread::scope(|scope| {
        let cold = scope.spawn(|| compile(Optimization::Cold));
        (compile(Optimization::Hot), cold.join())
    });
    let cold = cold.map_err(|_| "the thread compiling XGBoost's cold units panicked".to_owned())?;

    // Objectives, tree builders and predictors register themselves in static initialisers that
    // nothing refers to, so that the linker must keep the whole archive.
    compiler(&source.dir, Optimization::Hot)
        .link_lib_modifier("+whole-archive")
        .objects(hot?)
        .objects(cold?)
        .try_compile(LIBRARY)
        .map_err(explain)
}

/// Returns the object files of `units`, cached or newly compiled.
fn compile<'a>(
    units: impl Iterator<Item = &'a Unit>,
    compiler: &cc::Build,
    store: Option<&Store>,
) -> Result<Vec<PathBuf>, String> {
    let mut objects = Vec::new();
    let mut missing = Vec::new();
    for unit in units {
        let kept = store.and_then(|store| store.path(unit, compiler));
        match kept {
            Some(kept) if kept.is_file() => objects.push(kept),
            kept => missing.push((unit, kept)),
        }
    }

    if missing.is_empty() {
        return Ok(objects);
    }

    let files = missing.iter().map(|(unit, _)| &unit.path);
    let compiled = compiler.clone().files(files).try_compile_intermediates().map_err(explain)?;
    for ((_, kept), object) in missing.iter().zip(&compiled) {
        if let (Some(store), Some(kept)) = (store, kept) {
            store.keep(object, kept);
        }
    }
    objects.extend(compiled);
    Ok(objects)
}

fn compiler(source_dir: &Path, optimization: Optimization) -> cc::Build {
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(optimization.level())
        .debug(false)
        .warnings(false)
        .flag_if_supported("-w")
        .flag_if_supported("-fvisibility=hidden")
        .define("NDEBUG", None)
        // Log lines go to XGBoost's own logger; error messages have no stack trace.
        .define("DMLC_LOG_CUSTOMIZE", "1")
        .define("DMLC_LOG_STACK_TRACE", "0")
        .include(source_dir.join("include"))
        .include(source_dir.join("dmlc-core/include"))
        .include(source_dir.join("src"));
    build
}

fn explain(error: cc::Error) -> String {
    format!(
        "compiling XGBoost failed: {error}\n\
         XGBoost needs a C++17 compiler (g++ 8.1 or later, or clang++): install one (on Debian: apt install g++), \
         or name one in the environment variable CXX"
    )
}

fn directory(variable: &str) -> Result<PathBuf, String> {
    env::var_os(variable).map(PathBuf::from).ok_or_else(|| format!("cargo did not set {variable}"))
}
