//! Resampled images: a naive reference, random schedules, text forms.

use std::cell::Cell;

use autotune_ir::{CpuTarget, Isa, Target};
use autotune_workloads::{Coordinates, Operands, Resample, Rounding, Sampling, Workload, max_rel_error, reference};
use ndarray::ArrayD;

use crate::common::cases::for_cases;
use crate::common::operators::random_resample;
use crate::common::random_programs::{check, check_drawn};

const SHAPES: [&str; 6] = [
    "resize:c=1,h=1,w=1,s=1,mode=nearest",
    "resize:c=3,h=5,w=7,s=2,mode=nearest",
    "resize:n=2,c=2,h=3,w=17,sh=1,sw=3,mode=nearest,bias,act=relu",
    "resize:c=5,h=2,w=40,sh=3,sw=2,mode=nearest,add",
    "resize:c=2,h=4,w=1,s=7,mode=nearest",
    "resize:c=1,h=6,w=33,sh=2,sw=1,mode=nearest",
];

#[test]
fn every_element_is_repeated() {
    for (text, scale) in SHAPES.iter().zip([[1, 1], [2, 2], [1, 3], [3, 2], [7, 7], [2, 1]]) {
        let workload = text.parse::<Workload>().unwrap().with_epilogue(Default::default());
        let operands = Operands::random(workload.spec(), 3);
        let wanted = ArrayD::from_shape_fn(workload.output_shape(), |i| {
            operands[0][[i[0], i[1], i[2] / scale[0], i[3] / scale[1]]]
        });
        assert_eq!(max_rel_error(&reference(&workload, &operands), &wanted), 0.0, "{text}");
    }
}

/// Examples from the documentation of ONNX's `Resize` (operator set 19), with the coordinates and
/// roundings that it names.
#[test]
fn images_of_two_by_two_are_what_the_documentation_of_onnx_says() {
    let half = [1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75, 4.0];
    let (third, two_thirds) = (1.0 + 1.0 / 3.0, 1.0 + 2.0 / 3.0);
    let corners: Vec<f32> = [0.0f32, 2.0 / 3.0, 4.0 / 3.0, 2.0]
        .iter()
        .flat_map(|row| [1.0, third, two_thirds, 2.0].map(|x| x + row))
        .collect();
    let nearest: Vec<f32> = [1.0, 1.0, 1.0, 1.0, 3.0, 3.0, 3.0]
        .iter()
        .flat_map(|row| [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0].map(|x| x + row))
        .collect();
    for (text, wanted) in [
        ("resize:c=1,h=2,w=2,s=2,mode=linear", half.to_vec()),
        ("resize:c=1,h=2,w=2,oh=4,ow=4,mode=linear,coord=align_corners", corners),
        ("resize:c=1,h=2,w=2,oh=7,ow=8,mode=nearest", nearest),
    ] {
        let workload: Workload = text.parse().unwrap();
        let mut operands = Operands::random(workload.spec(), 0);
        operands[0] = ArrayD::from_shape_vec(vec![1, 1, 2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        let output = reference(&workload, &operands);
        let worst = output.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(output.len() == wanted.len() && worst < 1e-6, "{text}: {output} for {wanted:?}");
    }
}

/// Returns the input position of an output element along an axis, in floating point.
fn place(coordinates: Coordinates, y: usize, from: usize, to: usize) -> f64 {
    let (y, from, to) = (y as f64, from as f64, to as f64);
    match coordinates {
        Coordinates::HalfPixel => (y + 0.5) * from / to - 0.5,
        Coordinates::AlignCorners if to == 1.0 => 0.0,
        Coordinates::AlignCorners => y * (from - 1.0) / (to - 1.0),
        Coordinates::Asymmetric => y * from / to,
    }
}

/// Returns the input elements of an output element along an axis, with their weights.
fn parts(resample: &Resample, axis: usize, y: usize) -> Vec<(usize, f64)> {
    let (from, to) = (resample.input[axis], resample.output[axis]);
    let (place, last) = (place(resample.coordinates, y, from, to), (from - 1) as f64);
    let at = |place: f64| place.clamp(0.0, last) as usize;
    // Slightly less than half, so that a middle with rounding errors counts as one.
    let hair = 1e-9;
    match resample.sampling {
        Sampling::Nearest(Rounding::Floor) => vec![(at((place + hair).floor()), 1.0)],
        Sampling::Nearest(Rounding::Ceil) => vec![(at((place - hair).ceil()), 1.0)],
        Sampling::Nearest(Rounding::PreferFloor) => vec![(at((place - 0.5 - hair).ceil()), 1.0)],
        Sampling::Nearest(Rounding::PreferCeil) => vec![(at((place + 0.5 + hair).floor()), 1.0)],
        Sampling::Linear => {
            let place = place.clamp(0.0, last);
            let rest = place - place.floor();
            vec![(at(place.floor()), 1.0 - rest), (at(place.floor() + 1.0), rest)]
        }
    }
}

#[test]
fn references_are_what_coordinates_and_roundings_say() {
    let checked = Cell::new(0);
    for_cases(300, |seed, choices| {
        let workload = random_resample(choices).with_epilogue(Default::default());
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
        let Some(resample) = workload.sizes::<Resample>() else { return };
        let operands = Operands::random(workload.spec(), seed);
        let wanted = ArrayD::from_shape_fn(workload.output_shape(), |i| {
            let rows = parts(resample, 0, i[2]);
            let columns = parts(resample, 1, i[3]);
            let pairs = rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
            pairs.map(|(y, x)| y.1 * x.1 * f64::from(operands[0][[i[0], i[1], y.0, x.0]])).sum::<f64>() as f32
        });
        let error = max_rel_error(&reference(&workload, &operands), &wanted);
        assert!(error < 1e-5, "{workload}: {error}");
        checked.set(checked.get() + 1);
    });
    assert!(checked.get() > 200, "{checked:?}");
}

#[test]
fn random_resamplings_are_proven_and_agree_with_the_reference() {
    for_cases(40, |seed, choices| {
        let workload = random_resample(choices);
        let isa = [Isa::Avx2, Isa::Avx512, Isa::Generic][seed as usize % 3];
        check_drawn(&workload, &Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) }), seed, 3, choices);
        let gpu = Target::detect(["opencl", "cuda:sm_90"][seed as usize % 2], None).unwrap();
        check_drawn(&workload, &gpu, seed, 3, choices);
    });
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for isa in [Isa::Avx2, Isa::Avx512, Isa::Generic] {
        for (seed, text) in (0..).zip(SHAPES) {
            let target = Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(1 + seed as usize % 3) });
            check(&text.parse().unwrap(), &target, seed, 12);
        }
    }
}

#[test]
fn the_text_forms_are_read_as_they_are_written() {
    for text in SHAPES.into_iter().chain([
        "resize:c=3,h=5,w=7,oh=8,ow=21,mode=nearest",
        "resize:n=2,c=3,h=5,w=7,oh=10,ow=14,mode=nearest,coord=align_corners,round=prefer_ceil",
        "resize:c=3,h=5,w=7,oh=8,ow=21,mode=linear,coord=asymmetric,bias",
    ]) {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    for (text, canonical) in [
        ("resize:c=3,h=5,w=7,oh=10,ow=14,mode=nearest", "resize:c=3,h=5,w=7,s=2,mode=nearest"),
        ("resize:c=3,h=5,w=7,s=2,mode=linear", "resize:c=3,h=5,w=7,oh=10,ow=14,mode=linear"),
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), canonical);
    }
    assert_eq!("resize:c=2,h=3,w=4,s=2".parse::<Workload>().unwrap().output_shape(), [1, 2, 6, 8]);
}

#[test]
fn errors_name_the_operator_and_the_field() {
    for (text, wanted) in [
        ("resize:c=2,h=3,w=4", "resize: field 's' is missing"),
        ("resize:c=2,h=3,w=4,s=0", "resize: field 'sh': must be at least 1"),
        ("resize:c=2,h=3,w=4,s=1.5", "resize: field 's': '1.5' is not a whole number in range"),
        (
            "resize:c=2,h=3,w=4,s=2,mode=cubic",
            "resize: field 'mode': 'cubic' is not an interpolation (nearest or linear)",
        ),
        (
            "resize:c=2,h=99999999,w=99999999,s=2",
            "resize: field 'w': 99999999 is too large: input exceeds the supported size",
        ),
        ("resize:c=2,h=3,w=4,oh=5", "resize: field 'ow': is required with 'oh'"),
        ("resize:c=2,h=3,w=4,oh=5,ow=6,sh=2", "resize: field 'sh': cannot be combined with 'oh' and 'ow'"),
        ("resize:c=2,h=3,w=4,oh=0,ow=6", "resize: field 'oh': must be at least 1"),
        ("resize:c=2,h=3,w=4,s=2,mode=linear,round=floor", "resize: field 'round': applies only to mode=nearest"),
        ("resize:c=2,h=3,w=4,s=2,coord=corners", "resize: field 'coord': 'corners' is not a coordinate mapping"),
        ("resize:c=2,h=3,w=4,oh=20000,ow=6", "resize: field 'oh': 20000 exceeds the maximum of 16384"),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
