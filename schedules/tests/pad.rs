//! Padding of images: a naive reference, random schedules, code, text forms.

use std::cell::RefCell;

use autotune_ir::{CpuTarget, Isa, Target};
use autotune_schedules::{ScheduleSpace, lower};
use autotune_workloads::{Operands, PadMode, PadWorkload, Workload, reference};
use ndarray::ArrayD;

use crate::common::cases::for_cases;
use crate::common::operators::random_pad;
use crate::common::random_programs::check_drawn;
use crate::common::{c, missing};

fn by_hand(pad: &PadWorkload, input: &ArrayD<f32>) -> ArrayD<f32> {
    let [above, below, left, right] = pad.pad.map(|pad| pad as i64);
    let (h, w) = (pad.h as i64, pad.w as i64);
    let shape = vec![pad.n, pad.c, (h + above + below) as usize, (w + left + right) as usize];
    // Reflects at both ends until the position is inside.
    let mirrored = |mut place: i64, extent: i64| {
        while !(0..extent).contains(&place) {
            place = if place < 0 { -place } else { 2 * (extent - 1) - place };
        }
        place
    };
    ArrayD::from_shape_fn(shape, |i| {
        let (y, x) = (i[2] as i64 - above, i[3] as i64 - left);
        let is_inside = (0..h).contains(&y) && (0..w).contains(&x);
        let (y, x) = match pad.mode {
            PadMode::Constant if !is_inside => return pad.value,
            PadMode::Constant => (y, x),
            PadMode::Reflect => (mirrored(y, h), mirrored(x, w)),
            PadMode::Edge => (y.max(0).min(h - 1), x.max(0).min(w - 1)),
        };
        input[[i[0], i[1], y as usize, x as usize]]
    })
}

#[test]
fn references_are_what_each_mode_says() {
    let modes = RefCell::new([0; 3]);
    for_cases(300, |seed, choices| {
        let workload = random_pad(choices);
        assert_eq!(workload.to_string().parse::<Workload>().unwrap(), workload);
        let pad = *workload.sizes::<PadWorkload>().unwrap();
        let operands = Operands::random(workload.spec(), seed);
        assert_eq!(reference(&workload, &operands), by_hand(&pad, &operands[0]), "{workload}");
        modes.borrow_mut()[pad.mode as usize] += 1;
    });
    assert!(modes.borrow().iter().all(|&count| count > 20), "{modes:?}");
}

#[test]
fn random_programs_are_proven_and_agree_with_the_reference() {
    for_cases(40, |seed, choices| {
        let workload = random_pad(choices);
        let isa = [Isa::Avx2, Isa::Avx512, Isa::Generic][seed as usize % 3];
        check_drawn(&workload, &Target::Cpu(CpuTarget { isa, ..CpuTarget::generic_avx2(2) }), seed, 3, choices);
        let gpu = Target::detect(["opencl", "cuda:sm_90"][seed as usize % 2], None).unwrap();
        check_drawn(&workload, &gpu, seed, 3, choices);
    });
}

#[test]
fn c_agrees_with_the_reference() {
    let target = Target::Cpu(CpuTarget::generic_avx2(1));
    for (seed, text) in (0..).zip([
        "pad:c=2,h=5,w=21,p=3,mode=reflect,act=relu",
        "pad:n=2,c=3,h=4,w=7,pt=0,pb=1,pl=9,pr=2,mode=edge,bias",
        "pad:c=1,h=1,w=1,p=2,mode=constant,value=0.5",
        "resize:c=2,h=5,w=7,oh=9,ow=40,mode=linear",
        "resize:c=2,h=5,w=7,oh=3,ow=5,mode=nearest,coord=align_corners",
        "pool2d:c=3,h=9,w=20,k=3,s=2,p=1,exclude_pad,kind=avg",
    ]) {
        let workload: Workload = text.parse().unwrap();
        let program = lower(&workload, &target, &ScheduleSpace::new(&workload, &target).default_config()).unwrap();
        let operands = Operands::random(workload.spec(), seed);
        let output = match c::run(&program, &target, &operands) {
            Ok(output) => output,
            Err(reason) => return missing("cc", &reason),
        };
        let error = autotune_workloads::max_rel_error(&output, &reference(&workload, &operands));
        assert!(error < 1e-5, "{workload}: {error}\n{program}");
    }
}

#[test]
fn the_text_forms_are_read_as_they_are_written_and_errors_name_the_field() {
    for text in [
        "pad:c=64,h=56,w=56,p=1,mode=reflect",
        "pad:n=2,c=3,h=5,w=6,pt=0,pb=1,pl=2,pr=3,mode=edge,bias",
        "pad:c=3,h=5,w=6,p=2,mode=constant",
        "pad:c=3,h=5,w=6,p=2,mode=constant,value=-inf",
    ] {
        assert_eq!(text.parse::<Workload>().unwrap().to_string(), text);
    }
    for (text, wanted) in [
        ("pad:c=3,h=5,w=6,p=5,mode=reflect", "pad: field 'pt': reflected padding 5 is not smaller than the extent (5)"),
        ("pad:c=3,h=5,w=6,p=1,mode=wrap", "pad: field 'mode': 'wrap' is not a padding"),
        ("pad:c=3,h=5,w=6,p=1,mode=edge,value=1", "pad: field 'value': applies only to mode=constant"),
        ("pad:c=3,h=5,w=6,p=1,value=nan", "pad: field 'value': 'nan' is not a number"),
        ("pad:c=0,h=5,w=6,p=1", "pad: field 'c': must be at least 1"),
        (
            "pad:c=1,h=5,w=6,p=18446744073709551615",
            "pad: field 'p': 18446744073709551615 is too large: output exceeds the supported size",
        ),
        ("pad:c=1,h=5,w=6,pr=20000", "pad: field 'w': the output extent 20006 exceeds the maximum of 16384"),
    ] {
        let error = text.parse::<Workload>().unwrap_err().to_string();
        assert!(error.starts_with(wanted), "{text}: {error}");
    }
}
