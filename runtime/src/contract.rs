//! Contract tests that every [`Device`] implementation must pass. Each function panics with a
//! message that describes the fault.
//!
//! [`memory`] needs only a device. [`kernels`] and [`threads`] need a kernel with the interface
//! [`plan`], in the code format of the device:
//!
//! ```text
//! ahead of time:  packed[i]  = 2 * weight[i]
//! in every run:   scratch[i] = input[i] + packed[i]
//!                 output[i]  = scratch[i] * scratch[i]     a stage of its own
//! ```

use std::fmt::Display;
use std::sync::{Arc, Barrier};
use std::thread;

use autotune_ir::plan::{Binding, PlanBuffer, PlanStage};
use autotune_ir::program::{Layout, Role, When};
use autotune_ir::{DType, KernelPlan, Launch};

use crate::device::Device;
use crate::error::{KernelError, ViewMismatch};
use crate::kernel::{Kernel, Packed, Scratch};
use crate::view::{View, ViewMut};

/// Number of elements of each of the kernel's buffers.
pub const LEN: usize = 96;

const SHAPE: [usize; 2] = [4, LEN / 4];
const WORDS: usize = 1000;

/// Returns the interface of the kernel: buffers `input`, `weight`, `output`, `packed` and
/// `scratch`, and stages `contract_pack`, `contract_add` and `contract_square`. Each stage has
/// `tasks` tasks or, on a GPU, a launch.
pub fn plan(tasks: usize, launch: Option<Launch>) -> KernelPlan {
    let buffer = |name: &str, role, binding| PlanBuffer {
        name: name.into(),
        role,
        binding,
        shape: SHAPE.to_vec(),
        layout: Layout::Plain,
        dtype: DType::F32,
    };
    let stage = |symbol: &str, when| PlanStage { symbol: symbol.into(), when, tasks, launch, boxes: vec![] };

    KernelPlan {
        buffers: vec![
            buffer("input", Role::Operand(0), Binding::Data),
            buffer("weight", Role::Operand(1), Binding::Constant { read_in_runs: false }),
            buffer("output", Role::Output, Binding::Output),
            buffer("packed", Role::Packed, Binding::Packed),
            buffer("scratch", Role::Packed, Binding::Scratch),
        ],
        stages: vec![
            stage("contract_pack", When::AheadOfTime),
            stage("contract_add", When::EveryRun),
            stage("contract_square", When::EveryRun),
        ],
        local_bytes: 0,
        uses_tiles: false,
    }
}

/// Checks that memory stores what is written, in order and within bounds, and that parts alias it.
pub fn memory<D: Device>(device: &D) {
    let mut first = expect_ok("allocate", device.allocate(4 * WORDS));
    let extent = device.extent(&first);
    assert!(extent.bytes >= 4 * WORDS, "allocate: got {extent:?} for {WORDS} words");
    assert!(extent.alignment >= device.alignment().max(16), "allocate: alignment is too small: {extent:?}");
    assert!(device.holds(&first), "holds: must be true for memory of this device");

    let words: Vec<u32> = (0..WORDS as u32).collect();
    expect_ok("write", device.write(&mut first, 0, crate::bytes_of(&words)));
    expect_ok("fill", device.fill(&mut first, 10..20, 7));
    expect_ok("write", device.write(&mut first, 4 * 15, &[1; 4]));
    expect_ok("fill of no words", device.fill(&mut first, 3..3, 9));
    expect_ok("write of no bytes", device.write(&mut first, 4 * WORDS, &[]));
    let mut expected = words;
    expected[10..20].fill(7);
    expected[15] = 0x0101_0101;
    assert!(contents(device, &first, WORDS) == expected, "read: must return what was written and filled");

    let mut second = expect_ok("allocate", device.allocate(4 * WORDS));
    expect_ok("fill", device.fill(&mut second, 0..WORDS, u32::MAX));
    expect_ok("copy", device.copy(&first, &mut second, 4 * 500));
    let half: Vec<u32> = expected[..500].iter().copied().chain([u32::MAX; WORDS - 500]).collect();
    assert!(contents(device, &second, WORDS) == half, "copy: must copy the first bytes and no more");

    let step = device.alignment().max(64);
    // SAFETY: the memory is used through one of the two at a time.
    let mut part = expect_ok("part", unsafe { device.part(&first, step..2 * step) });
    assert_eq!(device.extent(&part).bytes, step, "part: wrong size");
    assert!(device.extent(&part).alignment >= step.min(64), "part: alignment is too small");
    expect_ok("fill", device.fill(&mut part, 1..3, 5));
    expected[step / 4 + 1..step / 4 + 3].fill(5);
    assert!(contents(device, &first, WORDS) == expected, "part: must share the bytes of the whole");
    drop(first);
    assert!(contents(device, &part, step / 4) == expected[step / 4..step / 2], "part: must outlive the whole");

    let bytes = device.extent(&second).bytes;
    assert!(device.write(&mut second, bytes - 3, &[0; 4]).is_err(), "write: must fail out of bounds");
    assert!(device.read(&second, bytes, &mut [0]).is_err(), "read: must fail out of bounds");
    assert!(device.fill(&mut second, 0..bytes / 4 + 1, 0).is_err(), "fill: must fail out of bounds");
    assert!(device.copy(&part, &mut second, step + 1).is_err(), "copy: must fail out of bounds");
    // SAFETY: nothing else uses the memory.
    assert!(unsafe { device.part(&second, 0..bytes + 1) }.is_err(), "part: must fail out of bounds");
}

/// Checks that the kernel computes what its plan says, directly, in recordings and with packed
/// constants, and that misuse is rejected.
pub fn kernels<D: Device>(device: &D, kernel: &Kernel<D>) {
    let mut data = RunOperands::new(device, kernel, 1);
    data.run(device, kernel);
    data.check(device, 1);
    data.put(device, 2);
    data.run(device, kernel);
    data.check(device, 2);

    recorded(device, kernel, &mut data);
    misuse(device, kernel, &mut data);
}

/// Checks that threads, each with a device from `make`, can run one kernel at once with constants
/// that one of them packed.
pub fn threads<D: Device>(make: impl Fn() -> D + Sync, kernel: &Kernel<D>) {
    const THREADS: usize = 4;
    const RUNS: usize = 50;
    let device = make();
    let weights = expect_ok("upload", device.upload(&weights()));
    let packed = expect_ok("pack", kernel.pack(&device, &[View::of(&weights, DType::F32, &SHAPE)]));
    drop(weights);

    let (start, packed) = (Barrier::new(THREADS), &packed);
    let work = |seed: usize| {
        let device = make();
        let mut data = RunOperands::sharing(&device, kernel, Arc::clone(packed), seed);
        start.wait();
        for run in 0..RUNS {
            data.put(&device, seed + run);
            data.run(&device, kernel);
            data.check(&device, seed + run);
        }
    };
    thread::scope(|scope| {
        (0..THREADS).for_each(|thread| {
            scope.spawn(move || work(1000 * thread));
        });
    });
}

/// Buffers of a run of the kernel.
struct RunOperands<D: Device> {
    input: D::Memory,
    output: D::Memory,
    packed: Arc<Packed<D>>,
    scratch: Scratch<D>,
}

impl<D: Device> RunOperands<D> {
    fn new(device: &D, kernel: &Kernel<D>, seed: usize) -> Self {
        let weights = expect_ok("upload", device.upload(&weights()));
        // Packs into the middle of a larger memory.
        let bytes = expect_ok("packed_bytes", kernel.packed_bytes(device));
        let memory = expect_ok("allocate", device.allocate(bytes + 512));
        // SAFETY: nothing else uses the memory.
        let memory = expect_ok("part", unsafe { device.part(&memory, 256..256 + bytes) });
        let packed = expect_ok("pack_in", kernel.pack_in(device, &[View::of(&weights, DType::F32, &SHAPE)], memory));
        Self::sharing(device, kernel, packed, seed)
    }

    fn sharing(device: &D, kernel: &Kernel<D>, packed: Arc<Packed<D>>, seed: usize) -> Self {
        let input = expect_ok("upload", device.upload(&input(seed)));
        let output = expect_ok("upload", device.upload(&[f32::NAN; LEN]));
        Self { input, output, packed, scratch: expect_ok("scratch", kernel.scratch(device)) }
    }

    fn put(&mut self, device: &D, seed: usize) {
        expect_ok("write", device.write(&mut self.input, 0, crate::bytes_of(&input(seed))));
        expect_ok("fill", device.fill(&mut self.output, 0..LEN, f32::NAN.to_bits()));
    }

    fn run(&mut self, device: &D, kernel: &Kernel<D>) {
        let operands = [View::of(&self.input, DType::F32, &SHAPE), View::packed()];
        let mut outputs = [ViewMut::of(&mut self.output, DType::F32, &SHAPE)];
        expect_ok("run", kernel.run(device, &self.packed, &mut self.scratch, &operands, &mut outputs));
    }

    fn check(&self, device: &D, seed: usize) {
        let mut found = [0.0; LEN];
        expect_ok("download", device.download(&self.output, &mut found));
        let expected: Vec<f32> = input(seed).iter().zip(weights()).map(|(x, w)| (x + 2.0 * w).powi(2)).collect();
        assert!(found[..] == expected[..], "run: got {found:?}, expected {expected:?}");
    }
}

fn recorded<D: Device>(device: &D, kernel: &Kernel<D>, data: &mut RunOperands<D>) {
    data.put(device, 3);
    let operands = [View::of(&data.input, DType::F32, &SHAPE), View::packed()];
    let mut outputs = [ViewMut::of(&mut data.output, DType::F32, &SHAPE)];
    let bound = kernel.bind(device, &data.packed, &mut data.scratch, &operands, &mut outputs);
    let mut run = expect_ok("bind", bound);
    let secs = expect_ok("time", device.time(&mut || run.start(device)));
    assert!(secs.is_finite() && secs >= 0.0, "time: {secs} s");

    if let Some(recording) = device.record(&mut || run.start(device)) {
        expect_ok("replay", device.replay(&recording));
        expect_ok("finish", device.finish());
    }
    data.check(device, 3);
}

fn misuse<D: Device>(device: &D, kernel: &Kernel<D>, data: &mut RunOperands<D>) {
    let small = expect_ok("allocate", device.allocate(4));
    // SAFETY: nothing writes to the memory.
    let small = expect_ok("part", unsafe { device.part(&small, 0..4) });
    let good = || View::of(&data.input, DType::F32, &SHAPE);
    let mut refusal = |operands: &[View<'_, D>]| -> String {
        let mut outputs = [ViewMut::of(&mut data.output, DType::F32, &SHAPE)];
        let run = kernel.run(device, &data.packed, &mut data.scratch, operands, &mut outputs);
        run.err().map_or("nothing".into(), |error| error.to_string())
    };
    let shape = [LEN / 4, 4];
    for (operands, words) in [
        (vec![good()], "got 1 operands, expected 2: input, weight"),
        (vec![View::packed(), View::packed()], "'input': it has no memory, but runs read it"),
        (vec![View::of(&data.input, DType::F16, &SHAPE), good()], "'input': its element type is f16, expected f32"),
        (vec![View::of(&data.input, DType::I32, &SHAPE), good()], "'input': its element type is i32, expected f32"),
        (vec![good(), View::of(&data.input, DType::F32, &shape)], "'weight': its physical shape is [24, 4]"),
        (vec![good().in_layout(Layout::ChannelBlocked(2)), good()], "'input': its layout is ChannelBlocked(2)"),
        (vec![View::of(&small, DType::F32, &SHAPE), good()], "'input': its memory has 4 bytes, its shape needs 384"),
    ] {
        let found = refusal(&operands);
        assert!(found.starts_with(words), "misuse: got '{found}', expected '{words}'");
    }

    if device.alignment() > 1 {
        let odd = expect_ok("allocate", device.allocate(4 * LEN + 4));
        // SAFETY: nothing writes to the memory.
        let odd = expect_ok("part", unsafe { device.part(&odd, 4..4 * LEN + 4) });
        let found = refusal(&[View::of(&odd, DType::F32, &SHAPE), View::packed()]);
        assert!(found.starts_with("'input': its address is aligned to 4 bytes"), "misuse: {found}");
    }
    assert!(kernel.pack(device, &[]).is_err(), "pack: must fail without constants");
    assert!(matches!(
        kernel.pack(device, &[View::packed()]),
        Err(KernelError::Operand { misfit: ViewMismatch::Absent, .. })
    ));
    let little = expect_ok("allocate", device.allocate(8));
    // SAFETY: nothing else uses the memory.
    let little = expect_ok("part", unsafe { device.part(&little, 0..4) });
    let found = kernel.pack_in(device, &[View::of(&data.input, DType::F32, &SHAPE)], little);
    assert!(matches!(found, Err(KernelError::Memory { .. })), "pack_in: must reject memory that is too small");
    if expect_ok("scratch_bytes", kernel.scratch_bytes(device)) > 4 {
        assert!(
            matches!(kernel.scratch_in(device, small), Err(KernelError::Memory { .. })),
            "scratch_in: must reject memory that is too small"
        );
    }
}

/// Checks that a kernel rejects packed constants and scratch of another kernel with the same plan.
pub fn other_kernels<D: Device>(device: &D, kernels: [&Kernel<D>; 2]) {
    let [mut first, mut second] = kernels.map(|kernel| RunOperands::new(device, kernel, 1));
    let operands = [View::of(&first.input, DType::F32, &SHAPE), View::packed()];
    let mut outputs = [ViewMut::of(&mut first.output, DType::F32, &SHAPE)];
    let run = kernels[0].run(device, &second.packed, &mut first.scratch, &operands, &mut outputs);
    assert!(
        matches!(run, Err(KernelError::OtherKernel { .. })),
        "run: must reject constants that another kernel packed"
    );
    let run = kernels[0].run(device, &first.packed, &mut second.scratch, &operands, &mut outputs);
    assert!(matches!(run, Err(KernelError::OtherKernel { .. })), "run: must reject scratch of another kernel");
}

/// Checks that a device rejects memory of another device that it cannot use.
pub fn other_devices<D: Device>(device: &D, other: &D, kernel: &Kernel<D>) {
    let elsewhere = expect_ok("upload", other.upload(&input(1)));
    assert!(!device.holds(&elsewhere), "holds: must be false for memory of another device");
    let mut data = RunOperands::new(device, kernel, 1);
    let operands = [View::of(&elsewhere, DType::F32, &SHAPE), View::packed()];
    let mut outputs = [ViewMut::of(&mut data.output, DType::F32, &SHAPE)];
    let run = kernel.run(device, &data.packed, &mut data.scratch, &operands, &mut outputs);
    assert!(
        matches!(run, Err(KernelError::Operand { misfit: ViewMismatch::Elsewhere, .. })),
        "run: must reject memory of another device"
    );
}

/// Returns small integers, so that every sum and product is exact.
fn input(seed: usize) -> [f32; LEN] {
    std::array::from_fn(|i| ((7 * i + seed) % 23) as f32 - 11.0)
}

fn weights() -> [f32; LEN] {
    std::array::from_fn(|i| (i % 13) as f32)
}

fn contents<D: Device>(device: &D, memory: &D::Memory, words: usize) -> Vec<u32> {
    let mut found = vec![0; words];
    expect_ok("download", device.download(memory, &mut found));
    found
}

/// Unwraps a result that must not be an error.
fn expect_ok<T>(what: &str, result: Result<T, impl Display>) -> T {
    match result {
        Ok(value) => value,
        Err(error) => panic!("{what}: {error}"),
    }
}
