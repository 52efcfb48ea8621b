//! Ceiling loops in C, for processors without loops in assembly.

use super::loops::{ACCUMULATORS, LINE, READ_ACCUMULATORS, ROUNDS};

/// Returns C functions: `autotune_fma{w}` for each vector width in lanes, and `autotune_read`.
pub(super) fn source(widths: &[usize]) -> String {
    let each = |n: usize, f: &dyn Fn(usize) -> String, between: &str| (0..n).map(f).collect::<Vec<_>>().join(between);
    let mut text = String::from("#include <string.h>\n");

    for w in widths {
        let start = each(ACCUMULATORS, &|i| format!("a{i} = x + {i}.0f"), ", ");
        let step = each(ACCUMULATORS, &|i| format!("a{i} = a{i} * x + y;"), " ");
        let sum = each(ACCUMULATORS, &|i| format!("a{i}"), " + ");
        text += &format!(
            "typedef float v{w} __attribute__((vector_size({bytes})));
void autotune_fma{w}(float *const *buffers, char *local, long begin, long end) {{
    for (long t = begin; t < end; t++) {{
        v{w} x, y, sum;
        memcpy(&x, buffers[0] + {LINE} * t, sizeof x);
        memcpy(&y, buffers[0] + {LINE} * t, sizeof y);
        v{w} {start};
        for (long i = 0; i < {ROUNDS}; i++) {{ {step} }}
        sum = {sum};
        memcpy(buffers[1] + {LINE} * t, &sum, sizeof sum);
    }}
}}
",
            bytes = 4 * w
        );
    }

    let start = each(READ_ACCUMULATORS, &|i| format!("r{i} = {{0}}"), ", ");
    let step = each(READ_ACCUMULATORS, &|i| format!("r{i} += *(const line *)(p + i + {});", i * LINE), " ");
    let sum = each(READ_ACCUMULATORS, &|i| format!("r{i}"), " + ");
    text += &format!(
        "void autotune_read(float *const *buffers, char *local, long begin, long end) {{
    typedef float line __attribute__((vector_size({bytes}), may_alias));
    unsigned chunk;
    memcpy(&chunk, buffers[2], sizeof chunk);
    for (long t = begin; t < end; t++) {{
        const float *p = buffers[0] + (long)chunk * t;
        line {start};
        for (long i = 0; i < chunk; i += {stride}) {{ {step} }}
        line sum = {sum};
        memcpy(buffers[1] + {LINE} * t, &sum, sizeof sum);
    }}
}}
",
        bytes = 4 * LINE,
        stride = LINE * READ_ACCUMULATORS,
    );
    text
}
