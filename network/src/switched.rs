//! Workspaces that change between networks, with the same threads and memory.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use autotune_runtime::{Cpu, Waiting};

use crate::compiled::{BoundNetwork, Compiled, Workspace};
use crate::device::NetworkOps;
use crate::error::CompileError;

/// Maximum number of other networks that stay bound to a workspace's memory. Binding one again
/// takes microseconds.
const MOST_BOUND: usize = 1024;

/// A workspace for one run at a time of several networks, which keys distinguish.
pub(crate) struct SwitchedWorkspace<K, D: NetworkOps = Cpu> {
    waiting: Waiting,
    /// Workspace with the network that ran last.
    current: Option<(K, Workspace<D>)>,
    /// Other networks, bound to the same memory.
    others: HashMap<K, BoundNetwork<D>>,
}

impl<K: Eq + Hash, D: NetworkOps> SwitchedWorkspace<K, D> {
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

    /// Returns the workspace with the network of a key. `find` returns the network if another ran
    /// last. Other networks stay bound while `is_kept` is true for their keys.
    pub(crate) fn of<Q, E>(
        &mut self,
        key: &Q,
        find: impl FnOnce() -> Result<Arc<Compiled<D>>, E>,
        is_kept: impl FnMut(&K) -> bool,
    ) -> Result<&mut Workspace<D>, E>
    where
        K: Borrow<Q>,
        Q: ToOwned<Owned = K> + Eq + Hash + ?Sized,
        E: From<CompileError>,
    {
        let current = match self.current.take() {
            Some((current, workspace)) if current.borrow() == key => (current, workspace),
            previous => match find() {
                Ok(network) => (key.to_owned(), self.changed(previous, key, &network, is_kept)?),
                Err(error) => {
                    self.current = previous;
                    return Err(error);
                }
            },
        };
        Ok(&mut self.current.insert(current).1)
    }

    /// Changes the network of a workspace; the new one has more memory if that is necessary.
    fn changed<Q: Eq + Hash + ?Sized>(
        &mut self,
        previous: Option<(K, Workspace<D>)>,
        key: &Q,
        network: &Arc<Compiled<D>>,
        mut is_kept: impl FnMut(&K) -> bool,
    ) -> Result<Workspace<D>, CompileError>
    where
        K: Borrow<Q>,
    {
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
