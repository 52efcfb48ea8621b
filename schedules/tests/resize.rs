//! Images made larger: a plain reference, random schedules, text forms.

#![allow(clippy::unwrap_used)]

mod common;

use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::{Operands, Workload, max_rel_error, reference};
use common::random_programs::check;
use ndarray::ArrayD;

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
    for text in SHAPES {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    assert_eq!("resize:c=2,h=3,w=4,s=2".parse::<Workload>().unwrap().output_shape(), [1, 2, 6, 8]);
}

#[test]
fn errors_name_the_operator_and_the_field() {
    for (text, wanted) in [
        ("resize:c=2,h=3,w=4", "resize: field 's' is missing"),
        ("resize:c=2,h=3,w=4,s=0", "resize: field 'sh': must be at least 1"),
        ("resize:c=2,h=3,w=4,s=1.5", "resize: field 's': '1.5' is not a whole number in range"),
        ("resize:c=2,h=3,w=4,s=2,mode=cubic", "resize: field 'mode': 'cubic' is not a way to resize (nearest)"),
        ("resize:c=2,h=99999999,w=99999999,s=2", "resize: input overflows the supported size"),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
