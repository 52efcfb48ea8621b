//! Permission to use tile registers.

use std::ffi::{c_char, c_long};
use std::process::Command;

use autotune_ir::KernelPlan;
use autotune_ir::program::{Role, When};
use autotune_runtime::{Cpu, DeviceError, Kernel, KernelError, LoadError, Runner, View, ViewMut, contract};

/// Variable that tells this test program to be the process that is refused.
const REFUSED: &str = "AUTOTUNE_TEST_REFUSED_TILES";

/// Returns a plan that copies the input to the output, one element per task.
fn plan(uses_tiles: bool) -> KernelPlan {
    let mut plan = contract::plan(contract::LEN, None);
    plan.buffers.retain(|buffer| matches!(buffer.role, Role::Operand(0) | Role::Output));
    plan.stages.retain(|stage| stage.when == When::EveryRun);
    plan.stages.truncate(1);
    KernelPlan { uses_tiles, ..plan }
}

unsafe extern "C" fn copy(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    for task in begin as usize..end as usize {
        // SAFETY: the runtime passes the buffers of the plan.
        unsafe { *(*buffers.add(1)).add(task) = *(*buffers).add(task) };
    }
}

fn load(uses_tiles: bool) -> Result<Kernel, LoadError> {
    // SAFETY: the function implements the plan.
    unsafe { Kernel::of_functions(vec![copy], plan(uses_tiles)) }
}

#[test]
fn a_refusal_concerns_only_kernels_with_tiles() {
    if std::env::var_os(REFUSED).is_some() {
        give_too_small_a_signal_stack();
        let refusal = load(true).err().unwrap();
        assert!(matches!(refusal, LoadError::Tiles(_)), "{refusal}");
        assert!(DeviceError::from(refusal).to_string().contains("cpu:avx2"));
        assert_eq!(KernelError::from(DeviceError::from(load(true).err().unwrap())).to_string().lines().count(), 1);
        load(false).unwrap();
        return;
    }

    // The permission is for a whole process, and other tests may have it.
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--exact", "tiles::a_refusal_concerns_only_kernels_with_tiles"]).env(REFUSED, "1");
    let ended = process.output().unwrap();
    let output = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && output.contains("1 passed"), "{output}");
}

/// Gives this thread a signal stack for all registers but tiles. Where there are none, a request is
/// refused anyway.
fn give_too_small_a_signal_stack() {
    let memory = Box::leak(vec![0u8; 8192].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory is never freed, and no other code uses it.
    unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) };
}

#[test]
#[cfg(target_arch = "x86_64")]
fn all_threads_of_a_kernel_may_use_tiles() {
    let has_tiles = autotune_ir::CpuTarget::detect(None).unwrap().features.iter().any(|feature| feature == "amx");
    if !has_tiles {
        return eprintln!("skipped: no tile registers");
    }

    unsafe extern "C" fn by_tiles(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
        // Palette 1, and one row of a word in the first tile.
        let mut config = [0u8; 64];
        (config[0], config[16], config[48]) = (1, 4, 1);
        for task in begin as usize..end as usize {
            // SAFETY: the runtime passes the buffers of the plan, of which one element is copied,
            // and the tile registers are released.
            unsafe {
                std::arch::asm!(
                    "ldtilecfg [{config}]",
                    "tileloadd tmm0, [{from} + {stride}]",
                    "tilestored [{to} + {stride}], tmm0",
                    "tilerelease",
                    config = in(reg) &raw const config,
                    from = in(reg) (*buffers).add(task),
                    to = in(reg) (*buffers.add(1)).add(task),
                    stride = in(reg) 0usize,
                    out("tmm0") _,
                    options(nostack),
                );
            }
        }
    }
    // SAFETY: the function implements the plan.
    let kernel = unsafe { Kernel::of_functions(vec![by_tiles], plan(true)) }.unwrap();
    let mut runner = Runner::new(kernel, Cpu::new(3)).unwrap();
    let input: Vec<f32> = (0..contract::LEN).map(|i| i as f32).collect();
    let mut output = vec![0.0; contract::LEN];
    let shape = &plan(true).buffers[0].shape.clone()[..];
    runner.run(&[View::new(&input, shape)], &mut [ViewMut::new(&mut output, shape)]).unwrap();
    assert_eq!(output, input);
}
