//! Plans of networks as data, from which another process makes equal networks: without a source of
//! schedules, predictions and measurements.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use autotune::{LookupError, Query, Tuned};
use autotune_graph::{Graph, NodeId, Precision};
use autotune_ir::Target;
use autotune_ir::program::Layout;
use autotune_schedules::{Config, LOWERING_VERSION};
use autotune_workloads::Workload;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::choose::{BlockedRoots, Choose};
use crate::compiled::{Compiled, NetworkStore};
use crate::cut::{Cut, StepWork, ValueId};
use crate::device::NetworkOps;
use crate::error::CompileError;

/// Version that plans; plans of others may have other steps.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Schedules, layouts and precision of a network's plan, on one target and in one version of
/// autotune. It has no code: kernels are made from the schedules, whose loop nests are proven
/// correct first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedNetwork {
    version: String,
    lowering: u32,
    /// Key of the target.
    target: String,
    /// Number that identifies the steps.
    fingerprint: u64,
    precision: String,
    /// Nodes whose steps compute in f32 in any precision.
    exact: BTreeSet<u32>,
    /// Different schedules, to which the other members refer by number.
    configs: Vec<Config>,
    /// Schedule of each step; `None` for steps without a kernel.
    steps: Vec<Option<usize>>,
    /// Schedules of conversions between layouts and types, by their workloads.
    conversions: BTreeMap<String, usize>,
    /// Numbers of channels of a block, of values that are not plain.
    blocked: BTreeMap<u32, usize>,
}

/// Reason that a pinned network's schedules are not used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PinnedMismatch {
    /// The plan is for another target.
    #[error("its schedules are for {found}, not for {own}")]
    Target {
        /// Key of the plan's target.
        found: String,
        /// Key of the present target.
        own: String,
    },
    /// The plan was made by another version.
    #[error("its schedules are of autotune {found}, not {own}")]
    Version {
        /// Version that made the plan, and that of its lowering.
        found: String,
        /// Version of this library, and that of its lowering.
        own: String,
    },
}

impl PinnedNetwork {
    /// Pins the plan of a network.
    pub(crate) fn of<D: NetworkOps>(network: &Compiled<D>, target: &Target) -> Self {
        let mut configs: Vec<Config> = Vec::new();
        let mut numbers: HashMap<Config, usize> = HashMap::new();
        let mut number = |tuned: &Tuned| {
            *numbers.entry(tuned.config().clone()).or_insert_with(|| {
                configs.push(tuned.config().clone());
                configs.len() - 1
            })
        };
        let choice = network.plan.choice();
        let steps = choice.iter().map(|tuned| tuned.as_ref().map(&mut number)).collect();
        let conversions = network.plan.conversions().map(|tuned| (tuned.workload().to_string(), number(tuned)));
        let conversions = conversions.collect();

        let block = |(&ValueId(root), &layout): (&ValueId, &Layout)| match layout {
            Layout::Plain => None,
            Layout::ChannelBlocked(block) => Some((root, block)),
        };
        let graph = &network.graph;
        Self {
            version: VERSION.into(),
            lowering: LOWERING_VERSION,
            target: target.key(),
            fingerprint: network.cut.fingerprint(graph),
            precision: graph.precision().word().into(),
            exact: graph.exact().iter().map(|node| node.0).collect(),
            configs,
            steps,
            conversions,
            blocked: network.plan.blocked.iter().filter_map(block).collect(),
        }
    }

    /// Fails unless the plan was made for a target, by this version of autotune.
    pub fn check(&self, target: &Target) -> Result<(), PinnedMismatch> {
        let named = |version: &str, lowering: u32| format!("{version} with lowering {lowering}");
        let (found, own) = (named(&self.version, self.lowering), named(VERSION, LOWERING_VERSION));
        if found != own {
            return Err(PinnedMismatch::Version { found, own });
        }
        match target.key() {
            own if own == self.target => Ok(()),
            own => Err(PinnedMismatch::Target { found: self.target.clone(), own }),
        }
    }

    /// Returns a rewritten graph in the precision of the plan; `None` if the plan is of another
    /// graph.
    pub(crate) fn in_precision(&self, graph: &Graph) -> Option<Graph> {
        let precision: Precision = self.precision.parse().ok()?;
        let is_known = |&node: &u32| (node as usize) < graph.nodes().len();
        let exact = self.exact.iter().map(|&node| NodeId(node)).collect();
        self.exact.iter().all(is_known).then(|| graph.clone().with_precision(precision).with_exact(exact))
    }

    /// Returns the schedules for the steps of a network; `None` if one of them is not valid.
    fn schedules<'a>(&self, cut: &Cut, target: &'a Target) -> Result<Option<PinnedSchedules<'a>>, CompileError> {
        if self.steps.len() != cut.steps.len() {
            return Ok(None);
        }
        let mut wanted: Vec<(Workload, usize)> = Vec::new();
        for (step, config) in cut.steps.iter().zip(&self.steps) {
            match (&step.work, config) {
                (StepWork::Kernel(workload), Some(config)) => wanted.push((workload.clone(), *config)),
                (StepWork::Kernel(_), None) | (_, Some(_)) => return Ok(None),
                (_, None) => {}
            }
        }
        for (text, config) in &self.conversions {
            let Ok(workload) = text.parse() else { return Ok(None) };
            wanted.push((workload, *config));
        }

        // Equal workloads with equal schedules are made once.
        let different: BTreeSet<&(Workload, usize)> = wanted.iter().collect();
        let made = different.into_par_iter().map(|(workload, number)| {
            let config = self.configs.get(*number);
            let made = config.map(|config| Query::new(workload, target).given(config)).transpose()?;
            Ok(((workload.clone(), *number), made.flatten()))
        });
        let made: HashMap<(Workload, usize), Option<Tuned>> = made.collect::<Result<_, LookupError>>()?;
        let all = wanted.iter().map(|wanted| made[wanted].clone()).collect::<Option<Vec<Tuned>>>();

        let block = |(&root, &block): (&u32, &usize)| (ValueId(root), Layout::ChannelBlocked(block));
        let blocked = self.blocked.iter().filter(|(_, block)| **block > 0).map(block).collect();
        Ok(all.map(|all| {
            let mut all = all.into_iter();
            let steps = self.steps.iter().map(|config| config.and_then(|_| all.next())).collect();
            let conversions = all.map(|tuned| (tuned.workload().clone(), tuned)).collect();
            PinnedSchedules { target, steps, conversions, blocked }
        }))
    }
}

/// Compiles a rewritten graph with the plan that was pinned for it; `None` if there is none that
/// is valid on the target.
pub(crate) fn pinned_in<D: NetworkOps>(
    store: &Arc<NetworkStore<D>>,
    graph: &Graph,
    pinned: &[PinnedNetwork],
    target: &Target,
) -> Result<Option<Arc<Compiled<D>>>, CompileError> {
    let valid: Vec<&PinnedNetwork> = pinned.iter().filter(|pinned| pinned.check(target).is_ok()).collect();
    if valid.is_empty() {
        return Ok(None);
    }
    let cut = Cut::for_target(graph, target);
    let fingerprint = cut.fingerprint(graph);
    for pinned in valid.into_iter().filter(|pinned| pinned.fingerprint == fingerprint) {
        if let Some(mut choose) = pinned.schedules(&cut, target)? {
            return Compiled::with(graph, cut, &mut choose, Arc::clone(store)).map(Some);
        }
    }
    Ok(None)
}

/// Schedules of a pinned network.
struct PinnedSchedules<'a> {
    target: &'a Target,
    steps: Vec<Option<Tuned>>,
    conversions: HashMap<Workload, Tuned>,
    blocked: BlockedRoots,
}

impl Choose for PinnedSchedules<'_> {
    fn of_step(&mut self, step: usize, workload: &Workload) -> Result<Arc<[Tuned]>, CompileError> {
        match self.steps.get(step) {
            Some(Some(tuned)) => Ok(Arc::new([tuned.clone()])),
            _ => Ok(Arc::new([Query::new(workload, self.target).best()?])),
        }
    }

    fn target(&self) -> &Target {
        self.target
    }

    fn of_conversion(&mut self, workload: &Workload) -> Result<Tuned, CompileError> {
        match self.conversions.get(workload) {
            Some(tuned) => Ok(tuned.clone()),
            None => Ok(Query::new(workload, self.target).best()?),
        }
    }

    /// Returns no time: layouts are not chosen by times.
    fn conversion_secs(&mut self, _: &Workload) -> Result<Option<f64>, CompileError> {
        Ok(None)
    }

    fn blocked_roots(&self) -> Option<&BlockedRoots> {
        Some(&self.blocked)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
