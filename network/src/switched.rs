//! Workspaces that change between networks, with the same threads and memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use autotune_runtime::{Cpu, Waiting};

use crate::compiled::{BoundNetwork, Compiled, Workspace};
use crate::device::NetworkOps;
use crate::error::CompileError;

/// Maximum number of other networks that stay bound to a workspace's memory. Binding one again
/// takes microseconds.
const MOST_BOUND: usize = 128;

/// A workspace for one run at a time of several networks, which keys distinguish.
pub(crate) struct SwitchedWorkspace<K, D: NetworkOps = Cpu> {
    waiting: Waiting,
    /// Workspace with the network that ran last.
    current: Option<(K, Workspace<D>)>,
    /// Other networks, bound to the same memory.
    others: HashMap<K, BoundNetwork<D>>,
}

impl<K: Clone + Eq + Hash, D: NetworkOps> SwitchedWorkspace<K, D> {
    /// Creates a workspace, whose memory is allocated when a network runs.
    pub(crate) fn new(waiting: Waiting) -> Self {
        Self { waiting, current: None, others: HashMap::new() }
    }

    /// Changes the behaviour of waiting threads, as [`Workspace::set_waiting`].
    pub(crate) fn set_waiting(&mut self, waiting: Waiting) {
        self.waiting = waiting;
        if let Some((_, workspace)) = &mut self.current {
            workspace.set_waiting(waiting);
        }
    }

    /// Returns the workspace if it has the network of a key.
    pub(crate) fn current<Q: PartialEq + ?Sized>(&mut self, key: &Q) -> Option<&mut Workspace<D>>
    where
        K: std::borrow::Borrow<Q>,
    {
        self.current.as_mut().filter(|(current, _)| current.borrow() == key).map(|(_, workspace)| workspace)
    }

    /// Returns the workspace with a network. Other networks stay bound while `is_kept` is true for
    /// their keys.
    pub(crate) fn of(
        &mut self,
        key: &K,
        network: &Arc<Compiled<D>>,
        is_kept: impl Fn(&K) -> bool,
    ) -> Result<&mut Workspace<D>, CompileError> {
        let current = match self.current.take() {
            Some((current, workspace)) if current == *key && Arc::ptr_eq(workspace.network(), network) => {
                (current, workspace)
            }
            previous => (key.clone(), self.changed(previous, key, network, is_kept)?),
        };
        Ok(&mut self.current.insert(current).1)
    }

    /// Changes the network of a workspace; the new one has more memory if that is necessary.
    fn changed(
        &mut self,
        previous: Option<(K, Workspace<D>)>,
        key: &K,
        network: &Arc<Compiled<D>>,
        is_kept: impl Fn(&K) -> bool,
    ) -> Result<Workspace<D>, CompileError> {
        // Bound networks refer to the memory of this workspace, so they go where it does not stay.
        let mut others = std::mem::take(&mut self.others);
        let previous = previous.filter(|(_, workspace)| workspace.bytes() >= network.workspace_bytes());
        let Some((previous, mut workspace)) = previous else {
            drop(others);
            let mut workspace = network.workspace()?;
            workspace.set_waiting(self.waiting);
            return Ok(workspace);
        };

        let known = others.remove(key).filter(|bound| bound.is_of(network));
        let bound = match known {
            Some(bound) => bound,
            None => workspace.bind(network)?,
        };
        others.insert(previous, workspace.replace(bound));
        others.retain(|key, _| is_kept(key));
        if others.len() > MOST_BOUND {
            others.clear();
        }
        self.others = others;
        Ok(workspace)
    }
}
