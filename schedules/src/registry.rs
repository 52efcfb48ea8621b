//! The sketches of each kind of target. Only this module knows them by name.

use std::sync::{Arc, PoisonError, RwLock};

use autotune_ir::DType;
use autotune_ir::program::{Program, Role};
use autotune_ir::target::Target;
use autotune_workloads::{AlreadyRegistered, Work, Workload};

use crate::config::{Config, KnobValues};
use crate::direct::DirectSketch;
use crate::error::LowerError;
use crate::fused::{FusedMmaSketch, FusedSketch};
use crate::gpu::{IMPLICIT_GEMM, MMA, TILED, WGMMA};
use crate::knob_space::KnobSpace;
use crate::map_reduce::{MapReduceSketch, SeparableSketch};
use crate::rows::RowsSketch;
use crate::sketch::{Plan, Sketch};
use crate::winograd::WinogradSketch;

impl Config {
    /// Returns [`Sketch::work`] of the config; the direct algorithm's work if its sketch is
    /// unknown.
    pub fn work(&self, workload: &Workload) -> Work {
        find_anywhere(&self.sketch).map_or_else(|| workload.work(), |sketch| sketch.work(workload, self))
    }

    /// Returns [`Sketch::is_exact`] of the config's sketch; true if the sketch is unknown.
    pub fn is_exact(&self) -> bool {
        find_anywhere(&self.sketch).is_none_or(|sketch| sketch.is_exact())
    }
}

type Tiers = &'static [&'static [&'static dyn Sketch]];

const CPU: Tiers = &[&[&FusedSketch], &[&SeparableSketch], &[&DirectSketch, &MapReduceSketch], &[&WinogradSketch]];
const GPU: Tiers =
    &[&[&FusedMmaSketch, &FusedSketch], &[&WGMMA], &[&MMA], &[&TILED, &IMPLICIT_GEMM, &WinogradSketch], &[&RowsSketch]];

/// Sketches registered by other crates, for any target. They are global to the process, since
/// configs that are read from files, records and other processes name their sketch where no
/// schedule space is at hand.
static OTHERS: RwLock<Vec<&dyn Sketch>> = RwLock::new(Vec::new());

fn external_sketches() -> Vec<&'static dyn Sketch> {
    OTHERS.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Adds a sketch to the spaces that this process creates from now on. Worker processes run the same
/// program and need the sketch, too: register sketches at the start of `main`.
pub fn register_sketch(sketch: &'static dyn Sketch) -> Result<(), AlreadyRegistered> {
    let name = sketch.name();
    let mut others = OTHERS.write().unwrap_or_else(PoisonError::into_inner);
    let own = [CPU, GPU].into_iter().flatten().copied().flatten();
    if own.chain(&*others).any(|known| known.name() == name) {
        return Err(AlreadyRegistered { kind: "a sketch", name });
    }
    others.push(sketch);
    Ok(())
}

fn own(target: &Target) -> Tiers {
    match target {
        Target::Cpu(_) => CPU,
        Target::Gpu(_) => GPU,
    }
}

/// Returns the knob spaces of all sketches that apply to a workload on a target, with their tiers.
/// Registered sketches form the last tier. The default schedule is the cheapest of the first tier
/// that has one.
pub(crate) fn offered(workload: &Workload, target: &Target) -> Vec<Arc<KnobSpace>> {
    let offer = |tier, sketch: &'static dyn Sketch| {
        check_types(workload, sketch).ok()?;
        let knobs = sketch.knobs(workload, target)?;
        Some(Arc::new(KnobSpace::new(sketch, tier, knobs)))
    };
    let mut spaces: Vec<Arc<KnobSpace>> = Vec::new();
    for (tier, sketches) in own(target).iter().enumerate() {
        spaces.extend(sketches.iter().filter_map(|&sketch| offer(tier, sketch)));
        // Sketches of later tiers would only enlarge the search.
        if spaces.iter().any(|space| space.tier == tier && space.sketch.outdoes_later_tiers(workload, target)) {
            break;
        }
    }
    let last = own(target).len();
    spaces.extend(external_sketches().into_iter().filter_map(|sketch| offer(last, sketch)));
    spaces
}

/// Returns the knobs of one sketch for a workload on a target, even if other sketches would replace
/// it there.
pub(crate) fn knobs_of(name: &str, workload: &Workload, target: &Target) -> Option<KnobSpace> {
    let sketch = find(name, target)?;
    Some(KnobSpace::new(sketch, 0, sketch.knobs(workload, target)?))
}

/// Returns the sketch called `name` for a target.
pub(crate) fn find(name: &str, target: &Target) -> Option<&'static dyn Sketch> {
    named(own(target), name).or_else(|| find_other(name))
}

/// Returns the sketch called `name` of any target: sketches of one name use the same algorithm on
/// all targets.
pub(crate) fn find_anywhere(name: &str) -> Option<&'static dyn Sketch> {
    named(CPU, name).or_else(|| named(GPU, name)).or_else(|| find_other(name))
}

fn named(tiers: Tiers, name: &str) -> Option<&'static dyn Sketch> {
    tiers.iter().copied().flatten().copied().find(|sketch| sketch.name() == name)
}

fn find_other(name: &str) -> Option<&'static dyn Sketch> {
    external_sketches().into_iter().find(|sketch| sketch.name() == name)
}

/// Version of the lowering. It grows when some config is lowered to other loop nests or
/// instructions, so that earlier measurements of it no longer apply.
pub const LOWERING_VERSION: u32 = 6;

/// Largest number of elements of an operand on a GPU, where kernels index with 32 bits.
const MAX_GPU_ELEMENTS: usize = i32::MAX as usize;

/// Fails if the target has no kernels for the workload with any config.
pub(crate) fn check_target(workload: &Workload, target: &Target) -> Result<(), LowerError> {
    if let Some((field, dtype)) = workload.unsupported_dtype(target) {
        return Err(LowerError::DType { target: target.key(), field, dtype });
    }
    let spec = workload.spec();
    for tensor in spec.operands().chain(spec.find(Role::Output)).filter(|_| target.gpu().is_some()) {
        let elements = tensor.shape.iter().copied().fold(1, usize::saturating_mul);
        let limit = MAX_GPU_ELEMENTS;
        if elements > limit {
            let operand = tensor.name.to_string();
            return Err(LowerError::TooLarge { target: target.key(), operand, elements, limit });
        }
    }
    Ok(())
}

/// Fails if the workload has integer tensors and the sketch has no kernels for those.
fn check_types(workload: &Workload, sketch: &dyn Sketch) -> Result<(), LowerError> {
    let has_integers = || workload.spec().tensors.iter().any(|tensor| tensor.dtype.is_integer());
    if sketch.has_integers(workload) || !has_integers() {
        Ok(())
    } else {
        Err(LowerError::unfit(sketch.name(), workload))
    }
}

/// Returns the reason why no sketch applies to a workload although the target has its element type.
pub(crate) fn no_sketch(workload: &Workload, target: &Target) -> LowerError {
    let dtype = workload.dtype();
    // The element type is the reason if the workload would have a sketch in f32.
    let as_f32 = workload.with_dtype(DType::F32);
    if dtype != DType::F32 && as_f32.is_ok_and(|as_f32| !offered(&as_f32, target).is_empty()) {
        return LowerError::DType { target: target.key(), field: "dtype", dtype };
    }
    let mut sketches = own(target).iter().copied().flatten();
    let reason = sketches.find_map(|sketch| sketch.refusal(workload, target));
    let operator = workload.operator().kind().name;
    reason.unwrap_or_else(|| LowerError::NoSketch { operator, target: target.key() })
}

/// Reads knob values into a plan of their sketch.
pub(crate) fn plan(workload: &Workload, target: &Target, knobs: &dyn KnobValues) -> Result<Box<dyn Plan>, LowerError> {
    check_target(workload, target)?;
    let sketch = find(knobs.sketch(), target).ok_or_else(|| LowerError::UnknownSketch(knobs.sketch().into()))?;
    check_types(workload, sketch)?;
    sketch.plan(workload, target, knobs)
}

/// Lowers a config to loop nests.
pub fn lower(workload: &Workload, target: &Target, config: &Config) -> Result<Program, LowerError> {
    Ok(lowered(workload, &*plan(workload, target, config)?))
}

/// Lowers a plan to loop nests, and marks in them if constants are uncached in every run.
pub(crate) fn lowered(workload: &Workload, plan: &dyn Plan) -> Program {
    Program { cold: workload.is_cold(), ..plan.lower() }
}
