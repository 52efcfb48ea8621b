//! Generated CUDA programs, built by [`super::shim`] and run on the CPU.

use std::ffi::c_void;

use autotune_codegen as codegen;
use autotune_ir::layout::from_layout;
use autotune_ir::plan::TensorBox;
use autotune_ir::program::{Role, When};
use autotune_ir::{GpuApi, KernelPlan, Program};
use autotune_workloads::Operands;
use ndarray::ArrayD;

use super::contents;
use super::shim::{Map, Shim, Text};

/// Programs that are built as one library.
pub struct OnCpu {
    shim: Shim,
    plans: Vec<(KernelPlan, Program)>,
}

/// Pattern after the end of each buffer, which kernels must not change.
const GUARD: u32 = 0xffc0_dead;

impl OnCpu {
    /// Builds the programs' kernels after `edit` has changed each text. Fails with the reason if
    /// there is no compiler.
    pub fn build(programs: Vec<Program>, edit: impl Fn(usize, String) -> String) -> Result<Self, String> {
        let plans: Vec<_> = programs.into_iter().map(|program| (KernelPlan::of(&program), program)).collect();
        let texts = plans.iter().enumerate().map(|(number, (plan, program))| Text {
            source: edit(number, codegen::gpu::generate(program, GpuApi::Cuda { sm: 90 })),
            symbols: plan.stages.iter().map(|stage| stage.symbol.clone()).collect(),
            shared_bytes: plan.stages.iter().filter_map(|s| s.launch).map(|l| l.shared_bytes).max().unwrap_or(0),
        });
        let shim = Shim::build(&texts.collect::<Vec<_>>())?;
        Ok(Self { shim, plans })
    }

    /// Returns the output of program `number`, or the error. The warps run in order, or with the
    /// last one first.
    pub fn run(&self, number: usize, operands: &Operands, backwards: bool) -> Result<ArrayD<f32>, String> {
        let (plan, program) = &self.plans[number];
        let global: Vec<_> = plan.buffers.iter().filter(|b| b.is_global()).collect();
        // The alignment is that of device memory.
        let mut memory: Vec<Vec<[u32; 4]>> = Vec::new();
        for buffer in &global {
            let mut words = buffer.dtype.words(&contents(buffer, operands));
            words.push(GUARD);
            memory.push(words.chunks(4).map(|c| std::array::from_fn(|i| c.get(i).copied().unwrap_or(GUARD))).collect());
        }
        let pointers: Vec<*mut c_void> = memory.iter_mut().map(|m| m.as_mut_ptr().cast()).collect();

        for when in [When::AheadOfTime, When::EveryRun] {
            for stage in plan.stages.iter().filter(|s| s.when == when) {
                let launch = stage.launch.ok_or("a stage without a launch")?;
                let map = |one: &TensorBox| {
                    let number = plan.buffers[..one.buffer].iter().filter(|b| b.is_global()).count();
                    let &[.., rows, columns] = &plan.buffers[one.buffer].shape[..] else {
                        panic!("a box of no matrix")
                    };
                    Map::new(pointers[number], [rows, columns], one.shape)
                };
                let mut maps: Vec<Map> = stage.boxes.iter().map(map).collect();
                let mut arguments = pointers.clone();
                arguments.extend(maps.iter_mut().map(|map| std::ptr::from_mut(map).cast::<c_void>()));
                let grid = [launch.blocks, launch.threads];
                // SAFETY: the arguments are the plan's buffers and tensor maps.
                unsafe { self.shim.run((number, &stage.symbol), &mut arguments, grid, backwards) }?;
            }
        }

        let mut output = None;
        for (buffer, memory) in global.iter().zip(&memory) {
            let len: usize = buffer.shape.iter().product();
            let words: Vec<u32> = memory.iter().flatten().copied().collect();
            if words[(len * buffer.dtype.bytes()).div_ceil(4)] != GUARD {
                return Err(format!("memory behind the {:?} buffer changed", buffer.role));
            }
            if buffer.role == Role::Output {
                output = Some((buffer.dtype.values(&words, len), buffer.layout));
            }
        }
        let (values, layout) = output.ok_or("no output")?;
        from_layout(&values, &program.spec.find(Role::Output).unwrap().shape, layout).map_err(|e| e.to_string())
    }
}
