//! Broken machine code: faults must be detected and kill at most the worker. They are planted into
//! the assembled kernel of a real candidate.

use autotune_ir::plan::Binding;
use autotune_ir::program::{Role, When};
use autotune_ir::{Code, MachineCode};
use autotune_measure::KernelBuilder;
use autotune_measure::{Built, WorkerCommand, WorkerMeasurer};
use autotune_measurement::Backend;
use autotune_measurement::{CandidateError, Measurement};
use autotune_schedules::{Candidate, ScheduleSpace};
use autotune_workloads::Workload;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::kernels::{options, target};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("machine_code_faults_are_classified", machine_code_faults_are_classified),
    ("machine_code_that_hangs_is_killed", machine_code_that_hangs_is_killed),
    ("machine_code_that_writes_astray_is_found", machine_code_that_writes_astray_is_found),
    ("machine_code_that_computes_wrongly_is_found", machine_code_that_computes_wrongly_is_found),
    ("results_of_16_bits_are_compared", results_of_16_bits_are_compared),
    ("packed_weights_that_change_are_found", packed_weights_that_change_are_found),
    ("machine_code_cannot_be_overwritten", machine_code_cannot_be_overwritten),
    ("machine_code_that_does_not_fit_its_plan_is_refused", machine_code_that_does_not_fit_its_plan_is_refused),
    ("garbage_kills_only_the_worker", garbage_kills_only_the_worker),
];

/// Machine code of instructions.
const UD2: &[u8] = &[0x0f, 0x0b];
const INT3: &[u8] = &[0xcc];
const JUMP_TO_ITSELF: &[u8] = &[0xeb, 0xfe];
const RET: &[u8] = &[0xc3];
/// `xor eax,eax; div eax; ret`
const DIVIDE_BY_ZERO: &[u8] = &[0x31, 0xc0, 0xf7, 0xf0, 0xc3];
/// `xor eax,eax; mov [rax],eax; ret`
const WRITE_TO_NULL: &[u8] = &[0x31, 0xc0, 0x89, 0x00, 0xc3];
/// `push rax; jmp` to the `push`
const EXHAUST_STACK: &[u8] = &[0x50, 0xeb, 0xfd];
/// `lea rax,[rip-7]; mov byte [rax],0c3h; ret`: overwrites its own code.
const OVERWRITE_ITSELF: &[u8] = &[0x48, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff, 0xc6, 0x00, 0xc3, 0xc3];

/// Returns the assembled default schedule of a small convolution on one thread.
fn right() -> Built {
    right_for("conv2d:n=1,c=8,h=9,w=7,o=16,k=3,p=1,bias,add,act=relu")
}

/// Returns a kernel whose packed weights, in f32, are large enough to be cached for the next one.
fn large() -> Built {
    right_for("conv2d:n=1,c=1024,h=2,w=3,o=2304,k=1,bias,exact")
}

fn right_for(workload: &str) -> Built {
    let workload: Workload = workload.parse().unwrap();
    let target = target(1);
    let config = ScheduleSpace::new(&workload, &target).default_config();
    let candidate = Candidate::new(&workload, &target, config);
    let mut builds = KernelBuilder::new(Backend::Assembler, 20.0).build(&[candidate]).unwrap();
    builds.remove(0).outcome.unwrap()
}

fn code(built: &mut Built) -> &mut MachineCode {
    match &mut built.artifact.code {
        Code::Machine(code) => code,
        other => panic!("not assembled but {other:?}"),
    }
}

/// Returns the right kernel with the code of all stages of one kind replaced; with `then_work` the
/// original code runs afterwards.
fn with(instructions: &[u8], when: When, then_work: bool) -> Built {
    let mut built = right();
    let stages: Vec<usize> =
        (0..built.artifact.plan.stages.len()).filter(|&s| built.artifact.plan.stages[s].when == when).collect();
    let code = code(&mut built);
    for stage in stages {
        let (old, new) = (code.entries[stage], code.bytes.len());
        code.bytes.extend(instructions);
        if then_work {
            let distance = old as i32 - (code.bytes.len() + 5) as i32;
            code.bytes.push(0xe9);
            code.bytes.extend(distance.to_le_bytes());
        }
        code.entries[stage] = new;
        code.code_bytes = code.bytes.len();
    }
    built
}

/// Returns `mov rax,[rdi+8*position]`, and an instruction with the operand `dword [rax+offset]`.
fn access(position: usize, offset: i32, head: [u8; 2], tail: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x48, 0x8b, 0x87];
    bytes.extend((8 * position as i32).to_le_bytes());
    bytes.extend(head);
    bytes.extend(offset.to_le_bytes());
    bytes.extend(tail);
    bytes
}

/// Returns `mov dword [rax+offset],0`, which writes a zero to a buffer.
fn write_to(position: usize, offset: i32) -> Vec<u8> {
    access(position, offset, [0xc7, 0x80], &[0; 4])
}

/// Returns the large kernel with instructions inserted at the beginning of every run. Its packing
/// code is unchanged.
fn with_first(instructions: &[u8]) -> Built {
    let mut built = large();
    let run = built.artifact.plan.stages.iter().position(|stage| stage.when == When::EveryRun).unwrap();
    let code = code(&mut built);
    let entry = code.entries[run];
    // `push rbx; push rbp; push r12; push r13` are replaced by a jump to the end, where they are
    // executed after the inserted instructions.
    let moved = [0x53, 0x55, 0x41, 0x54, 0x41, 0x55];
    assert_eq!(code.bytes[entry..entry + 6], moved);
    let distance = |from: usize, to: usize| (to as i32 - from as i32).to_le_bytes();
    let end = code.bytes.len();
    code.bytes[entry] = 0xe9;
    code.bytes[entry + 1..entry + 5].copy_from_slice(&distance(entry + 5, end));
    code.bytes.extend(instructions);
    code.bytes.extend(moved);
    code.bytes.push(0xe9);
    let back = distance(code.bytes.len() + 4, entry + 6);
    code.bytes.extend(back);
    code.code_bytes = code.bytes.len();
    built
}

fn measurer() -> WorkerMeasurer {
    WorkerMeasurer::with(WorkerCommand::find().unwrap(), options()).unwrap()
}

fn outcome(measurer: &mut WorkerMeasurer, built: &Built) -> Measurement {
    measurer.run_built(built).unwrap()
}

fn assert_well(measurer: &mut WorkerMeasurer) {
    outcome(measurer, &right()).outcome.unwrap();
}

fn crash(measurer: &mut WorkerMeasurer, built: &Built, words: &str) {
    let outcome = outcome(measurer, built).outcome;
    let Err(CandidateError::Crash { message }) = &outcome else { panic!("{words}: {outcome:?}") };
    assert!(message.contains(words), "{words}: {message}");
}

fn machine_code_faults_are_classified() {
    let mut measurer = measurer();
    assert_well(&mut measurer);
    for (instructions, words) in [
        (UD2, "SIGILL"),
        (INT3, "signal 5"),
        (DIVIDE_BY_ZERO, "SIGFPE"),
        (WRITE_TO_NULL, "SIGSEGV"),
        (EXHAUST_STACK, "SIGSEGV"),
    ] {
        crash(&mut measurer, &with(instructions, When::EveryRun, false), words);
        assert_well(&mut measurer);
    }
    let far = i32::MAX;
    let output = right().artifact.plan.buffers.iter().position(|b| b.role == Role::Output).unwrap();
    crash(&mut measurer, &with(&write_to(output, far), When::EveryRun, true), "SIGSEGV");
    assert_well(&mut measurer);
}

fn machine_code_that_hangs_is_killed() {
    let mut options = options();
    options.run_limit_secs = 0.3;
    let mut measurer = WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap();
    let endless = with(JUMP_TO_ITSELF, When::EveryRun, false);
    assert_eq!(outcome(&mut measurer, &endless).outcome, Err(CandidateError::Timeout { limit_secs: 0.3 }));
    assert_well(&mut measurer);
}

fn machine_code_that_writes_astray_is_found() {
    let mut measurer = measurer();
    let plan = right().artifact.plan;
    for (position, buffer) in plan.buffers.iter().enumerate().filter(|(_, b)| b.is_global()) {
        let len = 4 * buffer.shape.iter().product::<usize>() as i32;
        for offset in [-4, len, len + 60] {
            let built = with(&write_to(position, offset), When::EveryRun, true);
            let outcome = outcome(&mut measurer, &built).outcome;
            assert!(
                matches!(outcome, Err(CandidateError::StrayWrite { .. })),
                "{:?} {offset}: {outcome:?}",
                buffer.role
            );
        }
        if buffer.role != Role::Output {
            let built = with(&write_to(position, len - 4), When::EveryRun, true);
            let outcome = outcome(&mut measurer, &built).outcome;
            let found = matches!(outcome, Err(CandidateError::StrayWrite { .. } | CandidateError::WrongResult { .. }));
            assert!(found, "{:?}: {outcome:?}", buffer.role);
        }
    }
    assert_well(&mut measurer);
}

fn machine_code_that_computes_wrongly_is_found() {
    let mut measurer = measurer();
    // The output that an earlier kernel left in the buffers must not count as this kernel's.
    for _ in 0..2 {
        assert_well(&mut measurer);
        for when in [When::EveryRun, When::AheadOfTime] {
            let idle = with(RET, when, false);
            if idle.artifact.plan.stages.iter().all(|stage| stage.when != when) {
                continue;
            }
            let outcome = outcome(&mut measurer, &idle).outcome;
            assert!(matches!(outcome, Err(CandidateError::WrongResult { .. })), "{when:?}: {outcome:?}");
            assert_well(&mut measurer);
        }
    }
    assert!(
        right().artifact.plan.stages.iter().any(|stage| stage.when == When::AheadOfTime),
        "nothing runs ahead of time"
    );
}

/// Checks outputs with an odd number of elements, by the tolerance of their type. A kernel of the
/// other type leaves wrong bits.
fn results_of_16_bits_are_compared() {
    let mut measurer = measurer();
    let [half, other] = ["f16", "bf16"].map(|to| right_for(&format!("pointwise:m=7,n=33,op=exp,to={to}")));
    for built in [&half, &other] {
        let found = outcome(&mut measurer, built).outcome.unwrap();
        assert!(found.max_rel_error < 4e-3, "{found:?}");
    }

    let mut wrong = half.clone();
    *code(&mut wrong) = code(&mut other.clone()).clone();
    let found = outcome(&mut measurer, &wrong).outcome;
    assert!(matches!(found, Err(CandidateError::WrongResult { .. })), "{found:?}");
}

/// Changes the last bit of a weight, which no output shows. Either setting or clearing the bit
/// changes it.
fn packed_weights_that_change_are_found() {
    let mut measurer = measurer();
    let plan = large().artifact.plan;
    let packed = plan.buffers.iter().position(|b| b.binding == Binding::Packed).unwrap();
    let weight = plan.buffers.iter().position(|b| b.role == Role::Operand(1)).unwrap();
    let expected = outcome(&mut measurer, &large()).outcome.unwrap().max_rel_error;

    for (position, word) in [(packed, "packed"), (weight, "weight")] {
        let len = plan.buffers[position].shape.iter().product::<usize>() as i32;
        for element in [0, len / 2, len - 1] {
            let (set, clear) = (([0x83, 0x88], 0x01), ([0x83, 0xa0], 0xfe));

            let found = [set, clear].map(|(head, mask)| {
                let scribbler = with_first(&access(position, 4 * element, head, &[mask]));
                let found = match outcome(&mut measurer, &scribbler).outcome {
                    Ok(_) => false,
                    Err(CandidateError::StrayWrite { message }) => {
                        assert!(message.contains(word), "{message}");
                        true
                    }
                    Err(other) => panic!("{word} {element}: {other}"),
                };
                // Other kernels are not affected.
                let next = outcome(&mut measurer, &large()).outcome.unwrap();
                assert_eq!(next.max_rel_error, expected, "{word} {element}");
                found
            });
            assert_ne!(found[0], found[1], "{word} {element}");
        }
    }
}

fn machine_code_cannot_be_overwritten() {
    crash(&mut measurer(), &with(OVERWRITE_ITSELF, When::EveryRun, false), "SIGSEGV");
}

fn machine_code_that_does_not_fit_its_plan_is_refused() {
    let mut measurer = measurer();
    let mut refused = |change: &dyn Fn(&mut MachineCode)| {
        let mut built = right();
        change(code(&mut built));
        let outcome = outcome(&mut measurer, &built).outcome;
        let Err(CandidateError::Build { message }) = &outcome else { panic!("{outcome:?}") };
        message.clone()
    };
    assert!(refused(&|code| code.entries.clear()).contains("entries"));
    assert!(refused(&|code| code.entries.push(0)).contains("entries"));
    assert!(refused(&|code| code.entries[0] = code.code_bytes).contains("entries"));
    assert!(refused(&|code| code.bytes.truncate(code.entries[0])).contains("entries"));
}

fn garbage_kills_only_the_worker() {
    let mut options = options();
    options.run_limit_secs = 0.5;
    let mut measurer = WorkerMeasurer::with(WorkerCommand::find().unwrap(), options).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(29);
    for _ in 0..20 {
        let mut built = right();
        let code = code(&mut built);
        if rng.random() {
            rng.fill_bytes(&mut code.bytes);
        } else {
            let at = rng.random_range(0..code.code_bytes);
            code.bytes[at] ^= 1 << rng.random_range(0..8);
        }
        // Whatever the result, the measurer survives and the next kernel is measured; a flipped bit
        // may be harmless.
        let _ = outcome(&mut measurer, &built);
        assert_well(&mut measurer);
    }
}
