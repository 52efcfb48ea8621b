//! Runs of models whose shapes depend on data.

use std::collections::HashMap;
use std::mem::forget;
use std::process::id as process_id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use autotune_graph::onnx::{DeclaredInput, RunTensor};
use autotune_graph::{OpError, Tensor};

use crate::compiled::Compiled;
use crate::family::{FamilyError, InputShapes};
use crate::phased::{PhasedNetwork, PhasedWorkspace};
use crate::session::{IdleWorkspaces, Session, SessionError, with_threads};

/// A model in phases, with workspaces for its runs.
pub(crate) struct PhasedRuns {
    network: PhasedNetwork,
    /// True once an import has shown that shapes depend on data.
    are_needed: AtomicBool,
    idle: IdleWorkspaces<PhasedWorkspace>,
}

impl PhasedRuns {
    pub(crate) fn of(network: PhasedNetwork) -> Self {
        Self { network, are_needed: AtomicBool::new(false), idle: IdleWorkspaces::new() }
    }

    /// True if the model runs in phases only.
    pub(crate) fn are_needed(&self) -> bool {
        self.are_needed.load(Ordering::Relaxed)
    }
}

impl Session {
    /// True if an error means that the model runs in phases, from now on.
    pub(crate) fn is_phased_after(&self, error: &FamilyError) -> bool {
        let Some(phased) = self.phased.as_ref().filter(|_| error.needs_phases()) else { return false };
        phased.are_needed.store(true, Ordering::Relaxed);
        true
    }

    /// Runs the model in phases.
    pub(crate) fn run_in_phases(&self, shapes: &[Vec<usize>], inputs: &[Tensor]) -> Result<Vec<Tensor>, SessionError> {
        let Some(phased) = &self.phased else { return Err(SessionError::InPhases) };
        let named = self.named(shapes, inputs)?;
        let process = process_id();
        let workspace = phased.idle.take();
        let mut workspace = workspace.unwrap_or_else(|| PhasedNetwork::workspace(self.waiting));
        let results = with_threads(|| phased.network.run(&mut workspace, named));
        match process == process_id() {
            true => phased.idle.put(workspace),
            false => forget(workspace),
        }
        Ok(tensors(results??))
    }

    /// Runs a model whose shapes depend on data by the interpreter alone, in the precision of the
    /// file. This is the reference for [`run`](Self::run), and slow.
    pub fn run_reference(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>, SessionError> {
        let Some(phased) = self.phased.as_ref().filter(|phased| phased.are_needed()) else {
            return Err(SessionError::NotPhased);
        };
        let shapes: InputShapes = inputs.iter().map(|input| input.shape().to_vec()).collect();
        let named = self.named(&shapes, inputs)?;
        let mut workspace = PhasedNetwork::workspace(self.waiting);
        Ok(tensors(phased.network.reference()?.run(&mut workspace, named)?))
    }

    /// Returns the networks of all phases that have run, also in bodies of loops and branches, of a
    /// model whose shapes depend on data.
    pub fn phases(&self) -> Vec<Arc<Compiled>> {
        self.phased.iter().flat_map(|phased| phased.network.compiled()).collect()
    }

    /// Returns tensors by the names of their inputs, in the types of the inputs.
    fn named(&self, shapes: &[Vec<usize>], inputs: &[Tensor]) -> Result<HashMap<String, RunTensor>, SessionError> {
        self.family.check(shapes)?;
        let named = self.inputs.iter().zip(inputs).map(|(input, tensor)| {
            let tensor =
                converted(input, tensor).map_err(|source| SessionError::Input { name: input.name.clone(), source })?;
            Ok((input.name.clone(), RunTensor { tensor: Arc::new(tensor), byte_type: input.byte_type() }))
        });
        named.collect()
    }
}

fn tensors(results: Vec<RunTensor>) -> Vec<Tensor> {
    results.into_iter().map(|result| Arc::unwrap_or_clone(result.tensor)).collect()
}

/// Returns a tensor in the type of an input.
fn converted(input: &DeclaredInput, tensor: &Tensor) -> Result<Tensor, OpError> {
    match tensor.dtype() == input.dtype {
        true => Ok(tensor.clone()),
        false => Tensor::of_numbers(tensor.shape(), input.dtype, &tensor.to_numbers()),
    }
}
