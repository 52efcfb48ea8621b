//! Kernels whose output shares memory with an operand.

use autotune_codegen::asm::assemble;
use autotune_ir::plan::Binding;
use autotune_ir::program::Role;
use autotune_ir::{Artifact, Code, DType, Program, Target, may_overwrite};
use autotune_network::operators::Sliding;
use autotune_network::{Builder, Compiled, ConvLayer, Graph, Seeded, Trace};
use autotune_runtime::{Cpu, Device, HostMemory, Kernel, View, ViewMut};
use autotune_schedules::ScheduleSpace;
use autotune_workloads::Workload;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const THREADS: usize = 2;

/// Runs a kernel on random numbers, with the output in memory of its own or in that of an operand.
fn output(kernel: &Kernel, cpu: &Cpu, within: Option<usize>) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let plan = kernel.plan();
    let mut memory = |elements: usize| {
        let mut memory = HostMemory::new(elements * 4).unwrap();
        memory.elements_mut::<f32>().iter_mut().for_each(|x| *x = rng.random_range(-1.0..1.0));
        memory
    };
    let given = plan.buffers.iter().filter(|b| matches!(b.binding, Binding::Data | Binding::Constant { .. }));
    let given: Vec<_> = given.map(|buffer| (buffer, memory(buffer.elements().unwrap()))).collect();
    let written = plan.buffers.iter().find(|buffer| buffer.binding == Binding::Output).unwrap();
    let elements = written.elements().unwrap();
    let own = memory(elements);
    let holder = given.iter().find(|(buffer, _)| within.map(Role::Operand) == Some(buffer.role));
    let holder = holder.map_or(&own, |(_, memory)| memory);
    // SAFETY: the test examines exactly this: kernels that may overwrite an operand.
    let mut result = unsafe { cpu.part(holder, 0..elements * 4) }.unwrap();

    let view = |(buffer, memory): &'_ (&autotune_ir::plan::PlanBuffer, HostMemory)| {
        // SAFETY: as above.
        unsafe { cpu.part(memory, 0..buffer.elements().unwrap() * 4) }.unwrap()
    };
    let parts: Vec<HostMemory> = given.iter().map(view).collect();
    let views = |is_wanted: fn(&Binding) -> bool| -> Vec<View> {
        let wanted = given.iter().zip(&parts).filter(|((buffer, _), _)| is_wanted(&buffer.binding));
        wanted.map(|((buffer, _), part)| View::of(part, DType::F32, &buffer.shape).in_layout(buffer.layout)).collect()
    };
    let packed = kernel.pack(cpu, &views(|binding| *binding != Binding::Data)).unwrap();
    let mut scratch = kernel.scratch(cpu).unwrap();
    let outputs = &mut [ViewMut::of(&mut result, DType::F32, &written.shape).in_layout(written.layout)];
    kernel.run(cpu, &packed, &mut scratch, &views(|_| true), outputs).unwrap();
    holder.elements::<f32>()[..elements].to_vec()
}

fn kernel(program: &Program, target: &Target, cpu: &Cpu) -> Option<Kernel> {
    let code = Code::Machine(assemble(program, target).ok()?);
    let artifact = Artifact { target: target.clone(), plan: autotune_ir::KernelPlan::of(program), code };
    // SAFETY: the program was proven, and assembled for this CPU.
    Some(unsafe { Kernel::load(cpu, &artifact) }.unwrap())
}

/// Random schedules compute bitwise the same when they overwrite an operand that they may
/// overwrite.
#[test]
fn overwritten_operands_are_read_before() {
    let (target, cpu) = (Target::detect("cpu", Some(THREADS)).unwrap(), Cpu::new(THREADS));
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    for (text, wanted) in [
        ("conv2d:c=16,h=12,w=12,o=32,k=3,p=1,bias,add,act=relu", &[3][..]),
        ("conv2d:c=32,h=13,w=11,o=48,k=1,add", &[2]),
        ("conv2d:c=16,h=9,w=9,o=16,k=3,p=1,add", &[2]),
        ("matmul:m=24,n=40,k=33,bias,add,act=gelu", &[3]),
        ("pointwise:m=37,n=50,op=add", &[0, 1]),
        ("pointwise:m=16,n=49,op=copy,channels=column,scale,bias,act=relu", &[0]),
        ("pool2d:c=16,h=8,w=8,k=3,s=1,p=1,kind=max", &[]),
        ("softmax:m=8,n=33", &[]),
    ] {
        let workload: Workload = text.parse().unwrap();
        let space = ScheduleSpace::new(&workload, &target);
        let mut found = Vec::new();

        for candidate in (0..40).map(|_| space.sample(&mut rng)).chain([space.default_candidate().clone()]) {
            let Ok(program) = candidate.lower() else { continue };
            if autotune_ir::verify(&program, &target).is_err() {
                continue;
            }
            let Some(kernel) = kernel(&program, &target, &cpu) else { continue };
            for operand in (0..6).filter(|&operand| may_overwrite(&program, operand)) {
                let (apart, within) = (output(&kernel, &cpu, None), output(&kernel, &cpu, Some(operand)));
                assert!(apart == within, "{text}, operand {operand}: {:?}", candidate.config());
                found.push(operand);
            }
        }

        found.sort_unstable();
        found.dedup();
        assert_eq!(found, wanted, "{text}");
    }
}

/// Layers on images of one size; each is added to its own input.
fn residual(layers: usize) -> Graph {
    let net = Builder::new("residual", Seeded { seed: 1 });
    let mut x = net.input("x", &[1, 32, 40, 40]).conv("first", ConvLayer::new(32, Sliding::new(1)));
    for layer in 0..layers {
        let inner = x.conv(&format!("narrow{layer}"), ConvLayer::new(16, Sliding::new(1))).relu();
        x = (inner.conv(&format!("wide{layer}"), ConvLayer::new(32, Sliding::new(1))) + x).relu();
    }
    net.output("y", x);
    net.finish().unwrap()
}

/// Without sharing, two large tensors would be in memory at once: the operand and the sum.
#[test]
fn sums_lie_where_what_is_added_did() {
    let graph = residual(3);
    // Schedules with tile instructions have copies in the workspace, too.
    let network = Compiled::new(&graph, None, &Target::detect("cpu:avx2", Some(1)).unwrap()).unwrap();
    let large = 32 * 40 * 40 * 4;
    // The input and the first layer's output; later a large tensor, and a narrow one of half its
    // size.
    let bytes = network.workspace_bytes();
    assert!(bytes < 2 * large + large / 4, "{bytes} bytes for tensors of {large}");

    let inputs =
        [autotune_network::Tensor::f32(&[1, 32, 40, 40], (0..32 * 1600).map(|i| (i % 97) as f32 / 97.0).collect())];
    let inputs: Vec<_> = inputs.into_iter().map(Result::unwrap).collect();
    let mut workspace = network.workspace().unwrap();
    let wanted = graph.evaluate(&inputs).unwrap()[0].to_numbers();
    for _ in 0..3 {
        let found = workspace.run_tensors(&inputs).unwrap()[0].to_numbers();
        let most = wanted.iter().fold(1e-3f32, |most, x| most.max(x.abs()));
        assert!(found.iter().zip(&wanted).all(|(x, y)| (x - y).abs() < 1e-4 * most));
    }
    let checked = workspace.check(&inputs, &graph, &Trace::of_itself(&graph)).unwrap();
    assert!(checked.steps.iter().chain(&checked.imported).all(|step| step.max_rel_error < 1e-4));
}
