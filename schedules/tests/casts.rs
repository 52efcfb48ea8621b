//! 16-bit elements with 32-bit sums: assembled, in C, in OpenCL and interpreted, compared bit for
//! bit with a conversion of the test's own.

#![cfg(all(target_arch = "x86_64", unix))]

use std::cell::Cell;

use autotune_codegen::asm::{assemble, x86::disassemble};
use autotune_ir::{CpuTarget, DType, Isa, Target, interpret, verify};
use autotune_schedules::{Config, KnobValue, ScheduleSpace, lower};
use autotune_workloads::{Operands, Workload, reference};
use ndarray::{ArrayD, IxDyn};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::common::cases::for_cases;
use crate::common::maps::difference;
use crate::common::opencl::OpenCl;
use crate::common::or_long;
use crate::common::{c, machine, missing};

const ISAS: [Isa; 2] = [Isa::Avx2, Isa::Avx512];
const TYPES: [(&str, DType); 2] = [("f16", DType::F16), ("bf16", DType::Bf16)];

/// Returns the bits of the significand after the leading one, the least exponent, and the exponent
/// of infinity.
fn format(dtype: DType) -> (i32, i32, i32) {
    if dtype == DType::F16 { (10, -14, 16) } else { (7, -126, 128) }
}

/// Returns the value of the nearest element, ties to even. It uses integer multiples of the last
/// place in f64, which is exact.
fn nearest(dtype: DType, x: f32) -> f32 {
    let (bits, least, infinite) = format(dtype);
    if x.is_nan() || x == 0.0 || x.is_infinite() {
        return x;
    }
    let exponent = ((f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023).max(least);
    let place = 2f64.powi(exponent - bits);
    let rounded = (f64::from(x) / place).round_ties_even() * place;
    let is_infinite = rounded.abs() >= 2f64.powi(infinite);
    if is_infinite { f32::INFINITY.copysign(x) } else { rounded as f32 }
}

fn target(isa: Isa, threads: usize) -> Target {
    Target::Cpu(CpuTarget { isa, l2_bytes: 1 << 10, l3_bytes: 1 << 12, ..CpuTarget::generic_avx2(threads) })
}

/// A CPU that has an instruction for rounding to bf16.
fn with_bf16(threads: usize) -> Target {
    let Target::Cpu(cpu) = target(Isa::Avx512, threads) else { unreachable!() };
    Target::Cpu(CpuTarget { features: vec!["avx512bf16".into()], ..cpu })
}

/// True if this machine can run code for a CPU.
fn runs(target: &Target) -> bool {
    let cpu = target.cpu().unwrap();
    machine::runs(cpu.isa) && cpu.features.iter().all(|feature| machine::has(feature))
}

/// CPUs of both instruction sets, with and without an instruction for rounding to bf16.
fn cpus(threads: usize) -> [Target; 3] {
    [target(Isa::Avx2, threads), target(Isa::Avx512, threads), with_bf16(threads)]
}

/// Replaces values that a CPU may flush to zero: its bf16 instruction treats denormals as zeros.
fn normal(target: &Target, values: ArrayD<f32>) -> ArrayD<f32> {
    let has_denormals = target.cpu().unwrap().features.is_empty();
    values.mapv(|x| if has_denormals || x.abs() > f32::MIN_POSITIVE || x.is_nan() { x } else { 0.0 })
}

/// Returns every element of a type, the midpoints between adjacent ones, and values next to the
/// midpoints, in an aperiodic order.
fn every_element(dtype: DType, shape: &[usize]) -> ArrayD<f32> {
    let half_place = if dtype == DType::F16 { 1u32 << 12 } else { 1 << 15 };
    let beside = |bits: u32| [u32::MAX, 0, 1].map(|step| bits.wrapping_add(step));
    let of_element = |element: u32| {
        let bits = dtype.values(&[element], 1)[0].to_bits();
        // Adjacent denormals of f16 are not equally far apart as f32 bit patterns.
        let next = dtype.values(&[element + 1], 1)[0];
        let middle = (f32::from_bits(bits) + next) / 2.0;
        [bits, bits.wrapping_add(half_place), middle.to_bits()].into_iter().flat_map(beside).collect::<Vec<_>>()
    };
    let mut all: Vec<f32> = (0..1 << 16).flat_map(of_element).map(f32::from_bits).collect();
    let len = shape.iter().product();
    assert!(all.len() <= len);
    all.resize(len, 1.0);
    let mixed = (0..len).map(|at| all[at * 7919 % len]).collect();
    ArrayD::from_shape_vec(IxDyn(shape), mixed).unwrap()
}

/// Shape of 9 values for each of 65536 elements; neither extent is a multiple of 7919.
const SHAPE: [usize; 2] = [577, 1023];

#[test]
fn every_element_is_rounded_to() {
    for (isa, (word, dtype)) in ISAS.into_iter().flat_map(|isa| TYPES.map(|of| (isa, of))) {
        let [m, n] = SHAPE;
        let workload: Workload = format!("pointwise:m={m},n={n},op=copy,to={word}").parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 0);
        operands[0] = every_element(dtype, &SHAPE);
        let wanted = operands[0].mapv(|x| nearest(dtype, x));
        let mut seen: Vec<u32> = wanted.iter().map(|x| dtype.words(&[*x])[0]).collect();
        seen.sort_unstable();
        seen.dedup();
        let numbers = seen.iter().filter(|&&bits| !dtype.values(&[bits], 1)[0].is_nan()).count();
        assert_eq!(numbers, 2 * if dtype == DType::F16 { 31 << 10 | 1 } else { 255 << 7 | 1 }, "of {word}");
        // The sum turns a negative zero into a positive one.
        let is_same = |(found, wanted): (&f32, &f32)| found == wanted || found.is_nan() && wanted.is_nan();
        assert!(reference(&workload, &operands).iter().zip(&wanted).all(is_same), "{workload}");

        let target = target(isa, 1);
        let space = ScheduleSpace::new(&workload, &target);
        for (number, config) in configs(&space, 3).into_iter().enumerate() {
            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("{isa}: {workload}\n{config}");
            if machine::runs(isa) {
                let output = machine::run(&program, &assemble(&program, &target).unwrap(), &operands);
                assert_eq!(difference(&output, &wanted), None, "{context}");
            }
            if number == 0 {
                assert_eq!(difference(&interpret(&program, &operands).unwrap(), &wanted), None, "{context}");
                match c::run(&program, &target, &operands) {
                    Ok(output) => assert_eq!(difference(&output, &wanted), None, "in C, {context}"),
                    Err(reason) => missing("cc", &reason),
                }
            }
        }
    }
}

/// Vectors of 128 bits, for which the C compiler may assume no particular instructions.
#[test]
fn random_results_are_written_in_c_for_any_machine() {
    let target = Target::Cpu(CpuTarget { isa: Isa::Generic, ..CpuTarget::generic_avx2(1) });
    for_cases(12, |seed, choices| {
        let workload = random_workload(choices, TYPES[seed as usize % 2].0);
        let config = ScheduleSpace::new(&workload, &target).sample(choices).config().clone();
        let program = lower(&workload, &target, &config).unwrap();
        let operands = crate::common::maps::operands(&program, seed);
        let wanted = interpret(&program, &operands).unwrap();
        match c::run(&program, &target, &operands) {
            Ok(output) => {
                assert_eq!(difference(&output, &wanted), None, "{workload}\n{config}\n{program}")
            }
            Err(reason) => missing("cc", &reason),
        }
    });
}

#[test]
fn every_element_is_rounded_to_in_opencl() {
    let device = match OpenCl::find() {
        Ok(device) => device,
        Err(reason) => return missing("opencl", &reason),
    };
    for (word, dtype) in TYPES {
        let [m, n] = SHAPE;
        let workload: Workload = format!("pointwise:m={m},n={n},op=copy,to={word}").parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 0);
        operands[0] = every_element(dtype, &SHAPE);
        let wanted = operands[0].mapv(|x| nearest(dtype, x));
        let target = Target::detect("opencl", None).unwrap();
        let back: Workload = format!("pointwise:m={m},n={n},op=copy,to=f32,dtype={word}").parse().unwrap();
        for workload in [workload, back] {
            let space = ScheduleSpace::new(&workload, &target);
            for config in configs(&space, 3) {
                let program = lower(&workload, &target, &config).unwrap();
                verify(&program, &target).unwrap();
                let output = device.run(&program, &operands).unwrap_or_else(|e| panic!("{config}\n{e}"));
                assert_eq!(difference(&output, &wanted), None, "{workload} on {}\n{config}", device.name);
            }
        }
    }
}

/// Returns the default config and others, some of which use streaming stores.
fn configs(space: &ScheduleSpace, count: u64) -> Vec<Config> {
    let mut all = vec![space.default_config()];
    all.extend((0..count).map(|seed| space.sample(&mut ChaCha8Rng::seed_from_u64(seed)).config().clone()));
    let mut streamed = space.default_config();
    let word = KnobValue::Choice("streamed".into());
    streamed.knobs.entry("result".into()).and_modify(|value| *value = word);
    all.push(streamed);
    all
}

/// Draws rows of any length, so that tails have any number of lanes, with vectors along and across
/// rows, or channel blocks.
fn random_workload(rng: &mut impl Rng, word: &str) -> Workload {
    let [m, n] = [rng.random_range(1..20), rng.random_range(1..80)];
    let text = match rng.random_range(0..8) {
        0 => format!("pointwise:m={m},n={n},op=copy"),
        1 => format!("pointwise:m={m},n={n},op=relu"),
        2 => format!("pointwise:m={m},n={n},op=exp"),
        3 => format!("pointwise:m={m},n={n},op=add,rhs=column"),
        4 => format!("pointwise:m={m},n={n},op=mul,lhs=scalar,rhs=column"),
        5 => format!("pointwise:b=3,m={m},n={n},op=add,rhs=row,add"),
        6 => format!("pointwise:m={},n={n},op=copy,channels=column,scale,bias,act=relu", 16 * (1 + m % 3)),
        _ => format!("pointwise:b=2,m={m},n={n},op=where,third=row"),
    };
    let dtype = [",dtype=f16", ",dtype=bf16", ""][rng.random_range(0..3)];
    let to = if rng.random_bool(0.2) { String::new() } else { format!(",to={word}") };
    format!("{text}{to}{dtype}").parse().unwrap()
}

#[test]
fn random_results_agree_bit_for_bit() {
    let streamed = Cell::new(0);
    let each = or_long([60, 250]);
    for_cases(3 * each, |seed, choices| {
        let (cpu, seed) = ((seed / each) as usize, seed % each);
        let word = ["f16", "bf16", "f32"][seed as usize % 3];
        let target = cpus(1 + seed as usize % 2)[cpu].clone();
        let workload = random_workload(choices, word);
        let space = ScheduleSpace::new(&workload, &target);
        let config = match choices.random_range(0..3) {
            0 => configs(&space, 0).remove(choices.random_range(0..2)),
            _ => space.sample(choices).config().clone(),
        };
        let program = lower(&workload, &target, &config).unwrap();
        let context = format!("{target}: {workload}\n{config}\n{program}");
        verify(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}"));
        let operands = crate::common::maps::operands(&program, seed);
        let interpreted = interpret(&program, &operands).unwrap();
        let dtype = workload.result_dtype();
        let is_stored = |x: f32| dtype == DType::F32 || x.is_nan() || nearest(dtype, x) == x;
        assert!(interpreted.iter().all(|&x| is_stored(x)), "{context}");

        let code = assemble(&program, &target).unwrap_or_else(|e| panic!("{context}\n{e}"));
        streamed.set(streamed.get() + usize::from(disassemble(&code).contains("vmovntps")));
        if runs(&target) {
            let output = normal(&target, machine::run(&program, &code, &operands));
            assert_eq!(difference(&output, &normal(&target, interpreted.clone())), None, "{context}");
        }
        if seed < or_long([3, 24]) {
            match c::run(&program, &target, &operands) {
                Ok(output) => assert_eq!(difference(&output, &interpreted), None, "in C, {context}"),
                Err(reason) => missing("cc", &reason),
            }
        }
    });
    assert!(streamed.get() > or_long([2, 10]), "{streamed:?} programs stream");
}

/// Tests every number of lanes, along and across rows.
#[test]
fn every_part_of_a_vector_is_stored() {
    for (target, (word, _)) in cpus(1).into_iter().flat_map(|cpu| TYPES.map(|of| (cpu.clone(), of))) {
        for (n, vector) in (1..=35).flat_map(|n| ["m", "n"].map(|vector| (n, vector))) {
            let [rows, columns] = if vector == "m" { [n, 3] } else { [3, n] };
            let text = format!("pointwise:m={rows},n={columns},op=add,rhs=column,to={word}");
            let workload: Workload = text.parse().unwrap();
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            config.knobs.insert("vector".into(), KnobValue::Choice(vector.into()));
            let tile = format!("tile.{vector}");
            config.knobs.entry(tile).and_modify(|value| *value = KnobValue::Tile(vec![n]));
            let Ok(program) = lower(&workload, &target, &config) else { continue };
            let code = assemble(&program, &target).unwrap();
            if runs(&target) {
                let operands = crate::common::maps::operands(&program, n as u64);
                let wanted = normal(&target, interpret(&program, &operands).unwrap());
                let output = normal(&target, machine::run(&program, &code, &operands));
                assert_eq!(difference(&output, &wanted), None, "{target}: {workload}\n{config}\n{program}");
            }
        }
    }
}

/// Tests the values of all elements, loaded with every number of lanes and with strides.
#[test]
fn every_element_has_its_value() {
    for (isa, (word, dtype)) in ISAS.into_iter().flat_map(|isa| TYPES.map(|of| (isa, of))) {
        let elements =
            dtype.values(&(0..1 << 15).map(|pair| ((2 * pair + 1) << 16) | (2 * pair)).collect::<Vec<u32>>(), 1 << 16);
        for (columns, vector) in (1..=34).map(|columns| (columns, "n")).chain([(32, "m")]) {
            let rows = elements.len() / columns;
            let text = format!("pointwise:m={rows},n={columns},op=add,rhs=column,to=f32,dtype={word}");
            let (workload, target): (Workload, _) = (text.parse().unwrap(), target(isa, 1));
            let mut config = ScheduleSpace::new(&workload, &target).default_config();
            config.knobs.insert("vector".into(), KnobValue::Choice(vector.into()));

            let tiles = [("m", if vector == "m" { 27 } else { 2 }), ("n", if vector == "m" { 1 } else { columns })]
                .map(|(axis, tile)| (format!("tile.{axis}"), tile));
            for (knob, tile) in tiles {
                config.knobs.entry(knob).and_modify(|value| *value = KnobValue::Tile(vec![tile]));
            }

            let program = lower(&workload, &target, &config).unwrap();
            let context = format!("{isa}: {workload}\n{config}");
            let mut operands = Operands::random(workload.spec(), 0);
            operands[1].fill(0.0);
            let mut next = elements.iter();
            operands[0].mapv_inplace(|_| *next.next().unwrap());
            let wanted = operands[0].mapv(|x| x + 0.0);

            if machine::runs(isa) {
                let output = machine::run(&program, &assemble(&program, &target).unwrap(), &operands);
                assert_eq!(difference(&output, &wanted), None, "{context}");
            }
            if vector == "m" || columns == 17 {
                match c::run(&program, &target, &operands) {
                    Ok(output) => assert_eq!(difference(&output, &wanted), None, "in C, {context}"),
                    Err(reason) => missing("cc", &reason),
                }
            }
        }
    }
}

/// Uses AVX512_BF16, whose instruction rounds in the same way but flushes denormals to zero.
#[test]
fn every_element_is_rounded_to_by_an_instruction() {
    let target = with_bf16(1);
    for (m, n, vector) in [(577, 1023, "n"), (1023, 577, "m")] {
        let workload: Workload = format!("pointwise:m={m},n={n},op=copy,to=bf16").parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 0);
        operands[0] = every_element(DType::Bf16, &[m, n]);
        let normal = |x: f32| if x.abs() < f32::MIN_POSITIVE { 0f32.copysign(x) } else { x };
        let wanted = operands[0].mapv(|x| normal(nearest(DType::Bf16, normal(x))));

        let mut all = configs(&ScheduleSpace::new(&workload, &target), 3);
        all[0].knobs.insert("vector".into(), KnobValue::Choice(vector.into()));
        for config in all {
            let Ok(program) = lower(&workload, &target, &config) else { continue };
            let code = assemble(&program, &target).unwrap();
            assert!(disassemble(&code).contains("vcvtneps2bf16"), "{config}");
            if machine::runs(Isa::Avx512) && machine::has("avx512bf16") {
                let output = machine::run(&program, &code, &operands);
                assert_eq!(difference(&output, &wanted), None, "{workload}\n{config}");
            }
        }
    }
}

#[test]
fn cpus_have_all_operators_in_bf16_and_casts_alone_in_f16() {
    for (target, text) in [target(Isa::Avx2, 1), with_bf16(1)].into_iter().flat_map(|target| {
        ["softmax:m=4,n=4", "pool2d:c=4,h=4,w=4,k=2,kind=max", "transpose:m=3,n=4", "matmul:m=4,n=4,k=4"]
            .map(|text| (target.clone(), text))
    }) {
        for types in ["dtype=bf16", "data=bf16,out=f32", "data=f32,out=bf16"] {
            let workload: Workload = format!("{text},{types}").parse().unwrap();
            assert_eq!(workload.unsupported_dtype(&target), None, "{workload}");
        }
        for (types, field) in [("dtype=f16", "dtype"), ("data=f32,out=f16", "out"), ("data=f16,out=f32", "data")] {
            let workload: Workload = format!("{text},{types}").parse().unwrap();
            assert_eq!(workload.unsupported_dtype(&target), Some((field, DType::F16)), "{workload}");
        }
    }
    for types in ["dtype=f16", "dtype=f16,to=f32", "dtype=f16,to=bf16", "dtype=bf16,to=f16"] {
        let workload: Workload = format!("pointwise:m=4,n=4,op=copy,{types}").parse().unwrap();
        assert_eq!(workload.unsupported_dtype(&target(Isa::Avx2, 1)), None, "{workload}");
    }
}
