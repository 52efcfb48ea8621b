//! The knobs that a schedule is known from, when it is carried over to another workload.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use autotune_ir::target::Target;
use autotune_workloads::Workload;

use crate::knob_space::KnobSpace;
use crate::registry;

/// Knob spaces that are kept; the next one takes the place of all.
const KEPT: usize = 512;

/// Those that were asked for in this process, by spaces that do not know one another: portfolios and near workloads are asked for again and again, and making one takes longer than
/// carrying a schedule over.
static MADE: LazyLock<RwLock<HashMap<Origin, Option<Arc<KnobSpace>>>>> = LazyLock::new(RwLock::default);

#[derive(PartialEq, Eq, Hash)]
struct Origin {
    workload: Workload,
    target: Arc<Target>,
    sketch: String,
}

/// The knobs that a sketch has for a workload on a target, if it is for both.
pub(super) fn knobs_of(sketch: &str, workload: &Workload, target: &Arc<Target>) -> Option<Arc<KnobSpace>> {
    let origin = Origin { workload: workload.clone(), target: Arc::clone(target), sketch: sketch.to_string() };
    if let Some(known) = MADE.read().unwrap_or_else(PoisonError::into_inner).get(&origin) {
        return known.clone();
    }

    let made = registry::knobs_of(sketch, workload, target).map(Arc::new);
    let mut kept = MADE.write().unwrap_or_else(PoisonError::into_inner);
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(origin, made.clone());
    made
}
