//! A kernel with everything that one caller needs to run it.

use std::sync::Arc;

use autotune_ir::plan::Binding;

use crate::cpu::Cpu;
use crate::device::Device;
use crate::error::KernelError;
use crate::kernel::{Kernel, Packed, Scratch};
use crate::view::{View, ViewMut};

/// A kernel with a device and scratch, for simple use in one thread.
///
/// ```no_run
/// # use autotune_runtime::{Cpu, Kernel, KernelError, Runner, View, ViewMut};
/// # fn run(cpu: Cpu, kernel: Kernel, x: &[f32], w: &[f32], y: &mut [f32]) -> Result<(), KernelError> {
/// let mut runner = Runner::new(kernel, cpu)?;
/// let operands = [View::new(x, &[1, 4, 8]), View::new(w, &[1, 8, 16])];
/// runner.pack(&operands[1..])?; // once; without it every run packs
/// runner.run(&operands, &mut [ViewMut::new(y, &[1, 4, 16])])
/// # }
/// ```
pub struct Runner<D: Device = Cpu> {
    kernel: Arc<Kernel<D>>,
    device: D,
    scratch: Scratch<D>,
    packed: Option<Arc<Packed<D>>>,
}

impl<D: Device> Runner<D> {
    /// Creates a runner of a kernel that was loaded on this device, and allocates scratch.
    pub fn new(kernel: impl Into<Arc<Kernel<D>>>, device: D) -> Result<Self, KernelError> {
        let kernel = kernel.into();
        let scratch = kernel.scratch(&device)?;
        Ok(Self { kernel, device, scratch, packed: None })
    }

    /// Returns the kernel, which other runners can use too.
    pub fn kernel(&self) -> &Arc<Kernel<D>> {
        &self.kernel
    }

    /// Returns the device that runs the kernel.
    pub fn device(&self) -> &D {
        &self.device
    }

    /// Packs the kernel's constants for all following runs, which then no longer read the memory of
    /// constants that are packed entirely. The result can be [shared](Runner::share) with other
    /// runners.
    pub fn pack(&mut self, constants: &[View<'_, D>]) -> Result<Arc<Packed<D>>, KernelError> {
        let packed = self.kernel.pack(&self.device, constants)?;
        Ok(Arc::clone(self.packed.insert(packed)))
    }

    /// Uses constants that another runner of the same kernel packed in all following runs.
    pub fn share(&mut self, packed: Arc<Packed<D>>) {
        self.packed = Some(packed);
    }

    /// Runs the kernel with data and constants in the order of its plan. Packs the constants in
    /// every run unless they were packed before.
    pub fn run(&mut self, operands: &[View<'_, D>], outputs: &mut [ViewMut<'_, D>]) -> Result<(), KernelError> {
        let packed = match &self.packed {
            Some(packed) => Arc::clone(packed),
            None => self.pack_among(operands)?,
        };
        self.kernel.run(&self.device, &packed, &mut self.scratch, operands, outputs)?;
        Ok(())
    }

    /// Packs the constants among the operands of a run.
    fn pack_among(&self, operands: &[View<'_, D>]) -> Result<Arc<Packed<D>>, KernelError> {
        let bindings = self.kernel.plan().buffers.iter().map(|buffer| buffer.binding);
        let are_constant = bindings.filter_map(|binding| match binding {
            Binding::Data => Some(false),
            Binding::Constant { .. } => Some(true),
            _ => None,
        });
        let mut constants = operands.iter().zip(are_constant).filter(|(_, is)| *is).map(|(view, _)| view);
        self.kernel.pack_of(&self.device, &mut constants)
    }
}
