//! C header of a library.

use std::fmt::Write;

use autotune_ir::DType;

use super::Library;
use super::description::{Described, Field};
use super::export::{ALIGNMENT, Fault, Side};

/// Template of the header. `NAME` is the library's name and `PREFIX` the name in capitals.
const TEXT: &str = r#"/* @NAME@: a network as a library, by autotune @VERSION@.
 *
 * Requires @INSTRUCTIONS@. The library imports nothing, allocates nothing and makes no
 * system calls@BUT_ONE@. Any number of threads may run it at once, each with its own workspace:
 *
 *   void *workspace = aligned_alloc(@ALIGNMENT@, (@NAME@_workspace_bytes() + @ALIGNMENT@ - 1) / @ALIGNMENT@ * @ALIGNMENT@);
 *   int error = @NAME@_init(workspace);
 *   if (error == @PREFIX@_OK) error = @NAME@_run(workspace, @GIVEN@inputs, outputs, NULL, NULL);
 *
 * @ELEMENTS@
 *
@TENSORS@ */

#ifndef @PREFIX@_H
#define @PREFIX@_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of @NAME@_init, @NAME@_run and other functions that can fail. */
enum {
@FAULTS@};

/* Message for a result; NULL for any other number. */
const char *@NAME@_error(int error);

/* Calls task(argument, i) once for each i below count, on any threads, in any order and concurrently,
 * and returns when all calls have returned. */
typedef void (*@NAME@_parallel_for)(
    void *context, size_t count, void (*task)(void *argument, size_t i), void *argument);

/* Size of a workspace in bytes. A workspace serves one run at a time. */
size_t @NAME@_workspace_bytes(void);

/* Checks the processor, and initialises a workspace, aligned to @ALIGNMENT@ bytes, for any number of runs. */
int @NAME@_init(void *workspace);

@SET_FUNCTIONS@/* Runs the network. Reads inputs[0], .. and writes outputs[0], .., as many elements of each as below;
 * the pointers need no alignment beyond that of @ELEMENT@. If parallel_for is NULL, it runs on the calling
 * thread only; else it runs parts by parallel_for(context, ..), at most @NAME@_threads() at a time. No
 * exception may propagate through it. */
@VARIANTS@int @NAME@_run(void *workspace, @SHAPES@const @TENSOR@ *const *inputs, @TENSOR@ *const *outputs,
    @NAME@_parallel_for parallel_for, void *context);

/* The weights, which runs read from the library's file. A program may copy them to its own memory, aligned
 * to @ALIGNMENT@ bytes, and let any number of initialised workspaces use the copy. In huge pages, large networks
 * run faster. */
const void *@NAME@_weights(void);
size_t @NAME@_weights_bytes(void);
int @NAME@_use_weights(void *workspace, const void *weights);

@VARIANT_FUNCTIONS@/* Number of threads that the schedules are chosen for. */
size_t @NAME@_threads(void);

/* Instruction set that the @NEEDING@ requires, in words. */
const char *@NAME@_instruction_set(@SET@);

/* Number of inputs and outputs, and for each by its number@OF_VARIANT@: name, type ("f32", "i64" or "bool":
 * the meaning of the numbers), rank, shape, outermost extent first, and product of its extents. NULL or 0
 * for any other number. */
@DESCRIPTION@
#ifdef __cplusplus
}
#endif

#endif
"#;

/// Runs of a library with several variants, and the functions that only such a library has.
const VARIANTS: &str = "\
/* The library has variants, each for other shapes of the inputs. shapes[0], .. are those of this run,
 * outermost extent first; the result is @PREFIX@_ERROR_SHAPE if no variant has them. */
";
const VARIANT_FUNCTIONS: &str = "\
/* Number of variants, and the number of the variant for shapes of the inputs, or -1. */
size_t @NAME@_variants(void);
int @NAME@_variant(const size_t *const *shapes);

";

/// Functions of a library with code for several instruction sets.
const SET_FUNCTIONS: &str = "\
/* The library has code for several instruction sets; set 0 is the widest. @NAME@_init chooses the first set
 * that the processor has, @NAME@_init_for the given one, and @NAME@_used_set returns the number of the set
 * that runs in a workspace use, or -1 if the workspace is not initialised. */
size_t @NAME@_instruction_sets(void);
int @NAME@_init_for(void *workspace, size_t set);
int @NAME@_used_set(const void *workspace);

";

/// Exception to the absence of system calls if kernels use tile registers.
const REQUEST: &str = ", but for one: @NAME@_init asks Linux for tile registers (AMX)";

/// Description of elements if all tensors are float.
const ALL_FLOAT: &str = "\
All tensors are row-major and of float, including integers and truth values: an element is the
 * number, exact up to 2^24, or 1 for true and 0 for false.";

/// Description of elements if some tensors are not float.
const TYPED: &str = "All tensors are row-major; the C type of the elements follows the shape of each.";

impl Library<'_> {
    /// True if a file starts like a header, for any network and version.
    pub fn is_header(start: &[u8]) -> bool {
        let line = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let (before, rest) = TEXT.split_once("@NAME@").unwrap_or_default();
        let between = rest.split("@VERSION@").next().unwrap_or_default();
        String::from_utf8_lossy(line).strip_prefix(before).is_some_and(|named| named.contains(between))
    }

    /// Returns the header for C and C++.
    pub fn header(&self) -> String {
        let is_float = self.tensors.iter().flatten().flatten().all(|tensor| tensor.memory.is_word());
        let [elements, element, tensor] = match is_float {
            true => [ALL_FLOAT, "float", "float"],
            false => [TYPED, "an element", "void"],
        };
        let variants = match self.tensors.len() > 1 {
            true => [VARIANTS, VARIANT_FUNCTIONS, "shapes, ", "const size_t *const *shapes, ", " in a variant"],
            false => [""; 5],
        };
        let [variants, functions, given, shapes, of_variant] = variants.map(String::from);
        let [set_functions, needing, set] = match self.instructions.len() > 1 {
            true => [SET_FUNCTIONS, "code of a set", "size_t set"],
            false => ["", "library", "void"],
        };
        let has_tiles = self.instructions.iter().any(|set| set.features().have_tiles());

        let values = [
            ("@ELEMENTS@", elements.into()),
            ("@ELEMENT@", element.into()),
            ("@TENSOR@", tensor.into()),
            ("@FAULTS@", faults()),
            ("@VARIANTS@", variants),
            ("@VARIANT_FUNCTIONS@", functions),
            ("@GIVEN@", given),
            ("@SHAPES@", shapes),
            ("@OF_VARIANT@", of_variant),
            ("@DESCRIPTION@", description(self.tensors.len() > 1)),
            ("@INSTRUCTIONS@", self.instruction_set()),
            ("@SET_FUNCTIONS@", set_functions.into()),
            ("@NEEDING@", needing.into()),
            ("@SET@", set.into()),
            ("@BUT_ONE@", if has_tiles { REQUEST } else { "" }.into()),
            ("@ALIGNMENT@", ALIGNMENT.to_string()),
            ("@VERSION@", env!("CARGO_PKG_VERSION").into()),
            ("@PREFIX@", self.name.to_uppercase()),
            ("@NAME@", self.name.clone()),
            // Replaced last, as names of tensors may contain any text.
            ("@TENSORS@", tensors(self)),
        ];
        values.iter().fold(TEXT.into(), |text: String, (word, value)| text.replace(word, value))
    }
}

fn faults() -> String {
    let line = |fault: Fault| {
        let (word, meaning) = fault.words();
        format!("    @PREFIX@_{word} = {}, /* {meaning} */\n", fault as usize)
    };
    Fault::ALL.map(line).concat()
}

pub(super) fn description(has_variants: bool) -> String {
    let mut text = String::new();
    let variant = if has_variants { "size_t variant, " } else { "" };
    for side in Side::ALL.map(Side::word) {
        let _ = writeln!(text, "size_t @NAME@_{side}s(void);");
        for (c_type, word) in Field::ALL.map(|field| (field.c_type(), field.word())) {
            let _ = writeln!(text, "{c_type}@NAME@_{side}_{word}({variant}size_t {side});");
        }
    }
    text
}

/// Returns one line for each tensor of each variant.
fn tensors(library: &Library) -> String {
    let mut text = String::new();
    for (number, variant) in library.tensors.iter().enumerate() {
        if library.tensors.len() > 1 {
            let _ = writeln!(text, " * variant {number}:");
        }
        text += &tensors_of(variant);
    }
    text
}

pub(super) fn tensors_of(variant: &[Vec<Described>; 2]) -> String {
    let mut text = String::new();
    for side in Side::ALL {
        for (number, tensor) in variant[side as usize].iter().enumerate() {
            let Described { name, dtype, memory, shape } = tensor;
            let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
            let shape = if shape.is_empty() { "one number".into() } else { shape.join(" x ") };
            let (side, elements, c_type, name) = (side.word(), tensor.elements(), c_type(*memory), plain(name));
            let _ = writeln!(text, " *   {side}s[{number}]: {dtype} {shape}, {elements} {c_type}: {name}");
        }
    }
    text
}

/// Returns the C type of elements; 16-bit floats are passed as their bits.
fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 | DType::Tf32 => "float",
        DType::F16 | DType::Bf16 => "uint16_t",
        DType::I8 => "int8_t",
        DType::U8 | DType::Bool => "uint8_t",
        DType::I16 => "int16_t",
        DType::I32 => "int32_t",
        DType::I64 => "int64_t",
    }
}

/// Replaces characters that could end a comment or form trigraphs.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_control() || matches!(c, '*' | '?') { '_' } else { c }).collect()
}
