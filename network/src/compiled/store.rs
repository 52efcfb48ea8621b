//! Kernels and constants that networks share, while one of them uses them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use autotune::{Origin, Tuned};
use autotune_graph::Identity;
use autotune_ir::program::Layout;
use autotune_ir::{DType, Target};
use autotune_runtime::{Cpu, Kernel, Packed};
use autotune_schedules::Config;
use autotune_workloads::Workload;

use crate::choose::PackingStages;
use crate::device::NetworkOps;
use crate::error::CompileError;
use crate::similar::SimilarSchedules;

/// Kernels and constants of networks on one device. Only weak handles are kept, so that everything
/// is freed once no network uses it.
pub(crate) struct NetworkStore<D: NetworkOps = Cpu> {
    /// Source of the networks' devices.
    pub(crate) origin: D::Origin,
    entries: Mutex<Entries<D>>,
}

/// Identity of a kernel.
type KernelKey = (Workload, Config, Target);

struct Entries<D: NetworkOps> {
    kernels: HashMap<KernelKey, (Weak<Kernel<D>>, Arc<PackingStages>)>,
    packed: HashMap<Packing, Weak<Packed<D>>>,
    copies: HashMap<Copied, Weak<D::Memory>>,
    similar: SimilarSchedules,
}

/// Kernel and its packing stages.
pub(super) struct StoredKernel<D: NetworkOps = Cpu> {
    pub(super) kernel: Arc<Kernel<D>>,
    pub(super) packing: Arc<PackingStages>,
}

/// Identity of packed constants: the text of the packing stages, and the constants that they read.
pub(super) type Packing = (Arc<str>, Vec<Option<Identity>>);

/// Identity of an unpacked constant: constant, layout and element type.
pub(super) type Copied = (Identity, Layout, DType);

impl<D: NetworkOps> NetworkStore<D> {
    /// Creates an empty store for networks on devices of one origin.
    pub(crate) fn new(origin: D::Origin) -> Self {
        let (kernels, packed) = (HashMap::new(), HashMap::new());
        let (copies, similar) = (HashMap::new(), SimilarSchedules::default());
        let entries = Entries { kernels, packed, copies, similar };
        Self { origin, entries: Mutex::new(entries) }
    }

    fn entries<T>(&self, of: impl FnOnce(&mut Entries<D>) -> T) -> T {
        of(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// True if no network uses the store.
    pub(super) fn is_empty(&self) -> bool {
        self.entries(|entries| entries.kernels.values().all(|(kernel, _)| kernel.strong_count() == 0))
    }

    /// Returns the kernel of a schedule; loads it if no network uses it.
    pub(super) fn kernel(&self, tuned: &Tuned) -> Result<StoredKernel<D>, CompileError> {
        let key = (tuned.workload().clone(), tuned.config().clone(), tuned.target().clone());
        let known = self.entries(|entries| entries.kernels.get(&key).cloned());
        if let Some((kernel, packing)) = known
            && let Some(kernel) = kernel.upgrade()
        {
            return Ok(StoredKernel { kernel, packing });
        }

        // Loaded without the lock, so that several threads load kernels.
        let kernel = Arc::new(tuned.kernel(&D::to_load(&self.origin)?)?);
        let (text, buffers) = tuned.packing()?;
        let is_transferred = *tuned.origin() == Origin::Transferred;
        let (schedule, buffers) = (tuned.candidate().clone(), buffers.to_vec());
        let packing = Arc::new(PackingStages { schedule, text: Arc::clone(text), buffers, is_transferred });
        self.entries(|entries| {
            if text.is_empty() && !is_transferred {
                entries.similar.keep_plain(tuned.candidate());
            }
            entries.kernels.insert(key, (Arc::downgrade(&kernel), Arc::clone(&packing)))
        });
        Ok(StoredKernel { kernel, packing })
    }

    /// Returns packed constants, if a network uses them.
    pub(super) fn packed(&self, packing: &Packing) -> Option<Arc<Packed<D>>> {
        self.entries(|entries| entries.packed.get(packing)?.upgrade())
    }

    /// Keeps a handle to packed constants.
    pub(super) fn keep_packed(&self, packing: &Packing, packed: &Arc<Packed<D>>) {
        self.entries(|entries| entries.packed.insert(packing.clone(), Arc::downgrade(packed)));
    }

    /// Keeps stages that pack constants.
    pub(super) fn keep_stages(&self, packing: &Packing, stages: &Arc<PackingStages>) {
        if stages.is_transferred {
            return;
        }
        self.entries(|entries| entries.similar.keep_packing(packing.1.iter().flatten(), stages));
    }

    /// Returns an unpacked constant, if a network uses it.
    pub(super) fn copy(&self, of: &Copied) -> Option<Arc<D::Memory>> {
        self.entries(|entries| entries.copies.get(of)?.upgrade())
    }

    /// Keeps a handle to an unpacked constant, and returns the constant.
    pub(super) fn keep_copy(&self, of: Copied, copy: Arc<D::Memory>) -> Arc<D::Memory> {
        self.entries(|entries| entries.copies.insert(of, Arc::downgrade(&copy)));
        copy
    }

    /// Returns schedules of the networks.
    pub(crate) fn similar_schedules(&self) -> SimilarSchedules {
        self.entries(|entries| entries.similar.clone())
    }

    /// Forgets what no network uses any more.
    pub(super) fn forget_unused(&self) {
        self.entries(|entries| {
            entries.kernels.retain(|_, (kernel, _)| kernel.strong_count() > 0);
            entries.packed.retain(|_, packed| packed.strong_count() > 0);
            entries.copies.retain(|_, copy| copy.strong_count() > 0);
            entries.similar.forget_unused();
        });
    }
}
