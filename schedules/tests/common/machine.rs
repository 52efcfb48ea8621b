//! Runs assembled kernels in this process.

use std::{ptr, slice};

use autotune_ir::MachineCode;
use autotune_ir::layout::from_layout;
use autotune_ir::program::{Role, When};
use autotune_ir::{Isa, KernelPlan, Program, Target};
use autotune_workloads::Operands;
use ndarray::ArrayD;

pub type Entry = unsafe extern "C" fn(*const *mut f32, *mut u8, i64, i64);

/// True if this machine supports the instruction set; prints a notice if not.
pub fn runs(isa: Isa) -> bool {
    let runs = match isa {
        Isa::Avx512 => is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl"),
        Isa::Avx2 => {
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c")
        }
        _ => false,
    };
    if !runs {
        eprintln!("this machine does not run {isa}: assembled only");
    }
    runs
}

/// True if this machine has a feature of [`autotune_ir::CpuTarget`]; prints a notice if not.
pub fn has(feature: &str) -> bool {
    let has = Target::detect("cpu", Some(1)).unwrap().cpu().unwrap().features.iter().any(|own| own == feature);
    if !has {
        eprintln!("this machine has no {feature}: assembled only");
    }
    if has && feature == "amx" {
        // SAFETY: the call asks Linux for tile registers (XTILEDATA) and touches no memory.
        let status = unsafe { libc::syscall(libc::SYS_arch_prctl, 0x1023, 18) };
        assert_eq!(status, 0, "Linux denies tile registers");
    }
    has
}

/// Machine code in executable memory.
pub struct Executable {
    base: *mut libc::c_void,
    len: usize,
    entries: Vec<usize>,
}

impl Executable {
    pub fn new(code: &MachineCode) -> Self {
        let len = code.bytes.len();
        // SAFETY: this is a fresh anonymous mapping of `len` bytes, which is written before it
        // becomes executable.
        let base = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let base = libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(base, libc::MAP_FAILED);
            slice::from_raw_parts_mut(base.cast::<u8>(), len).copy_from_slice(&code.bytes);
            assert_eq!(libc::mprotect(base, len, libc::PROT_READ | libc::PROT_EXEC), 0);
            base
        };
        Self { base, len, entries: code.entries.clone() }
    }

    pub fn entry(&self, stage: usize) -> Entry {
        // SAFETY: every entry is the offset of a function of type `Entry` in the mapping.
        unsafe { std::mem::transmute::<*mut u8, Entry>(self.base.cast::<u8>().add(self.entries[stage])) }
    }
}

impl Drop for Executable {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping that `new` made; callers use no entry
        // afterwards.
        unsafe { libc::munmap(self.base, self.len) };
    }
}

/// Number of floats on either side of every buffer that no kernel may read or write.
const GUARD: usize = 64;
const CANARY: u32 = 0x7fc0_beef;

/// A buffer between guards, aligned to 64 bytes.
pub struct Guarded {
    memory: Vec<f32>,
    start: usize,
    len: usize,
}

impl Guarded {
    pub fn new(content: &[f32]) -> Self {
        Self::with_offset(content, 0)
    }

    /// Copies the content to `elements` elements after an aligned address.
    fn with_offset(content: &[f32], elements: usize) -> Self {
        let len = content.len();
        let mut memory = vec![f32::from_bits(CANARY); len + 2 * GUARD + 32];
        let start = GUARD + memory[GUARD..].as_ptr().align_offset(64) + elements;
        memory[start..start + len].copy_from_slice(content);
        Self { memory, start, len }
    }

    pub fn content(&self) -> &[f32] {
        &self.memory[self.start..self.start + self.len]
    }

    pub fn pointer(&mut self) -> *mut f32 {
        self.memory[self.start..].as_mut_ptr()
    }

    /// True if both guards are unchanged.
    pub fn is_intact(&self) -> bool {
        let guards = [&self.memory[..self.start], &self.memory[self.start + self.len..]];
        guards.iter().all(|g| g.iter().all(|x| x.to_bits() == CANARY))
    }
}

/// Returns the buffers of a plan, each `elements` elements after an aligned address. Operands are
/// filled in; other buffers are NaN.
fn buffers(plan: &KernelPlan, operands: &Operands, elements: usize) -> Vec<Guarded> {
    plan.buffers.iter().map(|b| Guarded::with_offset(&super::words(b, operands), elements)).collect()
}

/// Calls an entry point and checks that it preserves callee-saved registers.
pub fn call(entry: Entry, buffers: &[*mut f32], local: *mut u8, begin: i64, end: i64) {
    let wanted = [1u64, 2, 3, 4];
    let mut seen = [0u64; 4];
    // SAFETY: the kernel stays within the buffers of its plan. The assembly saves rbx and rbp
    // itself, since they cannot be operands.
    unsafe {
        std::arch::asm!(
            "push rbx", "push rbp", "mov rbx, rax", "sub rsp, 8", "mov rbp, rsp",
            "and rsp, -16",
            "call r10",
            "mov rsp, rbp", "add rsp, 8", "mov rax, rbx", "pop rbp", "pop rbx",
            inlateout("rax") 77u64 => seen[0],
            inlateout("r12") wanted[1] => seen[1],
            inlateout("r13") wanted[2] => seen[2],
            inlateout("r14") wanted[3] => seen[3],
            in("r10") entry,
            in("rdi") buffers.as_ptr(),
            in("rsi") local,
            in("rdx") begin,
            in("rcx") end,
            clobber_abi("C"),
        );
    }
    assert_eq!(seen, [77, wanted[1], wanted[2], wanted[3]], "a register was not preserved");
}

/// Minimum alignment of buffers, in elements.
const ALIGNED: usize = 4;

/// Runs every stage, split at an odd task and in reverse order, and returns the output. A program
/// with streaming stores runs twice: with buffers aligned more than required, and with the minimum
/// alignment.
pub fn run(program: &Program, code: &MachineCode, operands: &Operands) -> ArrayD<f32> {
    let output = run_with_offset(program, code, operands, 0);
    if program.buffers.iter().any(|buffer| buffer.streamed) {
        let bits = |output: &ArrayD<f32>| output.mapv(f32::to_bits);
        assert_eq!(
            bits(&output),
            bits(&run_with_offset(program, code, operands, ALIGNED)),
            "streamed otherwise than stored"
        );
    }
    output
}

fn run_with_offset(program: &Program, code: &MachineCode, operands: &Operands, elements: usize) -> ArrayD<f32> {
    let plan = KernelPlan::of(program);
    let executable = Executable::new(code);
    let mut buffers = buffers(&plan, operands, elements);
    let pointers: Vec<*mut f32> = buffers.iter_mut().map(Guarded::pointer).collect();
    let mut local = Guarded::new(&vec![f32::NAN; plan.local_bytes / 4]);
    for when in [When::AheadOfTime, When::EveryRun] {
        for (i, stage) in plan.stages.iter().enumerate().filter(|(_, s)| s.when == when) {
            let (tasks, split) = (stage.tasks as i64, stage.tasks as i64 / 3);
            let local = local.pointer().cast::<u8>();
            call(executable.entry(i), &pointers, local, split, tasks);
            call(executable.entry(i), &pointers, local, split, split);
            call(executable.entry(i), &pointers, local, 0, split);
        }
    }
    assert!(local.is_intact(), "a write outside local memory");
    for (i, buffer) in buffers.iter().enumerate() {
        assert!(buffer.is_intact(), "a write outside buffer {i}");
    }
    let output = program.find(Role::Output).unwrap();
    let layout = program.buffer(output).layout;
    let content = super::elements(&plan.buffers[output.0 as usize], buffers[output.0 as usize].content());
    from_layout(&content, &program.spec.find(Role::Output).unwrap().shape, layout).unwrap()
}
