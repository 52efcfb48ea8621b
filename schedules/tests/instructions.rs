//! Each PTX instruction of generated CUDA: the shim's version on the CPU, and the compiler's
//! acceptance of the same text. On a device, they run with the tests of `autotune-measure`.
//!
//! Without a C++ compiler or NVRTC, the tests print a notice and pass;
//! `AUTOTUNE_REQUIRE=g++,nvrtc,sm_90` makes that a failure.

#![cfg(unix)]

use std::ffi::c_void;

use crate::common::instructions::{self, Instruction};
use crate::common::missing;
use crate::common::nvrtc::Nvrtc;
use crate::common::shim::{Map, Shim, Text};

fn built(all: &[Instruction]) -> Result<Shim, String> {
    let texts = all.iter().map(|one| Text {
        source: one.source.clone(),
        symbols: vec!["try_it".into()],
        shared_bytes: one.shared_bytes,
    });
    Shim::build(&texts.collect::<Vec<_>>())
}

fn found(shim: &Shim, number: usize, one: &Instruction) -> Vec<u32> {
    // Copies of 16 bytes need 16-byte alignment.
    let mut given: Vec<[u32; 4]> =
        one.given.chunks(4).map(|c| std::array::from_fn(|i| c.get(i).copied().unwrap_or(0))).collect();
    let mut found = vec![u32::MAX; one.expected.len()];
    let base: *mut c_void = given.as_mut_ptr().cast();
    let mut map = one.map.map(|[matrix, of]| Map::new(base, matrix, of));
    let mut arguments = vec![base, found.as_mut_ptr().cast()];
    arguments.extend(map.as_mut().map(|map| std::ptr::from_mut(map).cast::<c_void>()));
    // SAFETY: the arguments are the kernel's, and the output has as many words as it writes.
    let ended = unsafe { shim.run((number, "try_it"), &mut arguments, [1, one.threads], number % 2 == 1) };
    ended.unwrap_or_else(|wrong| panic!("{}: {wrong}", one.name));
    found
}

#[test]
fn the_shim_does_what_each_instruction_does_and_wrong_layouts_are_read_off() {
    let mut all = instructions::all();
    let right = all.len();
    // The faults are sums of the wrong lane, registers in another order, and another swizzle.
    let faults = [
        ("mma m16n8k16 f16", "thread) + i] =", "(thread ^ 1)) + i] =", "row 0 column 2, not row 0 column 0"),
        ("wgmma m64n64k16 f16", "] = __float_as_uint(sums[i])", "] = __float_as_uint(sums[i ^ 8])", "row 8 column 0"),
        ("wgmma m64n16k16 bf16", "+ 2 * s, matrix", "+ 4 * s, matrix", "step "),
        ("copy of boxes", "[i];", "[i ^ 4];", "row 0 column 8 and row 0 column 9, not row 0 column 0"),
        ("load_matrices", "load_matrices(to", "load_matrices_transposed(to", "matrix 0 row 1 column 0"),
    ];

    for (name, text, other, _) in faults {
        let mut faulty = instructions::all().into_iter().find(|one| one.name == name).unwrap();
        let at = faulty.source.rfind("try_it").unwrap();
        let (functions, kernel) = faulty.source.split_at(at);
        assert!(kernel.contains(text), "{kernel}");
        faulty.source = format!("{functions}{}", kernel.replace(text, other));
        all.push(faulty);
    }

    let shim = match built(&all) {
        Ok(shim) => shim,
        Err(reason) => return missing("g++", &reason),
    };
    for (number, one) in all.iter().enumerate() {
        let checked = one.check(&found(&shim, number, one));
        match number.checked_sub(right) {
            None => checked.unwrap_or_else(|map| panic!("{map}")),
            Some(fault) => {
                let map = checked.unwrap_err();
                assert!(map.contains(faults[fault].3), "{map}");
            }
        }
    }
    eprintln!("{right} instructions");
}

#[test]
fn the_texts_are_cuda() {
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(reason) => return missing("nvrtc", &reason),
    };
    for sm in [80, 90, 120] {
        if !nvrtc.architectures.contains(&sm) {
            missing(&format!("sm_{sm}"), "this NVRTC does not compile for it");
            continue;
        }
        for one in instructions::all().iter().filter(|one| one.only.is_none_or(|only| only == sm)) {
            for checked in ["", "#define AUTOTUNE_CHECKED\n"] {
                let source = format!("{checked}{}", one.source);
                let usage =
                    nvrtc.compile(&source, sm).unwrap_or_else(|e| panic!("{}, sm_{sm}\n{source}\n{e}", one.name));
                assert!(usage.iter().all(|kernel| kernel.spill_bytes == 0), "{}: {usage:?}", one.name);
            }
        }
    }
}
