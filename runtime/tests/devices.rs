//! Contract tests of this machine's devices, and tests specific to each.

use std::ffi::{c_char, c_long};

use autotune_runtime::team::StageFn;
use autotune_runtime::{
    Cpu, Device, HostMemory, Kernel, KernelError, MemoryExtent, Runner, View, ViewMismatch, ViewMut, contract,
};

/// Number of elements per task.
const PER_TASK: usize = 8;

unsafe fn elements<'a>(buffers: *const *mut f32, buffer: usize, task: c_long) -> &'a mut [f32] {
    // SAFETY: the contract's buffers have that many elements, and tasks are disjoint.
    unsafe { std::slice::from_raw_parts_mut((*buffers.add(buffer)).add(task as usize * PER_TASK), PER_TASK) }
}

unsafe extern "C" fn pack(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    for task in begin..end {
        // SAFETY: the runtime passes the buffers of the plan.
        let (weights, packed) = unsafe { (elements(buffers, 1, task), elements(buffers, 3, task)) };
        packed.iter_mut().zip(weights).for_each(|(packed, weight)| *packed = 2.0 * *weight);
    }
}

unsafe extern "C" fn add(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    for task in begin..end {
        // SAFETY: as above.
        let [input, packed, sums] = [0, 3, 4].map(|buffer| unsafe { elements(buffers, buffer, task) });
        sums.iter_mut().zip(input.iter().zip(packed)).for_each(|(sum, (x, p))| *sum = *x + *p);
    }
}

unsafe extern "C" fn square(buffers: *const *mut f32, _: *mut c_char, begin: c_long, end: c_long) {
    for task in begin..end {
        // SAFETY: as above.
        let [output, sums] = [2, 4].map(|buffer| unsafe { elements(buffers, buffer, task) });
        output.iter_mut().zip(sums).for_each(|(output, sum)| *output = *sum * *sum);
    }
}

fn on_cpu() -> Kernel {
    let functions: Vec<StageFn> = vec![pack, add, square];
    // SAFETY: the functions implement the plan.
    unsafe { Kernel::of_functions(functions, contract::plan(contract::LEN / PER_TASK, None)) }.unwrap()
}

/// Tests memory large enough that all threads touch its pages.
#[test]
fn large_memory_is_all_zeros_whoever_touched_it() {
    for threads in [1, 3] {
        for bytes in [32 << 20, (33 << 20) + 4] {
            let mut memory = Cpu::new(threads).allocate(bytes).unwrap();
            let words: &mut [u32] = memory.elements_mut();
            assert!(size_of_val(words) >= bytes && words.iter().all(|&word| word == 0));
            words.fill(7);
        }
    }
}

#[test]
fn cpus_keep_the_contract() {
    for cpu in [Cpu::new(1), Cpu::new(3), Cpu::pinned(2)] {
        contract::memory(&cpu);
        let (kernel, other) = (on_cpu(), on_cpu());
        contract::kernels(&cpu, &kernel);
        contract::other_kernels(&cpu, [&kernel, &other]);
    }
}

#[test]
fn threads_share_a_kernel_and_what_it_packed() {
    let kernel = on_cpu();
    contract::threads(|| Cpu::new(1), &kernel);
    contract::threads(|| Cpu::new(2), &kernel);
}

#[test]
fn a_runner_packs_when_it_was_not_told_what() {
    let mut runner = Runner::new(on_cpu(), Cpu::new(2)).unwrap();
    let (shape, x, mut w, mut y) = ([4, 24], [1.0; 96], [1.0; 96], [0.0; 96]);
    let mut run = |runner: &mut Runner, w: &[f32; 96]| {
        let operands = [View::new(&x, &shape), View::new(w, &shape)];
        runner.run(&operands, &mut [ViewMut::new(&mut y, &shape)]).unwrap();
        y[95]
    };
    assert_eq!(run(&mut runner, &w), 9.0);
    w.fill(2.0);
    assert_eq!(run(&mut runner, &w), 25.0);
    let packed = runner.pack(&[View::new(&w, &shape)]).unwrap();
    w.fill(3.0);
    assert_eq!(run(&mut runner, &w), 25.0, "what was packed is what counts");

    let mut other = Runner::new(runner.kernel().clone(), Cpu::new(1)).unwrap();
    other.share(packed);
    assert_eq!(run(&mut other, &w), 25.0);
}

#[test]
fn slices_of_another_length_or_type_are_refused() {
    let cpu = Cpu::new(1);
    let kernel = on_cpu();
    let (shape, x, mut y) = ([4, 24], [1.0; 96], [0.0; 96]);
    let packed = kernel.pack(&cpu, &[View::new(&x, &shape)]).unwrap();
    let mut scratch = kernel.scratch(&cpu).unwrap();
    let mut misfit = |input: View<'_>| {
        let mut outputs = [ViewMut::new(&mut y, &shape)];
        match kernel.run(&cpu, &packed, &mut scratch, &[input, View::packed()], &mut outputs) {
            Err(KernelError::Operand { name, misfit }) => (name, misfit),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(misfit(View::new(&x[1..], &shape)), ("input".into(), ViewMismatch::Size { found: 380, wanted: 384 }));
    let bits = [0u16; 96];
    let half = View::of_bits(&bits, autotune_ir::DType::F16, &shape);
    assert!(matches!(misfit(half).1, ViewMismatch::DType { .. }));
    let run = kernel.run(&cpu, &packed, &mut scratch, &[View::new(&x, &shape), View::packed()], &mut []);
    assert!(matches!(run, Err(KernelError::Count { what: "outputs", found: 0, wanted: 1, .. })));
}

#[test]
fn scratch_for_fewer_threads_than_run_is_an_error() {
    let mut plan = contract::plan(contract::LEN / PER_TASK, None);
    plan.local_bytes = 100;
    // SAFETY: the functions implement the plan.
    let kernel = unsafe { Kernel::of_functions(vec![pack, add, square], plan) }.unwrap();
    let (one, three) = (Cpu::new(1), Cpu::new(3));
    assert_eq!(kernel.scratch_bytes(&three).unwrap() - kernel.scratch_bytes(&one).unwrap(), 2 * 512);
    let (shape, x, mut y) = ([4, 24], [1.0; 96], [0.0; 96]);
    let packed = kernel.pack(&one, &[View::new(&x, &shape)]).unwrap();
    let mut scratch = kernel.scratch_in(&one, HostMemory::new(1 << 16).unwrap()).unwrap();
    let mut run = |cpu: &Cpu| {
        let operands = [View::new(&x, &shape), View::packed()];
        kernel.run(cpu, &packed, &mut scratch, &operands, &mut [ViewMut::new(&mut y, &shape)])
    };
    run(&one).unwrap();
    assert!(matches!(run(&three), Err(KernelError::Device(_))));
}

#[test]
fn memory_of_the_caller_is_used_where_it_is() {
    let cpu = Cpu::new(1);
    let mut arena = vec![0.0f32; 4096];
    // SAFETY: the arena outlives its wrappers, and nothing else uses it meanwhile.
    let memory = unsafe { HostMemory::wrap(std::ptr::NonNull::from(&mut arena[1..]).cast(), 4 * 4095) };
    let MemoryExtent { bytes, alignment } = cpu.extent(&memory);
    assert!(bytes == 4 * 4095 && alignment >= 4);
    // SAFETY: as above.
    let mut part = unsafe { cpu.part(&memory, 400..800) }.unwrap();
    cpu.fill(&mut part, 0..100, 1f32.to_bits()).unwrap();
    drop((memory, part));
    assert_eq!(arena.iter().sum::<f32>(), 100.0);
    assert!(arena[100] == 0.0 && arena[101] == 1.0 && arena[200] == 1.0 && arena[201] == 0.0);
}
